"""Configs: every field with wrong values, and config files that are wrong themselves."""

import itertools
from collections.abc import Iterator

from hostile.case import EITHER, PAIRS, REFUSED, TEXT, Case, Reader
from hostile.damages import write
from hostile.seeds import SMALL_RUN, train_arguments

from simcse_jax.config.fields import FIELDS
from simcse_jax.training.sweeps.variants import FIELDS as SWEEP_FIELDS

KIND, INPUTS, LEAVES = "configs", ["model", TEXT, PAIRS], ("run", "run/*")
SURELY_WRONG: dict[type, dict[str, str]] = {  # by the type of a field's default
    int: {"a word": "many", "a fraction": "1.5", "empty": "", "true": "True", "a huge number": "9" * 5000},
    float: {"a word": "much", "empty": "", "NaN": "nan", "infinite": "inf", "a list": "[1]"},
    bool: {"a word": "maybe", "two": "2", "empty": "", "a list": "[True]"},
}
BELOW_ZERO = {int: "-1", float: "-1.0"}
CHOSEN = {"unknown": "none-such", "a number": "3", "not UTF-8": "\udcff"}
OPEN = {"of other bytes": "\udcff\udcfe", "a long name": "n" * 300, "a line break": "a\nb", "a template": "{0} %s"}
HUGE = {"10^20": "1" + "0" * 20, "2^31": str(2**31), "2^63": str(2**63)}
# The others get the first alone.
ALL_HUGE = ("train.max_steps", "train.batch_size", "data.max_length", "model.num_layers", "views.samples")
# What makes a field matter.
WITH = {"data.augment.lexicon": "data.augment.name=synonym", "data.augment.mlm_model": "data.augment.name=mlm"}
WITH |= {"analysis.data": "analysis.every=1", "views.samples": "views.positive=mean"}
WITH |= {"projector.widths": "projector.objectives=info_nce", "projector.objectives": "projector.widths=D"}
WITH |= {"model.generator": "objective.replaced_token_detection.weight=1", "train.milestones": "train.schedule=steps"}
WITH |= {"eval.postprocess_data": "eval.postprocess=whitening"}
WITH |= {f"model.lora.{name}": "model.lora.rank=2" for name in ("alpha", "targets", "dropout", "init_from")}
SLOW = ("train.epochs", "parallel.processes", "parallel.process_id", "parallel.coordinator")  # or wait for others

# What is in a config file.
FILES: dict[str, str] = {"is no Python": "def get_config(:\n"}
FILES |= {"raises in get_config": "def get_config():\n    raise ValueError('two\\nlines')\n"}
FILES |= {"raises KeyboardInterrupt's kin": "def get_config():\n    raise SystemExit(3)\n"}
FILES |= {"returns None": "def get_config():\n    return None\n"}
FILES |= {"imports what is not there": "import none_such_module\n", "has bytes that are not UTF-8": "# caf\udce9\n"}
FILES |= {"recurses": "def get_config():\n    return get_config()\n", "exits": "import sys\nsys.exit(0)\n"}
# What a config file does to the default config.
CHANGES: dict[str, str] = {"a field of another type": "config.train.batch_size = 'eight'"}
CHANGES |= {"a field is None": "config.model.pooler = None", "a section is missing": "del config.data"}
CHANGES |= {"another field": "config.unlock(); config.more = 3"}
CHANGES |= {"a field is an array": "import numpy; config.unlock(); config.train.learning_rate = numpy.ones(3)"}
CHANGES |= {"a field is huge": "config.train.max_steps = 10 ** 30", "a lone surrogate": "config.data.train = '\\ud800'"}
CHANGES |= {"sweep is a number": "config.unlock(); config.sweep = 3"}


def cases() -> Iterator[Case]:
    """A value of a wrong type is refused by one function, so each field gets one of them; bounds are its own."""
    turns = {kind: itertools.cycle(values.items()) for kind, values in SURELY_WRONG.items()}
    texts = itertools.cycle([item for item in (CHOSEN | OPEN).items() if item[0] != "unknown"])
    for name, one in FIELDS.items():
        kind = type(one.default)
        if kind in SURELY_WRONG:
            yield field(name, *next(item for item in turns[kind] if item[1] != str(one.default)))
            if kind in BELOW_ZERO and BELOW_ZERO[kind] != str(one.default):
                yield field(name, "minus one", BELOW_ZERO[kind])
        elif name not in SLOW:
            for text, value in (("unknown", "none-such"), next(texts), next(texts)):
                yield field(name, text, value, EITHER)
        if kind is int and name not in SLOW:
            for text, value in HUGE.items() if name in ALL_HUGE else [("10^20", HUGE["10^20"])]:
                yield field(name, text, value, EITHER)
    yield field("model.template", "of a model without a mask token", "[X] is [MASK].")
    yield field("views.denoising", "without a template", "paper")
    yield from trackers()
    for name in SWEEP_FIELDS:
        values = OPEN if name in ("sweep.title", "sweep.source") else CHOSEN | {"twice": "a,a", "minus one": "-1"}
        for text, value in values.items():
            line = ["--config=ablations/simcse_table3", *train_arguments("run")[1:], f"--config.{name}={value}"]
            sweep = Reader("sweep", [*line, "--config.model.init_from=none"], INPUTS, leaves=LEAVES)
            yield sweep.case(KIND, f"{name} is {text}")
    commands = itertools.cycle(("train", "sweep", "aot"))
    for name, text in FILES.items():
        for command in (next(commands), next(commands)):
            yield file(command, f"the file {name}", text)
    for name, change in CHANGES.items():
        start = "from simcse_jax.config import default_config\ndef get_config():\n    config = default_config()"
        yield file("train", name, f"{start}; {change}\n    return config\n")


def field(name: str, text: str, value: str, end: str = REFUSED, names: str = "", **zygote) -> Case:
    """A run with another value of a field, which the refusal names."""
    line = [argument for argument in train_arguments("run") if not argument.startswith(f"--config.{name}=")]
    fields = [f"{name}={value}", *filter(None, [WITH.get(name)])]
    reader = Reader("train", [*line, *(f"--config.{each}" for each in fields)], INPUTS, leaves=LEAVES)
    names = names or (name.rpartition(".")[2] if end == REFUSED else "")
    return reader.case(KIND, f"{name} is {text}", None, end, names, **zygote)


def trackers() -> Iterator[Case]:
    name = "train.report_to"
    yield field(name, "unknown after another one", "tensorboard,none-such")
    yield field(name, "twice", "tensorboard,tensorboard")
    environment = {"MLFLOW_TRACKING_URI": "ftp://none-such", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    for tracker in ("wandb", "mlflow"):  # not installed, or without an account or a server
        given = {"value": f"tensorboard,{tracker}", "names": tracker, "environment": environment}
        yield field(name, f"{tracker} that cannot be used", **given)


def file(command: str, name: str, text: str) -> Case:
    """A config file of one's own."""
    line = ["--config=c.py", "--topology=v5e:2x4"] if command == "aot" else ["--config=c.py", "--workdir=run"]
    if command == "train" and "section" not in name:
        line += [f"--config.{key}={SMALL_RUN[key]}" for key in ("model.init_from", "eval.data")]
    return Reader(command, line, INPUTS).case(KIND, name, write("c.py", text))
