import copy
import dataclasses
import json
import pickle

import pytest

from simcse_jax.config.checks import validate
from simcse_jax.config.fields import default_config, flatten
from simcse_jax.config.sections import Section


def test_sections_have_the_values_of_the_config_in_its_order_do_not_change_and_are_keys():
    config = default_config()
    config.eval.tasks = ("STS12",)
    sections = validate(config)
    assert sections.train.batch_size == sections["train"]["batch_size"] == 64
    assert sections.objective["info_nce"].temperature == sections["objective.info_nce.temperature"] == 0.05
    assert "train.batch_size" in sections and sections.get("train.none") is sections.get("seed.none") is None
    assert sections.eval.tasks == ("STS12",)
    assert list(flatten(sections).items()) == list(flatten(config).items())
    assert json.dumps(sections.to_dict()) == json.dumps(config.to_dict())
    assert validate(sections) is sections

    config.train.batch_size = 8
    assert sections.train.batch_size == 64
    with pytest.raises(dataclasses.FrozenInstanceError):
        sections.train.batch_size = 8
    with pytest.raises(TypeError):
        sections["seed"] = 1
    with pytest.raises(AttributeError, match="sead"):
        _ = sections.sead
    # Equal sections are one key, and a replaced field is another.
    first, second = validate(default_config()), validate(default_config())
    assert first == second and len({first, second}) == 1
    other = first.replaced("model.lora.rank", 4)
    assert (first.model.lora.rank, other.model.lora.rank) == (0, 4)
    assert len({first, other}) == 2 and other.train == first.train
    with pytest.raises(KeyError):
        first.replaced("model.lora.rang", 4)


def test_sections_of_dictionaries_have_tuples_for_lists_and_name_what_is_no_field_in_full():
    section = Section.of({"seed": 1, "model": {"mlp": "none"}, "eval": {"tasks": ["STS12"]}})
    assert section.eval.tasks == ("STS12",) and {section: 1}[section] == 1
    assert copy.deepcopy(section) == pickle.loads(pickle.dumps(section)) == section
    assert section.model.mlp == "none" and section.get("train", {}) == {}
    section = Section.of({"a": [[1, 2], ({"b": [3]},)]})
    assert section.a == ((1, 2), (Section.of({"b": (3,)}),)) and {section: 1}[section] == 1
    assert section.to_dict() == {"a": ((1, 2), ({"b": (3,)},))}

    section = Section.of({"seed": 1, "model": {"mlp": "none"}})
    assert 5 not in section and None not in section and "model.mlp.x" not in section
    for name in ("model.zz", "zz", "seed.zz"):
        for look in (section.__getitem__, lambda name: section.replaced(name, 1)):
            with pytest.raises(KeyError, match=f"^'{name}'$"):
                look(name)
