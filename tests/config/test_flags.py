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


def test_fields_are_overridden_with_their_types_and_what_other_packages_call_them_is_understood():
    given = ("--config.train.learning_rate=1", "--config.eval.tasks=STS12,STSBenchmark", "--config.seed", "7")
    config, workdir = parse(*given)
    assert workdir == "w"
    assert (config.train.learning_rate, config.seed, config.eval.tasks) == (1.0, 7, ("STS12", "STSBenchmark"))
    assert isinstance(config.train.learning_rate, float)
    assert parse("--config.eval.data=")[0].eval.data == ""
    config, _ = parse("--data", "mine.txt", "--model=a/b", "--config.model.pooler=mean", "--config.model.mlp=none")
    assert (config.data.train, config.model.init_from, config.model.pooler) == ("mine.txt", "a/b", "avg")
    config, _ = flags.parse(["--config=unsup-bert:large", "--workdir=w"])
    assert config.model.init_from == "bert-large-uncased"
    assert all(field in flatten(config) for field in flags.MEANT)


# By recipe, of names that are no field's, the one that is meant; of several, that of a trained objective.
MEANT = {
    "unsup_bert": "train.lr=train.learning_rate temperature=objective.info_nce.temperature "
    "analysis.evry=analysis.every train.warmup_steps=train.warmup augment.name=data.augment.name seeed=seed "
    "batchsize=train.batch_size objective.off_droput.weight=objective.off_dropout.weight "
    "gist.temprature=objective.gist.temperature weigth=objective.info_nce.weight",
    "scd": "temprature=objective.self_contrastive.temperature",
    "simcse_plus_plus": "temprature=objective.off_dropout.temperature",
}


def test_an_unknown_field_is_answered_with_the_nearest_one():
    for recipe, pairs in MEANT.items():
        for given, meant in (pair.split("=") for pair in pairs.split()):
            with pytest.raises(UserError, match=rf"^--config\.{given}: .* --config\.{meant}$"):
                flags.parse([f"--config={recipe}", f"--config.{given}=1", "--workdir=w"])


OPTIONS = {  # that are none: what they are answered with
    "--batch-size 32": "no option --batch-size; write --config.train.batch_size=32",
    "--eval-data=a=b": "no option --eval-data; write --config.eval.data=a=b",
    "--lr -1": "no option --lr; write --config.train.learning_rate=-1",
    "--batch_sise": "no option --batch_sise; write --config.train.batch_size=VALUE",
    "--workdr x": "no option --workdr; the nearest one is --workdir", "--dry-rn": "the nearest one is --dry-run",
    "--zzz": "no option --zzz (simcse-jax train --help has all fields)", "word": "'word' stands after no option",
    "--config.zzz=1": "--config.zzz: no such field (simcse-jax train --help has all fields)",
    "--config.train.batch_size=x": "--config.train.batch_size=x: must be a whole number, e.g. 64",
    "--config.train.unpad=x": "--config.train.unpad=x: must be true or false",
    "--config.train.learning_rate=x": "--config.train.learning_rate=x: must be a number, e.g. 3e-05",
}  # fmt: skip


@pytest.mark.parametrize("given", OPTIONS)
def test_a_wrong_option_is_answered_with_the_field_or_the_option_that_may_be_meant_or_with_nothing(given):
    with pytest.raises(UserError) as error:
        flags.parse_run([CONFIG, "--workdir=w", *given.split()])
    assert str(error.value).endswith(OPTIONS[given])


def test_an_option_may_mean_several_fields_and_that_of_a_sweep_is_its_own():
    with pytest.raises(UserError, match=r"write --config\.objective\.\S+\.temperature=1 or --config\.objective"):
        flags.parse(["--config=simcse_plus_plus", "--workdir=w", "--temp=1"])
    with pytest.raises(UserError, match="no option --ovr; the nearest one is --over"):
        flags.parse([CONFIG, "--workdir=w", "--ovr=1"])


SHORT = [  # of a short name, the field that is meant; "-": several could be, or none
    ("unsup_bert", "temperature tau weight lr data dropout temprature",
     "objective.info_nce.temperature objective.info_nce.temperature objective.info_nce.weight train.learning_rate "
     "data.train - -"),
    ("graded", "temperature tau weight",
     "objective.cosent.temperature objective.cosent.temperature objective.cosent.weight"),
    ("simcse_plus_plus", "temp gist.tau", "- objective.gist.temperature"),
    ("scd", "temperature train.lr", "objective.self_contrastive.temperature train.learning_rate"),
]  # fmt: skip


def meant(name, fields):
    found = flags.fields_meant(name, fields)
    return found[0] if len(found) == 1 else "-"


def test_a_short_name_means_a_field_that_counts():
    for recipe, names, expected in SHORT:
        known = flatten(flags.load_config(recipe)[0])
        assert [meant(name, known) for name in names.split()] == expected.split()
    # Where no objective with such a field is trained, the whole name is asked for.
    known = flatten(flags.load_config("graded")[0]) | {"objective.cosent.weight": 0.0}
    for name in ("temperature", "tau"):
        assert meant(name, known) == "-"
        message = flags.no_such_field(name, known, "config.")
        assert "config.objective.angle.temperature, config.objective.cosent.temperature, " in message
    known = flatten(flags.load_config("simcse_plus_plus")[0])
    message = flags.no_such_field("temperature", known)
    assert "objective.dimension_wise.temperature, objective.off_dropout.temperature;" in message
    assert "info_nce" not in message
    assert meant("tau", known | {"objective.info_nce.weight": 1.0}) == "objective.info_nce.temperature"


def test_of_a_field_that_is_given_twice_the_last_value_counts_in_lists_too():
    tasks = "--config.eval.tasks"
    config, _ = parse(f"{tasks}=STS12", "--config.seed=1", tasks, "STS13,STS14", "--config.seed=2")
    assert (config.eval.tasks, config.seed) == (("STS13", "STS14"), 2)
    config, _ = parse(f"{tasks}=STS12", "--config.eval.transfer", "--config.eval.extra=stsb_dev")
    assert (config.eval.tasks, config.eval.extra, config.eval.transfer) == (("STS12",), ("stsb_dev",), True)
    assert parse("--config.eval.transfer=1", "--config.eval.transfer=False")[0].eval.transfer is False
    assert parse(f"{tasks}=STS12", f"{tasks}=")[0].eval.tasks == ()
    with pytest.raises(UserError, match=r"eval\.tasks"):
        parse(f"{tasks}=STS12", tasks)


BROKEN = {  # code of a config file, what its refusal says
    "def get_config(:": r"SyntaxError: .*\(a\.py, line 3\)$",
    "": r"has no get_config\(\)$",
    "def get_config():\n    pass": "must return a ConfigDict",
    "def get_config():\n    c = default_config()\n    c.sede = 1\n    return c": r"config\.sede: .* config\.seed$",
    "def get_config():\n    c = default_config()\n    c.train = {**c.train.to_dict(), 'epochs': None}\n    return c":
        r"config\.train\.epochs=None: must be a whole number, e.g. 1",
    "def get_config():\n    raise SystemExit(0)": "SystemExit: 0",
    "def get_config():\n    return get_config()": "RecursionError",
    "def get_config():\n    c = ConfigDict()\n    c.me = c\n    return c": "RecursionError",
    "def get_config():\n    return ConfigDict()": "has no fields",
    "def get_config():\n    raise ValueError('two\\nlines')": r"a\.py: ValueError: two lines$",
    "def get_config():\n    open('none.json')": r"a\.py: FileNotFoundError: .*none\.json'$",
}  # fmt: skip


@pytest.mark.parametrize("code", BROKEN)
def test_a_config_file_may_do_anything(code, tmp_path):
    imports = "from ml_collections.config_dict import ConfigDict\nfrom simcse_jax.config import default_config\n"
    (tmp_path / "a.py").write_text(f"{imports}{code}\n")
    given = [] if "default_config()" in code else ["--config.x=1"]
    with pytest.raises(UserError, match=BROKEN[code]):
        validate(flags.parse(["--config", str(tmp_path / "a.py"), "--workdir=w", *given])[0])


@pytest.mark.parametrize(("more", "named"), [
    ("--config=none.py", "none.py"), ("--config none.py", "none.py"), ("--config.seed=1", "--config"), ("", "--config"),
    (f"{CONFIG}:huge", "huge"), (f"--config={ROOT}/configs/tune.py:large", "tune.py"),
    (f"{CONFIG} --wrkdir=x", "wrkdir"), (f"{CONFIG} extra", "extra"), (f"{CONFIG} --profile=", "--profile"),
    (f"{CONFIG} --config.seed[0]=1", "--config.seed[0]"),
    *((f"{CONFIG} --config.{given}", given) for given in ("seed=abc", "train.batch_size=1.5", "train.epsilon=fast")),
])  # fmt: skip
def test_an_argument_that_cannot_be_read_or_a_folder_without_a_name_is_named_in_a_line(more, named):
    with pytest.raises(UserError, match=re.escape(named)) as caught:
        flags.parse_run([*more.split(), "--workdir=w"])
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="--workdir"):
        flags.parse([CONFIG])


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
