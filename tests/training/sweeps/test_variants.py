import pytest

from simcse_jax.config.fields import default_config, flatten
from simcse_jax.config.flags import parse
from simcse_jax.errors import UserError
from simcse_jax.training.sweeps.variants import (
    Variant,
    as_recipe,
    load_variants,
    read_seeds,
    read_sweep,
    sweep_defaults,
)

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


def test_variants_lie_over_the_base():
    config = base()
    config.train.batch_size = 16
    runs = read_sweep(config, VARIANTS)
    assert [variant for variant, _ in runs] == list(VARIANTS)
    flat = [flatten(resolved) for _, resolved in runs]
    expected = flatten(default_config()) | {"train.batch_size": 16}
    assert flat[0] == expected
    assert flat[1] == expected | {TEMPERATURE: 0.01}
    assert flat[2] == expected | {TEMPERATURE: 1.0, "model.pooler": "avg", "model.mlp": "none"}
    assert isinstance(flat[2][TEMPERATURE], float)
    assert "sweep" in config
    assert config.objective.info_nce.temperature == 0.05  # the base is left alone


def test_a_file_is_read_as_the_command_reads_it(tmp_path):
    file = tmp_path / "sweep.py"
    file.write_text(FILE)

    def read(path, *args):
        config, _ = parse([f"--config={path}", "--workdir=w", *args])
        return [(v.name, c.model.dropout, c.train.epochs) for v, c in read_sweep(config, load_variants(path))]

    assert read(f"{file}") == [("a", 0.1, 2), ("b=1 c", 0.3, 1)]
    assert read(f"{file}:0.2", "--config.train.epochs=7") == [("a", 0.2, 2), ("b=1 c", 0.3, 7)]
    assert read(f"{file}", "--config.sweep.only=a") == [("a", 0.1, 2)]
    assert len(read(f"{file}", "--config.sweep.only= b=1 c ,a")) == 2
    assert len(read(f"{file}", "--config.sweep.only=")) == 2
    only_b = read(f"{file}", "--config.sweep.only=b=1 c", "--config.sweep.baseline=b=1 c")
    assert only_b == [("b=1 c", 0.3, 1)]


def test_seeds_of_the_command_line_are_integers(tmp_path):
    file = tmp_path / "sweep.py"
    file.write_text(FILE)

    def read(*args):
        return read_seeds(parse([f"--config={file}", "--workdir=w", *args])[0].sweep)

    assert read() == (42, 43, 44)
    assert read("--config.sweep.seeds=1,2") == (1, 2)
    assert read("--config.sweep.seeds=7") == (7,)
    assert read_seeds(base(seeds=(0, 2**32 - 1)).sweep) == (0, 2**32 - 1)


MISTAKES = [
    ({"seeds": ()}, VARIANTS, "config.sweep.seeds: there are none"),
    ({"seeds": ("1", "2", "1")}, VARIANTS, "config.sweep.seeds: 1 is given twice"),
    ({"seeds": ("1", "01")}, VARIANTS, "config.sweep.seeds: 1 is given twice"),
    ({"seeds": ("1.5",)}, VARIANTS, "config.sweep.seeds: '1.5' is not an integer"),
    ({"seeds": (1.0,)}, VARIANTS, "config.sweep.seeds: 1.0 is not an integer"),
    ({"seeds": (-1,)}, VARIANTS, "config.sweep.seeds: -1 must be from 0"),
    ({"seeds": (2**32,)}, VARIANTS, "must be from 0 to"),
    ({"metrics": ("stsb_dv",)}, VARIANTS, "no metric 'stsb_dv'; the nearest one is stsb_dev"),
    ({"metrics": ()}, VARIANTS, "config.sweep.metrics: there are none"),
    ({"metrics": ("stsb_dev", "sts_avg", "stsb_dev")}, VARIANTS, "config.sweep.metrics: stsb_dev is given twice"),
    ({"only": "default,col"}, VARIANTS, "config.sweep.only: no variant 'col'; the nearest one is 'cold 0.01'"),
    ({"only": "cold 0.01"}, VARIANTS, "leaves out 'default', the baseline of 'cold 0.01'"),
    ({"only": "default,hot"}, VARIANTS, "leaves out 'cold 0.01', the baseline of 'hot'; add it"),
    (
        {"baseline": "defalt"},
        VARIANTS,
        "config.sweep.baseline: 'defalt' is not a variant; the nearest one is 'default'",
    ),
    ({}, [*VARIANTS, Variant("x", {}, baseline="colld")], "variant 'x': its baseline 'colld' is not a variant; the"),
    ({}, [*VARIANTS, Variant("hot", {})], "variant 'hot': two variants have that name"),
    ({}, [*VARIANTS, Variant("a/b", {})], "variant 'a/b': a name must be a valid folder name"),
    ({}, [*VARIANTS, Variant("a, b", {})], "variant 'a, b': a name must be a valid folder name"),
    ({}, [*VARIANTS, Variant(" ", {})], "a name must be a valid folder name"),
    ({}, [*VARIANTS, Variant("..", {})], "a name must be a valid folder name"),
    ({}, [], "the sweep has no variants"),
    (
        {},
        [*VARIANTS, Variant("x", {}, {"sts_av": 1.0})],
        "'x': the paper's values: no metric 'sts_av'; the nearest one is",
    ),
    ({}, [*VARIANTS, Variant("x", {"seed": 1}, {"sts_avg": 1.0}, quoted=True)], "'x': is quoted: it has the paper's"),
    ({}, [*VARIANTS, Variant("x", {}, {"sts_avg": 1.0}, "hot", quoted=True)], "'x': is quoted: it has the paper's"),
    (
        {},
        [*VARIANTS, Variant("x", {}, chosen_on=("stsb_de",))],
        "'x': what it was chosen on: no metric 'stsb_de'; the nearest one is",
    ),
    ({"report_once": ("STS12",)}, VARIANTS, "report_once: STS12 is not a column; add it to config.sweep.metrics"),
    ({"report_once": ("stsb_dev",)}, VARIANTS, "report_once: stsb_dev is of a development set"),
    (
        {"report_once": ("sts_avg",)},
        [*VARIANTS, Variant("x", {}, chosen_on=("STSBenchmark",))],
        "report_once: sts_avg has been seen: variant 'x' was chosen on it",
    ),
    (
        {"metrics": ("before", "after"), "report_once": ("after",)},
        [*VARIANTS, Variant("x", {}, chosen_on=("retrieval_mrr@10",))],
        "report_once: after has been seen: variant 'x' was chosen on it",
    ),
    ({}, [*VARIANTS, Variant("x", {}, quoted=True)], "'x': is quoted: it has the paper's values alone"),
    (
        {"baseline": "x"},
        [*VARIANTS, Variant("x", {}, {"sts_avg": 1.0}, quoted=True)],
        "config.sweep.baseline: 'x' is quoted from the paper, so no run can be compared with it",
    ),
    (
        {},
        [*VARIANTS, Variant("x", {"model.poler": "avg"})],
        "'x': config.model.poler: no such field; the nearest one is config.model.pooler",
    ),
    ({}, [*VARIANTS, Variant("x", {"model": 1})], "'x': config.model: no such field;"),
    ({}, [*VARIANTS, Variant("x", {"sweep.seeds": (1,)})], "'x': config.sweep.seeds: no such field;"),
    ({}, [*VARIANTS, Variant("x", {"seed": 1})], "'x': config.seed is set by config.sweep.seeds"),
    ({}, [*VARIANTS, Variant("x", {"train.epochs": 1.0})], "'x': config.train.epochs=1.0: must be of type int"),
    ({}, [*VARIANTS, Variant("x", {TEMPERATURE: True})], f"'x': config.{TEMPERATURE}=True: must be of type float"),
    ({}, [*VARIANTS, Variant("x", {TEMPERATURE: "1"})], f"'x': config.{TEMPERATURE}='1': must be of type float"),
    ({}, [*VARIANTS, Variant("x", {TEMPERATURE: -1.0})], f"'x': config.{TEMPERATURE}=-1.0: must be"),
]


@pytest.mark.parametrize("sweep, variants, message", MISTAKES, ids=[message[-40:] for *_, message in MISTAKES])
def test_mistakes_are_reported_in_a_line(sweep, variants, message):
    with pytest.raises(UserError) as caught:
        read_sweep(base(**sweep), variants)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_seed_of_all_runs_is_refused():
    config = base()
    config.seed = 7
    with pytest.raises(UserError, match=r"config\.seed=7: a sweep's runs have the seeds of config\.sweep\.seeds"):
        read_sweep(config, VARIANTS)


def test_a_test_set_that_no_choice_has_seen_may_be_held_out():
    config = base(metrics=("stsb_dev", "STS15", "sts_avg"), report_once=("STS15",))
    assert len(read_sweep(config, [*VARIANTS, Variant("x", {}, chosen_on=("stsb_dev", "STSBenchmark"))])) == 4


def test_variants_that_are_not_run_may_miss_their_baseline():
    assert len(read_sweep(base(only="default,cold 0.01"), VARIANTS)) == 2


@pytest.mark.parametrize(
    "content, message",
    [
        ("def get_config():\n    pass\n", "is not a sweep: it has no get_variants()"),
        ("def get_variants():\n    return 1 / 0\n", "ZeroDivisionError: division by zero"),
        ("def get_variants(:\n", "SyntaxError"),
        ("def get_variants():\n    open('none')\n", "FileNotFoundError"),
        (None, "no such config file"),
    ],
)
def test_a_file_that_is_no_sweep_is_reported(tmp_path, content, message):
    file = tmp_path / "x.py"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UserError, match=r"x\.py") as caught:
        load_variants(str(file))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_config_without_a_sweep_is_reported():
    with pytest.raises(UserError, match=r"config\.sweep is missing"):
        read_sweep(default_config(), VARIANTS)


@pytest.mark.parametrize(
    "code",
    [
        "return (1, 2)",
        "return None",
        "raise SystemExit(0)",
        "return [Variant(3, None)]",
        "return [Variant('a', {3: 4})]",
        "return [Variant('a', {}, {'stsb_dev': 'x'})]",
        "return [Variant('a', {}, {'stsb_dev': 1.0}, '', 'yes')]",
        "return [Variant('a', {}, chosen_on='stsb_dev')]",
    ],
)
def test_what_is_no_list_of_variants_is_refused(code, tmp_path):
    file = tmp_path / "sweep.py"
    file.write_text(f"from simcse_jax.training.sweeps.variants import Variant\ndef get_variants():\n    {code}\n")
    with pytest.raises(UserError, match=r"--config .*sweep\.py: "):
        load_variants(str(file))


def test_a_row_of_another_recipe_is_scored_as_its_table_is():
    recipe, base = default_config(), default_config()
    recipe.model.pooler, base.train.max_steps = "avg", 7
    base.eval.transfer, base.eval.retrieval.data = True, "folder"
    recipe.eval.development = "sickr"
    trained = {"model.pooler": "avg", "train.max_steps": 0}
    assert as_recipe(recipe, base) == trained | {"eval.development": "sickr"}
    base.eval.development = "retrieval"
    assert as_recipe(recipe, base) == trained
