"""Configs: every field with wrong values, and config files that are wrong themselves."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from hostile.case import EITHER, PAIRS, REFUSED, TEXT, Case
from hostile.seeds import SMALL_RUN, train_arguments

from simcse_jax.config.fields import FIELDS
from simcse_jax.training.sweeps.variants import FIELDS as SWEEP_FIELDS

SURELY_WRONG: dict[type, dict[str, str]] = {  # by the type of a field's default
    int: {
        "a word": "many",
        "a fraction": "1.5",
        "empty": "",
        "minus one": "-1",
        "true": "True",
        "a huge number": "9" * 5000,
    },
    float: {"a word": "much", "empty": "", "minus one": "-1.0", "NaN": "nan", "infinite": "inf", "a list": "[1]"},
    bool: {"a word": "maybe", "two": "2", "empty": "", "a list": "[True]"},
}
CHOSEN = {"unknown": "none-such", "a number": "3", "not UTF-8": "\udcff"}
OPEN = {"not UTF-8": "\udcff\udcfe", "a long name": "n" * 300, "a line break": "a\nb", "a template": "{0} %s"}
HUGE = {"10^20": "1" + "0" * 20, "2^31": str(2**31), "2^63": str(2**63)}
ALL_HUGE = (
    "train.max_steps",
    "train.batch_size",
    "data.max_length",
    "model.num_layers",
    "views.samples",
)  # the others: 10^20
WITH = {  # what makes a field matter
    "data.augment.lexicon": "--config.data.augment.name=synonym",
    "data.augment.mlm_model": "--config.data.augment.name=mlm",
    "analysis.data": "--config.analysis.every=1",
    "views.samples": "--config.views.positive=mean",
    "projector.widths": "--config.projector.objectives=info_nce",
    "projector.objectives": "--config.projector.widths=D",
    "model.generator": "--config.objective.replaced_token_detection.weight=1",
    "train.milestones": "--config.train.schedule=steps",
    "model.lora.alpha": "--config.model.lora.rank=2",
    "model.lora.targets": "--config.model.lora.rank=2",
    "model.lora.dropout": "--config.model.lora.rank=2",
    "model.lora.init_from": "--config.model.lora.rank=2",
    "eval.postprocess_data": "--config.eval.postprocess=whitening",
}

FILES: dict[str, str] = {  # what is in a config file
    "is empty": "",
    "is no Python": "def get_config(:\n",
    "raises": "raise RuntimeError('no')\n",
    "raises in get_config": "def get_config():\n    raise ValueError('two\\nlines')\n",
    "raises KeyboardInterrupt's kin": "def get_config():\n    raise SystemExit(3)\n",
    "has no get_config": "x = 1\n",
    "returns None": "def get_config():\n    return None\n",
    "returns a dict": "def get_config():\n    return {'seed': 1}\n",
    "returns an empty config": "import ml_collections\ndef get_config():\n    return ml_collections.ConfigDict()\n",
    "opens what is not there": "def get_config():\n    open('none.json')\n",
    "imports what is not there": "import none_such_module\n",
    "has bytes that are not UTF-8": "# caf\udce9\n",
    "has NULs": "x = '\0'\n",
    "recurses": "def get_config():\n    return get_config()\n",
    "needs an argument": "def get_config(size):\n    return size\n",
    "exits": "import sys\nsys.exit(0)\n",
}
CHANGES: dict[str, str] = {  # what a config file does to the default config
    "a field of another type": "config.train.batch_size = 'eight'",
    "a field is None": "config.model.pooler = None",
    "a section is None": "config.train = None",
    "a section is missing": "del config.data",
    "a field is missing": "del config.seed",
    "another field": "config.unlock(); config.more = 3",
    "a field is NaN": "config.train.learning_rate = float('nan')",
    "a field is a list": "config.eval.tasks = ['STS12', 3]",
    "a field is an array": "import numpy; config.unlock(); config.train.learning_rate = numpy.ones(3)",
    "a field is a complex number": "config.unlock(); config.train.learning_rate = 1j",
    "a field is huge": "config.train.max_steps = 10 ** 30",
    "a name is bytes": "config.unlock(); config.data.train = b'text.txt'",
    "a lone surrogate": "config.data.train = '\\ud800'",
    "sweep is a number": "config.unlock(); config.sweep = 3",
}


def cases() -> Iterator[Case]:
    for name, one in FIELDS.items():
        kind = type(one.default)
        if kind in SURELY_WRONG:
            wrong = {text: value for text, value in SURELY_WRONG[kind].items() if value != str(FIELDS[name].default)}
            yield from (field(name, value, text, REFUSED) for text, value in wrong.items())
        elif name not in SLOW:
            yield from (field(name, value, text, EITHER) for text, value in (CHOSEN | OPEN).items())
        if kind is int and name not in SLOW:
            yield from (
                field(name, value, text, EITHER) for text, value in HUGE.items() if text == "10^20" or name in ALL_HUGE
            )
    yield from trackers()
    yield from templates()
    for name in SWEEP_FIELDS:
        values = OPEN if name in ("sweep.title", "sweep.source") else CHOSEN | {"twice": "a,a", "minus one": "-1"}
        for text, value in values.items():
            arguments = ["--config=ablations/simcse_table3", *train_arguments("run")[1:], f"--config.{name}={value}"]
            yield Case(
                "configs",
                "sweep",
                f"{name} is {text}",
                [*arguments, "--config.model.init_from=none"],
                ("model", TEXT, PAIRS),
                leaves=("run", "run/*"),
            )
    yield from files()


SLOW = (
    "train.epochs",
    "parallel.processes",
    "parallel.process_id",
    "parallel.coordinator",
)  # train, or wait for others


def field(name: str, value: str, text: str, end: str) -> Case:
    arguments = [argument for argument in train_arguments("run") if not argument.startswith(f"--config.{name}=")]
    arguments += [f"--config.{name}={value}", *([WITH[name]] if name in WITH else [])]
    last = name.rpartition(".")[2] if end == REFUSED else ""
    return Case(
        "configs",
        "train",
        f"{name} is {text}",
        arguments,
        ("model", TEXT, PAIRS),
        end=end,
        names=last,
        leaves=("run", "run/*"),
    )


def templates() -> Iterator[Case]:
    wrong = {"without a place": "A text.", "a place alone": " [X] ", "with two places": "[X] [X]"}
    for text, value in wrong.items():
        yield field("model.template", value, text, REFUSED)
        yield field("views.positive_template", value, text, REFUSED)
    yield field("model.template", "[X] is [MASK].", "of a model without a mask token", REFUSED)
    yield field("model.template", "the cat " * 8 + "[X]", "longer than a sentence", REFUSED)
    for more in ("--config.model.template=a [X] b", "--config.model.template="):
        one = field("model.pooler", "mask_token", f"mask_token with {more}", REFUSED)
        yield replace(one, arguments=[*one.arguments, more], names="mask_token")
    yield field("views.denoising", "paper", "without a template", REFUSED)


def trackers() -> Iterator[Case]:
    name = "train.report_to"
    yield field(name, "tensorboard,none-such", "unknown after another one", REFUSED)
    yield field(name, "tensorboard,tensorboard", "twice", REFUSED)
    for tracker in ("wandb", "mlflow"):  # not installed, or without an account or a server
        one = field(name, f"tensorboard,{tracker}", f"{tracker} that cannot be used", REFUSED)
        environment = {"MLFLOW_TRACKING_URI": "ftp://none-such", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
        yield replace(one, names=tracker, options={"environment": environment})


def files() -> Iterator[Case]:
    for name, text in FILES.items():
        for command in ("train", "sweep", "aot"):
            yield file(command, f"the file {name}", text)
    for name, change in CHANGES.items():
        lines = ["from simcse_jax.config import default_config", "def get_config():", "    config = default_config()"]
        lines += [f"    {part.strip()}" for part in change.split(";")] + ["    return config", ""]
        yield file("train", name, "\n".join(lines))
    variants = {"are none": "()", "are no variants": "(1, 2)", "have wrong fields": "[Variant('a', {'none': 1})]"}
    variants |= {"have one name": "[Variant('a', {}), Variant('a', {})]", "have a path's name": "[Variant('../a', {})]"}
    variants |= {"have a long name": "[Variant('a' * 300, {})]", "have wrong types": "[Variant(3, None)]"}
    variants |= {
        "have a value of another type": "[Variant('a', {'seed': 'x'})]",
        "have an empty name": "[Variant('', {})]",
    }
    variants |= {"have a metric that is none": "[Variant('a', {}, {'sts_avgg': 1.0})]"}
    variants |= {"are quoted and have fields": "[Variant('a', {'seed': 1}, {'sts_avg': 1.0}, quoted=True)]"}
    variants |= {"have a quoted baseline": "[Variant('a', {}, {'sts_avg': 1.0}, quoted=True), Variant('b', {})]"}
    variants |= {"raise": "1 / 0"}
    for name, value in variants.items():
        text = "from simcse_jax.config import default_config\n"
        text += "from simcse_jax.training.sweeps.variants import Variant, sweep_defaults\n"
        text += "def get_config():\n    config = default_config()\n"
        text += "    config.sweep = sweep_defaults('t', 's', ('stsb_dev',), baseline='a')\n    return config\n"
        text += f"def get_variants():\n    return {value}\n"
        yield file("sweep", f"the rows {name}", text)


def file(command: str, name: str, text: str) -> Case:
    def make(folder: Path) -> None:
        (folder / "c.py").write_bytes(text.encode("utf-8", "surrogateescape"))

    arguments = ["--config=c.py", "--topology=v5e:2x4"] if command == "aot" else ["--config=c.py", "--workdir=run"]
    if command == "train":
        arguments += [
            f"--config.{key}={SMALL_RUN[key]}" for key in ("model.init_from", "eval.data") if "section" not in name
        ]
    return Case("configs", command, name, arguments, ("model", TEXT, PAIRS), make)
