from types import SimpleNamespace

import pytest

from simcse_jax.config.fields import default_config
from simcse_jax.errors import UserError
from simcse_jax.training.sweeps import together
from simcse_jax.training.sweeps.together import group_key


def changed(**fields):
    config = default_config()
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
    return group_key(config)


def test_what_can_be_trained_together():
    same = changed(seed=7, model__dropout=0.5, objective__info_nce__temperature=1.0, train__learning_rate=1e-5)
    assert same == changed() is not None and changed(objective__off_dropout__weight=1.0) != changed()
    assert changed(objective__off_dropout__weight=1.0) == changed(objective__off_dropout__weight=0.3)
    assert changed(train__epsilon=1e-6, train__warmup=0.1) == changed()
    assert changed(views__positive_dropout=0.0) == changed(views__positive_dropout=0.3) != changed()
    assert changed(model__attention_dropout=0.1) == changed(model__attention_dropout=0.3) != changed()
    assert len({changed(model__attention_dropout=rate) for rate in (-1.0, 0.0, 0.1)}) == 3  # 0 draws no masks
    lora = {"model__lora__rank": 4}
    assert changed(**lora, model__lora__dropout=0.1) == changed(**lora, model__lora__dropout=0.3) != changed(**lora)
    assert len({changed(**lora), changed(model__lora__rank=8), changed(**lora, model__lora__alpha=1.0), changed()}) == 4
    sizes = {"matryoshka__dimensions": ("64", "32")}
    assert changed(**sizes) == changed(**sizes, matryoshka__weights=("1", "0.5")) != changed()
    assert changed(**sizes) != changed(matryoshka__dimensions=("64",))
    assert len({changed(), changed(teacher__model="a"), changed(data__score_range=("0", "5"))}) == 3
    steps = {"train__schedule": "steps", "train__milestones": "5:0.5,9:0.1"}
    assert changed(**steps) == changed(**steps | {"train__milestones": "1:0.8,2:0.7"}) != changed()
    assert changed(**steps) != changed(**steps | {"train__milestones": "1:0.8"})
    for name, value in (
        ("model__pooler", "avg"), ("train__optimizer", "rmsprop"), ("train__bias_correction", False),
        ("train__mu_dtype", "bfloat16"), ("objective__info_nce__symmetric", True), ("train__batch_size", 8),
    ):  # fmt: skip
        assert changed(**{name: value}) != changed()
    for name, value in (
        ("train__epochs", 0), ("data__subsample", 9), ("data__held_out", 9), ("data__positives", "next_3_sentences"),
        ("data__positives", "spans"), ("data__augment__name", "crop"), ("checkpoint__keep_every", 200),
        ("analysis__every", 200), ("eval__encoder", "better"),
    ):  # fmt: skip
        assert changed(**{name: value}) is None
    assert changed(data__batching="one_source", data__train="a,b") is None
    assert changed(data__batching="one_source", data__train="a") is not None


def test_the_checkpoints_of_a_group_are_kept_only_while_all_of_its_runs_are_there(tmp_path, monkeypatch):
    folders, group = [tmp_path / "a" / "seed1", tmp_path / "b" / "seed1"], tmp_path / "together-1"
    seen, done = [], SimpleNamespace(name="a (seed1)", problem="step 3: the loss is nan")
    monkeypatch.setattr(together, "train_all", lambda *args: seen.append(args[2].exists()) or [done])
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "run.json").write_text("{}")
        (group / "checkpoints").mkdir(parents=True)
        problems = together.train_together([default_config()] * 2, folders, group)
        assert problems == ["a (seed1): step 3: the loss is nan"] and not group.exists()
    assert seen == [False, True]
    with pytest.raises(UserError, match=r"eval\.against_start: runs trained together keep no start"):
        config = default_config()
        config.eval.against_start = True
        together.train_together([config] * 2, folders, group)
