import pytest

from simcse_jax.config.fields import default_config
from simcse_jax.config.flags import split_option
from simcse_jax.errors import UserError
from simcse_jax.training.sweeps.over import OPTION, make_sweep, rows_over
from simcse_jax.training.sweeps.variants import read_sweep


def test_each_value_of_a_field_meets_each_one_of_the_others():
    over, rest = split_option(
        ["--config=x", "--over", "train.batch_size=8,16", "--over=model.init_from=a/b", "--workdir=w"], OPTION
    )
    assert rest == ["--config=x", "--workdir=w"]
    config = default_config()
    make_sweep(config, over)
    rows = read_sweep(config, rows_over(over, config))
    assert [row.name for row, _ in rows] == ["batch_size=8 init_from=a-b", "batch_size=16 init_from=a-b"]
    assert [(each.train.batch_size, each.model.init_from) for _, each in rows] == [(8, "a/b"), (16, "a/b")]
    assert config.sweep.baseline == rows[0][0].name and config.sweep.metrics == ("stsb_dev",)


def test_a_value_may_have_a_label(tmp_path):
    (tmp_path / "a=b").mkdir()
    over = [
        "model.init_from=ann/base=published," + str(tmp_path / "a=b"),
        "objective.info_nce.temperature=0.02 = cold,1",
    ]
    rows = rows_over(over, default_config())
    folder = f"init_from={tmp_path}/a=b".replace("/", "-")
    assert [row.name for row in rows] == [
        *("published cold", "published temperature=1.0"),
        *(f"{folder} cold", f"{folder} temperature=1.0"),
    ]
    assert rows[0].fields == {"model.init_from": "ann/base", "objective.info_nce.temperature": 0.02}
    assert rows[3].fields["model.init_from"] == str(tmp_path / "a=b")


def test_values_have_their_fields_types_and_fields_of_one_name_their_whole_names():
    rows = rows_over(
        ["train.unpad=True,false", "objective.info_nce.weight=1", "objective.mlm.weight=.1"], default_config()
    )
    assert [row.fields["train.unpad"] for row in rows] == [True, False]
    assert rows[0].fields["objective.info_nce.weight"] == 1.0
    assert rows[1].name == "train.unpad=False objective.info_nce.weight=1.0 objective.mlm.weight=0.1"


@pytest.mark.parametrize(
    ("over", "told"),
    [
        (["train.batch_size"], "give a field and its values"),
        (["train.batch_size="], "give a field and its values"),
        (["train.batch=8"], "no such field; the nearest one is train.batch_size"),
        (["temprature=0.1"], "no such field; the nearest one is objective.info_nce.temperature"),
        (["train.batch_size=8,x"], "'x' is not of its type, int"),
        (["train.batch_size=8,"], "'' is not of its type, int"),
        (["train.unpad=yes"], "'yes' is not of its type, bool"),
        (["eval.tasks=STS12"], "is a list"),
        (["seed=1", "seed=2"], "is given twice"),
    ],
)
def test_a_mistake_names_the_field(over, told):
    with pytest.raises(UserError, match=told) as caught:
        rows_over(over, default_config())
    assert str(caught.value).startswith("--over ")


def test_what_is_no_label_is_refused():
    with pytest.raises(UserError, match=r"^--over seed: 1=: the label is empty; give NAME=LABEL"):
        rows_over(["seed=1=,2"], default_config())
    config = default_config()
    over = ["train.batch_size=8=small,16=small"]
    make_sweep(config, over)
    with pytest.raises(UserError, match="variant 'small': two variants have that name"):
        read_sweep(config, rows_over(over, config))
    for label in ("a/b", ".."):
        with pytest.raises(UserError, match="a name must be a valid folder name"):
            read_sweep(config, rows_over([f"train.batch_size=8={label}"], config))
