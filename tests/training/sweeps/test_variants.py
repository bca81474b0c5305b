import pytest

from simcse_jax.config.fields import default_config, flatten
from simcse_jax.config.flags import parse
from simcse_jax.errors import UserError
from simcse_jax.training.sweeps import variants as rows
from simcse_jax.training.sweeps.variants import Variant, load_variants, read_sweep, sweep_defaults

TEMPERATURE = "objective.info_nce.temperature"
VARIANTS = (
    Variant("default", {}, {"stsb_dev": 82.5}),
    Variant("cold 0.01", {TEMPERATURE: 0.01}),
    Variant("hot", {TEMPERATURE: 1, "model.pooler": "avg", "model.mlp": "none"}, baseline="cold 0.01"),
)
FILE = """
from simcse_jax.config import default_config
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults


def get_config(rate="0.1"):
    config = default_config()
    config.sweep = sweep_defaults("T", "S", ("stsb_dev",), baseline="a")
    config.model.dropout = float(rate)
    return config


def get_variants(rate="0.1"):
    return [Variant("a", {"train.epochs": 2}), Variant("b, c" if rate == "bad" else "b=1 c", {"model.dropout": 0.3})]
"""


def base(**sweep):
    config = default_config()
    config.sweep = sweep_defaults("title", "source", ("stsb_dev", "sts_avg"), "default")
    config.sweep.update(sweep)
    return config


def test_variants_lie_over_the_base_and_a_row_of_another_recipe_is_scored_as_its_table_is():
    config = base()
    config.train.batch_size = 16
    runs = read_sweep(config, VARIANTS)
    assert [variant for variant, _ in runs] == list(VARIANTS)
    flat = [flatten(resolved) for _, resolved in runs]
    expected, hot = flatten(default_config()) | {"train.batch_size": 16}, {"model.pooler": "avg", "model.mlp": "none"}
    assert flat == [expected, expected | {TEMPERATURE: 0.01}, expected | hot | {TEMPERATURE: 1.0}]
    assert isinstance(flat[2][TEMPERATURE], float)
    assert "sweep" in config and config.objective.info_nce.temperature == 0.05  # the base is left alone
    recipe, other = default_config(), default_config()
    recipe.model.pooler, other.train.max_steps = "avg", 7
    other.eval.transfer, other.eval.retrieval.data, recipe.eval.development = True, "folder", "sickr"
    trained = {"model.pooler": "avg", "train.max_steps": 0}
    assert rows.as_recipe(recipe, other) == trained | {"eval.development": "sickr"}
    other.eval.development = "retrieval"
    assert rows.as_recipe(recipe, other) == trained


def x(fields=(), *rest, **more):
    return Variant("x", dict(fields), *rest, **more)


SCORED = {"sts_avg": 1.0}
WRONG_SWEEPS = [
    ({"seeds": ()}, "sweep.seeds: there are none"), ({"seeds": ("1", "01")}, "sweep.seeds: 1 is given twice"),
    ({"seeds": ("1.5",)}, "seeds: '1.5' is not an integer"), ({"seeds": (1.0,)}, "seeds: 1.0 is not an integer"),
    ({"seeds": (-1,)}, "sweep.seeds: -1 must be from 0"), ({"seeds": (2**32,)}, "must be from 0 to"),
    ({"metrics": ()}, "metrics: there are none"), ({"metrics": ["stsb_dev"] * 2}, "metrics: stsb_dev is given twice"),
    ({"metrics": ("stsb_dv",)}, "no metric 'stsb_dv'; the nearest one is stsb_dev"),
    ({"only": "default,col"}, "only: no variant 'col'; the nearest one is 'cold 0.01'"),
    ({"only": "cold 0.01"}, "'cold 0.01': its baseline 'default' is none of"),
    ({"only": "default,hot"}, "'hot': its baseline 'cold 0.01' is none of"),
    ({"baseline": "defalt"}, "'defalt' is none of the rows that are run; the nearest is 'default'"),
    ({"report_once": ("STS12",)}, "STS12 is not a column"), ({"report_once": ("stsb_dev",)}, "of a development set"),
]  # fmt: skip
WRONG_ROWS = [
    (Variant("hot", {}), "two variants have that name"), (x(baseline="colld"), "its baseline 'colld' is none"),
    (x({}, {"sts_av": 1.0}), "'x': the paper's values: no metric 'sts_av'"),
    (x(chosen_on=("stsb_de",)), "'x': what it was chosen on: no metric 'stsb_de'"),
    (x({"model.poler": "avg"}), "'x': config.model.poler: no such field; the nearest one is config.model.po"),
    (x({"model": 1}), "config.model: no such field;"), (x({"sweep.seeds": (1,)}), "config.sweep.seeds: no such field;"),
    (x({"seed": 1}), "'x': config.seed is set by"), (x({"train.epochs": 1.0}), "train.epochs=1.0: must be of type int"),
    *((x({TEMPERATURE: value}), f"{TEMPERATURE}={value!r}: must be of type float") for value in (True, "1")),
    (x({TEMPERATURE: -1.0}), f"'x': config.{TEMPERATURE}=-1.0: must be"),
]  # fmt: skip
MISTAKES = [(fields, VARIANTS, message) for fields, message in WRONG_SWEEPS]
MISTAKES += [({}, (*VARIANTS, row), message) for row, message in WRONG_ROWS]
MISTAKES += [
    ({"baseline": "x"}, (*VARIANTS, x({}, SCORED, quoted=True)), "its baseline 'x' is none of the rows that are run"),
    ({"report_once": ("sts_avg",)}, (*VARIANTS, x(chosen_on=("STSBenchmark",))), "sts_avg has been seen: variant 'x'"),
]


@pytest.mark.parametrize("sweep, variants, message", MISTAKES)
def test_mistakes_are_reported_in_a_line(sweep, variants, message):
    with pytest.raises(UserError) as caught:
        read_sweep(base(**sweep), variants)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_test_set_that_no_choice_has_seen_is_accepted_and_a_seed_or_no_sweep_refused():
    config = base(metrics=("stsb_dev", "STS15", "sts_avg"), report_once=("STS15",))
    assert len(read_sweep(config, (*VARIANTS, x(chosen_on=("stsb_dev", "STSBenchmark"))))) == 4
    assert len(read_sweep(base(only="default,cold 0.01"), VARIANTS)) == 2  # the third one's baseline is missing
    config = base()
    config.seed = 7
    with pytest.raises(UserError, match=r"config\.seed=7: a sweep's runs have the seeds of config\.sweep\.seeds"):
        read_sweep(config, VARIANTS)
    with pytest.raises(UserError, match=r"config\.sweep is missing"):
        read_sweep(default_config(), VARIANTS)


def test_a_file_and_its_seeds_are_read_as_the_command_reads_them_and_what_is_no_sweep_is_reported(tmp_path):
    file = tmp_path / "sweep.py"
    file.write_text(FILE)

    def read(path, *args):
        config, _ = parse([f"--config={path}", "--workdir=w", *args])
        return [(v.name, c.model.dropout, c.train.epochs) for v, c in read_sweep(config, load_variants(path))]

    assert read(f"{file}") == [("a", 0.1, 2), ("b=1 c", 0.3, 1)]
    assert read(f"{file}:0.2", "--config.train.epochs=7") == [("a", 0.2, 2), ("b=1 c", 0.3, 7)]
    assert read(f"{file}", "--config.sweep.only=a") == [("a", 0.1, 2)]
    assert len(read(f"{file}", "--config.sweep.only= b=1 c ,a")) == len(read(f"{file}", "--config.sweep.only=")) == 2
    only_b = read(f"{file}", "--config.sweep.only=b=1 c", "--config.sweep.baseline=b=1 c")
    assert only_b == [("b=1 c", 0.3, 1)]

    for args, seeds in (((), (42, 43, 44)), (["=1,2"], (1, 2)), (["=7"], (7,))):
        own = parse([f"--config={file}", "--workdir=w", *(f"--config.sweep.seeds{each}" for each in args)])[0]
        assert rows.read_seeds(own.sweep) == seeds
    assert rows.read_seeds(base(seeds=(0, 2**32 - 1)).sweep) == (0, 2**32 - 1)
    file = tmp_path / "x.py"
    start = "from simcse_jax.training.sweeps.variants import Variant\ndef get_variants():\n    "
    for content, message in (
        (None, "no such config file"), ("def get_config():\n    pass\n", "is not a sweep: it has no get_variants()"),
        (f"{start}return 1 / 0\n", "ZeroDivisionError: division by zero"),
        (f"{start}raise SystemExit(0)\n", "SystemExit"),
    ):  # fmt: skip
        if content is not None:
            file.write_text(content)
        with pytest.raises(UserError, match=r"--config .*x\.py") as caught:
            load_variants(str(file))
        assert message in str(caught.value) and "\n" not in str(caught.value)
