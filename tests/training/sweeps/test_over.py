import pytest

from simcse_jax.config.fields import default_config
from simcse_jax.config.flags import split_option
from simcse_jax.errors import UserError
from simcse_jax.training.sweeps.over import OPTION, make_sweep, name_columns, rows_over, split_options
from simcse_jax.training.sweeps.variants import read_sweep


def test_each_value_of_a_field_meets_each_one_of_the_others_and_rows_there_are_or_of_one_label_are_refused():
    given = ["--config=x", "--over", "train.batch_size=8,16", "--over=model.init_from=a/b", "--workdir=w"]
    over, rest = split_option(given, OPTION)
    assert rest == ["--config=x", "--workdir=w"]
    config = default_config()
    make_sweep(config, split_options(over))
    name_columns(config)
    rows = read_sweep(config, rows_over(split_options(over), config))
    assert [row.name for row, _ in rows] == ["batch_size=8 init_from=a-b", "batch_size=16 init_from=a-b"]
    assert [(each.train.batch_size, each.model.init_from) for _, each in rows] == [(8, "a/b"), (16, "a/b")]
    assert config.sweep.baseline == rows[0][0].name and config.sweep.metrics == ("stsb_dev",)
    with pytest.raises(UserError, match="--over: this config has rows of its own"):
        make_sweep(config, split_options(over))


def test_a_value_has_its_field_s_type_and_fields_of_one_name_their_whole_names():
    over = ["train.unpad=True,false", "objective.info_nce.weight=1", "objective.mlm.weight=.1"]
    rows = rows_over(split_options(over), default_config())
    assert [row.fields["train.unpad"] for row in rows] == [True, False]
    assert rows[0].fields["objective.info_nce.weight"] == 1.0
    assert rows[1].name == "train.unpad=False objective.info_nce.weight=1.0 objective.mlm.weight=0.1"


@pytest.mark.parametrize(
    ("over", "message"),
    [
        *(([over], "give a field and its values") for over in ("train.batch_size", "train.batch_size=")),
        (["train.batch=8"], "no such field; the nearest one is train.batch_size"),
        (["weights=1"], "could be data.weights, matryoshka.weights"), (["eval.tasks=STS12"], "is a list"),
        (["train.batch_size=8,x"], "'x' is not of its type, int"), (["train.batch_size=8,"], "'' is not of its type"),
        (["train.unpad=yes"], "'yes' is not of its type, bool"),
    ],
)  # fmt: skip
def test_a_mistake_names_the_field(over, message):
    with pytest.raises(UserError, match=message) as caught:
        rows_over(split_options(over), default_config())
    assert str(caught.value).startswith("--over ")


def test_the_columns_follow_from_the_whole_config_unless_they_are_given():
    for fields, columns in (
        ({}, ("stsb_dev",)), ({"eval.against_start": True}, ("before", "after")),
        ({"eval.data": "", "data.held_out": 100}, ("held_out_dev",)),
        ({"eval.development": "retrieval"}, ("retrieval_dev",)),
        ({"eval.against_start": True, "sweep.metrics": ("steps",)}, ("steps",)),
    ):  # fmt: skip
        config = default_config()
        make_sweep(config, {"seed": [1]})
        config.update_from_flattened_dict(fields)
        name_columns(config)
        assert config.sweep.metrics == columns
