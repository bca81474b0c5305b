import dataclasses
import re

from support import CONFIGS, ROOT

from simcse_jax.huggingface.name_tables import NAMES
from simcse_jax.models.config import BOUNDS, EncoderConfig
from simcse_jax.models.model_types import MODEL_TYPES


def test_every_model_type_has_its_names_and_a_tiny_model():
    assert list(MODEL_TYPES) == list(NAMES) == list(CONFIGS)


def test_parts_are_fields_of_the_config_and_sizes_have_bounds():
    fields = {field.name for field in dataclasses.fields(EncoderConfig)}
    for kind in MODEL_TYPES.values():
        assert kind.parts.keys() <= fields and set(kind.sizes) <= BOUNDS.keys()


def test_the_table_of_parts_in_the_documentation_has_every_model_type():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.split("| model type |", 1)[1].split("\n\n", 1)[0]
    assert set(re.findall(r"`([a-z_-]+)`", " ".join(re.findall(r"^\| ([^|]+) \|", table, re.M)))) == set(MODEL_TYPES)
