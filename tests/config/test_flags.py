import re
import warnings

import pytest
from support import ROOT

from simcse_jax.config import flags
from simcse_jax.config.checks import validate
from simcse_jax.config.fields import flatten
from simcse_jax.errors import UserError

CONFIG = f"--config={ROOT}/configs/unsup_bert.py"


def parse(*args):
    config, workdir = flags.parse([CONFIG, "--workdir=w", *args])
    validate(config)
    return config, workdir


def test_fields_are_overridden_with_their_types():
    config, workdir = parse(
        "--config.train.learning_rate=1", "--config.eval.tasks=STS12,STSBenchmark", "--config.seed", "7"
    )
    assert workdir == "w"
    assert (config.train.learning_rate, config.seed, config.eval.tasks) == (1.0, 7, ("STS12", "STSBenchmark"))
    assert isinstance(config.train.learning_rate, float)
    assert parse("--config.eval.data=")[0].eval.data == ""


def test_what_other_packages_call_fields_is_understood_or_answered_with_what_was_meant():
    config, _ = parse("--data", "mine.txt", "--model=a/b", "--config.model.pooler=mean", "--config.model.mlp=none")
    assert (config.data.train, config.model.init_from, config.model.pooler) == ("mine.txt", "a/b", "avg")
    config, _ = flags.parse(["--config=unsup-bert:large", "--workdir=w"])
    assert config.model.init_from == "bert-large-uncased"
    for given, meant in (
        ("train.lr", "train.learning_rate"),
        ("temperature", "objective.info_nce.temperature"),
        ("train.warmup_steps", "train.warmup"),
        ("train.epoch", "train.epochs"),
        ("gist.temperature", "objective.gist.temperature"),
        ("augment.name", "data.augment.name"),
    ):
        with pytest.raises(UserError, match=f"no such field; the nearest one is --config.{meant}$"):
            parse(f"--config.{given}=1")
    assert all(field in flatten(config) for field in flags.MEANT)


@pytest.mark.parametrize(
    ("recipe", "given", "meant"),
    [
        ("unsup_bert", "temprature", "objective.info_nce.temperature"),
        ("unsup_bert", "weigth", "objective.info_nce.weight"),
        ("scd", "temprature", "objective.self_contrastive.temperature"),
        ("simcse_plus_plus", "temprature", "objective.off_dropout.temperature"),
        ("unsup_bert", "batchsize", "train.batch_size"),
        ("unsup_bert", "gist.temprature", "objective.gist.temperature"),
    ],
)
def test_of_fields_of_the_same_name_that_of_a_trained_objective_is_meant(recipe, given, meant):
    with pytest.raises(UserError, match=f"nearest one is --config.{meant}$"):
        flags.parse([f"--config={recipe}", f"--config.{given}=1", "--workdir=w"])


@pytest.mark.parametrize(
    ("recipe", "name", "meant"),
    [
        ("unsup_bert", "temperature", "objective.info_nce.temperature"),
        ("graded", "temperature", "objective.cosent.temperature"),
        ("graded", "tau", "objective.cosent.temperature"),
        ("graded", "weight", "objective.cosent.weight"),
        ("simcse_plus_plus", "temp", ""),
        ("scd", "temperature", "objective.self_contrastive.temperature"),
        ("unsup_bert", "gist.tau", "objective.gist.temperature"),
        ("unsup_bert", "dropout", ""),
        ("unsup_bert", "data", "data.train"),
        ("unsup_bert", "lr", "train.learning_rate"),
        ("unsup_bert", "train.lr", "train.learning_rate"),
        ("unsup_bert", "temprature", ""),
    ],
)
def test_a_short_name_means_a_field_that_counts(recipe, name, meant):
    assert flags.field_meant(name, flags.load_config(recipe).fields) == meant


def test_where_no_objective_with_such_a_field_is_trained_the_whole_name_is_asked_for():
    known = flags.load_config("graded").fields | {"objective.cosent.weight": 0.0}
    for name in ("temperature", "tau"):
        assert flags.field_meant(name, known) == ""
        told = flags.no_such_field(name, known, "config.")
        assert told.startswith("could be config.objective.angle.temperature, config.objective.cosent.temperature, ")
        assert told.endswith("; give the whole name of one of them")
    known = flags.load_config("simcse_plus_plus").fields
    both = "objective.dimension_wise.temperature, objective.off_dropout.temperature"
    assert flags.no_such_field("temperature", known).startswith(f"could be {both};")
    assert flags.field_meant("tau", known | {"objective.info_nce.weight": 1.0}) == "objective.info_nce.temperature"


def test_of_a_field_that_is_given_twice_the_last_value_counts_in_lists_too():
    for again in (("--config.eval.tasks=STS13,STS14",), ("-config.eval.tasks", "STS13,STS14")):
        config, _ = parse("--config.eval.tasks=STS12", "--config.seed=1", *again, "--config.seed=2")
        assert (config.eval.tasks, config.seed) == (("STS13", "STS14"), 2)
    config, _ = parse(
        "--config.eval.tasks=STS12", "--noconfig.model.dual_encoder", "--config.eval.extra=stsb_dev", "--"
    )
    assert (config.eval.tasks, config.eval.extra) == (("STS12",), ("stsb_dev",))
    assert parse("--config.eval.tasks=STS12", "--config.eval.tasks=")[0].eval.tasks == ()
    with pytest.raises(UserError, match=r"eval\.tasks"):
        parse("--config.eval.tasks=STS12", "--config.eval.tasks")


MISTAKES = {
    "--config.analysis.evry=9": "nearest one is --config.analysis.every",
    "--config.seeed=1": "--config.seeed: no such field; the nearest one is --config.seed",
    "--config.model.pooller=cls": "nearest one is --config.model.pooler",
    "--config.modl.pooler=cls": "nearest one is --config.model.pooler",
    "--config.objective.infonce.weight=1": "nearest one is --config.objective.info_nce.weight",
    "--config.seed=abc": "--config.seed=abc",
    "--config.train.batch_size=1.5": "--config.train.batch_size=1.5",
    "--config.train.learning_rate=fast": "--config.train.learning_rate=fast",
    "--wrkdir=x": "wrkdir",
    "extra": "unknown argument 'extra'",
    "--config.objective.off_droput.weight=1": "nearest one is --config.objective.off_dropout.weight",
    "--config.seed[0]=1": "no such field",
}


@pytest.mark.parametrize("argument", MISTAKES)
def test_mistakes_are_reported_in_one_line(argument):
    with pytest.raises(UserError, match=re.escape(MISTAKES[argument])) as caught:
        parse(argument)
    assert "\n" not in str(caught.value)


def test_mistakes_with_the_config_file_itself(tmp_path):
    (tmp_path / "broken.py").write_text("def get_config(:\n")
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "nothing.py").write_text("def get_config():\n    pass\n")
    (tmp_path / "old.py").write_text(
        "from simcse_jax.config import default_config\n"
        "def get_config():\n    c = default_config()\n    c.sede = 1\n    return c\n"
    )
    (tmp_path / "none.py").write_text(
        "from simcse_jax.config import default_config\n"
        "def get_config():\n    c = default_config()\n"
        "    c.train = {**c.train.to_dict(), 'epochs': None}\n    return c\n"
    )
    cases = {
        (): "--config FILE is missing",
        ("--config=none.py",): "none.py: no such config file",
        ("--config", "none.py"): "none.py: no such config file",
        (f"{CONFIG}:huge",): "no variant 'huge'.*base, large",
        (f"--config={ROOT}/configs/quickstart.py:large",): "quickstart.py",
        (f"--config={tmp_path}/broken.py",): r"^--config .*broken\.py: SyntaxError: .*\(broken\.py, line 1\)$",
        (f"--config={tmp_path}/empty.py",): r"empty\.py: has no get_config\(\)$",
        (f"--config={tmp_path}/nothing.py",): "must return a ConfigDict",
        (f"--config={tmp_path}/old.py",): "config.sede: no such field; the nearest one is config.seed",
        ("--config.seed=1",): "--config FILE is missing",
        (f"--config={tmp_path}/none.py",): "config.train.epochs=None: must be of type int",
    }
    for args, message in cases.items():
        with pytest.raises(UserError, match=message):
            config, _ = flags.parse([*args, "--workdir=w"])
            validate(config)
    with pytest.raises(UserError, match="--workdir DIR is missing"):
        flags.parse([CONFIG])


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("def get_config():\n    raise SystemExit(0)", "SystemExit: 0"),
        ("def get_config():\n    return get_config()", "RecursionError"),
        ("def get_config():\n    c = ConfigDict()\n    c.me = c\n    return c", "RecursionError"),
        ("def get_config():\n    return ConfigDict()", "has no fields"),
        ("def get_config():\n    raise ValueError('two\\nlines')", r"a\.py: ValueError: two lines$"),
        ("def get_config():\n    open('none.json')", r"a\.py: FileNotFoundError: .*none\.json'$"),
        ("def get_config():\n    raise TypeError('x')", r"a\.py: TypeError: x$"),
    ],
)
def test_a_config_file_may_do_anything(code, says, tmp_path):
    file = tmp_path / "a.py"
    file.write_text(f"from ml_collections.config_dict import ConfigDict\n{code}\n")
    with pytest.raises(UserError, match=says):
        flags.parse(["--config", str(file), "--workdir=w", "--config.x=1"])


def test_a_config_file_runs_once_as_a_module_without_warnings_whatever_its_name(tmp_path):
    file = tmp_path / "mine.config"
    file.write_text(
        "from __future__ import annotations\nimport dataclasses\nfrom pathlib import Path\n"
        "from simcse_jax.configs.unsup_bert import get_config as base\n\n\n"
        "@dataclasses.dataclass\nclass Size:\n    batch: int = 7\n\n\n"
        "def get_config():\n    with Path(__file__).with_name('runs').open('a') as file:\n        file.write('.')\n"
        "    config = base()\n    config.train.batch_size = Size().batch\n    return config\n"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config, _ = flags.parse(["--config", str(file), "--workdir=w", "--config.seed=3"])
    assert (config.train.batch_size, config.seed) == (7, 3)
    assert (tmp_path / "runs").read_text() == "."
