"""Wrong command lines: each option of each command with values of a wrong type, size or form."""

import itertools
from collections.abc import Iterator

from hostile.case import DONE, EITHER, PAIRS, REFUSED, TEXT, Case
from hostile.seeds import train_arguments

LONG = "n" * 300
NUMBERS = {"empty": "", "a word": "many", "a fraction": "1.5", "zero": "0", "minus one": "-1", "huge": "9" * 30}
NUMBERS |= {
    "longer than int() takes": "9" * 5000,
    "an exponent": "1e21",
    "NaN": "nan",
    "infinite": "inf",
    "hex": "0x10",
}
NUMBERS |= {"other digits": "١٢", "a list": "[1]", "a NUL's name": "\\0"}
NAMES = {"empty": "", "a blank": " ", "300 characters": LONG, "of 249 characters": "n" * 249, "not UTF-8": "caf\udce9"}
NAMES |= {"a dash": "-", "dots": "..", "a line break": "a\nb", "an unknown user's": "~nobody-of-that-name/x"}
NAMES |= {"of a bucket": "s3://bucket/x", "a template": "{0} %s", "deep": "a/" * 3000}
CHOICES = {
    "empty": "",
    "unknown": "none-such",
    "a number": "3",
    "upper case": "AVG",
    "not UTF-8": "\udcff",
    "a list": "a,b",
}

ENCODE = {"--model": "model", "--data": TEXT, "--output": "out.npy"}
EVALUATE = {"--model": "model", "--data": PAIRS}
SEARCH = {"--model": "model", "--data": TEXT, "--query": "a cat"}
ANALYZE = {"--model": "model", "--data": TEXT, "--output": "out"}
GEOMETRY = {"--models": "model", "--data": PAIRS, "--output": "out"}
DEMO = {"--model": "model", "--data": TEXT, "--port": "0"}
SERVE = {"--model": "model", "--port": "0"}
EXPORT = {"--workdir": "none-such", "--output": "out"}
PREPARE = {"--data": TEXT, "--model": "model", "--max-length": "16", "--output": "out"}
MINE = {"--model": "model", "--pairs": "train.csv", "--corpus": TEXT, "--output": "out.jsonl"}
AOT = {"--config": "unsup_bert", "--topology": "v5e:2x4"}
# Options with what they take: a number of 1 or more, a number, a file or folder to read, a choice.
OPTIONS: dict[str, tuple[dict[str, str], dict[str, dict[str, str]]]] = {
    "encode": (
        ENCODE,
        {
            "--num-layers": NUMBERS,
            "--max-length": NUMBERS,
            "--batch-size": NUMBERS,
            "--save-every": NUMBERS,
            "--parts": NUMBERS,
            "--part": NUMBERS,
            "--pooler": CHOICES,
            "--dtype": CHOICES,
            "--output-dtype": CHOICES,
            "--ranges": NAMES,
            "--calibration": NAMES,
            "--model": NAMES,
            "--data": NAMES,
            "--column": NAMES,
        },
    ),
    "evaluate": (
        EVALUATE,
        {
            "--num-layers": NUMBERS,
            "--batch-size": NUMBERS,
            "--postprocess-dimensions": NUMBERS,
            "--pooler": CHOICES,
            "--tasks": CHOICES,
            "--metric": CHOICES,
            "--aggregation": CHOICES,
            "--transfer-protocol": CHOICES,
            "--split": CHOICES,
            "--postprocess": CHOICES,
            "--postprocess-data": NAMES,
            "--model": NAMES,
            "--data": NAMES,
        },
    ),
    "search": (
        SEARCH,
        {
            "--batch-size": NUMBERS,
            "--top-k": NUMBERS,
            "--threshold": NUMBERS,
            "--recall-target": NUMBERS,
            "--backend": CHOICES,
            "--storage": CHOICES,
            "--precision": CHOICES,
            "--rescore": NUMBERS,
            "--ranges": NAMES,
            "--pooler": CHOICES,
            "--model": NAMES,
            "--data": NAMES,
            "--column": NAMES,
            "--queries": NAMES,
            "--compare": NAMES,
            "--compare-index": NAMES,
            "--compare-pooler": CHOICES,
            "--rerank": NAMES,
            "--candidates": NUMBERS,
        },
    ),
    "mine": (
        MINE,
        {
            "--num-negatives": NUMBERS,
            "--range-max": NUMBERS,
            "--max-score": NUMBERS,
            "--relative-margin": NUMBERS,
            "--block-rows": NUMBERS,
            "--sampling": CHOICES,
            "--backend": CHOICES,
            "--pairs": NAMES,
            "--corpus": NAMES,
            "--judge": NAMES,
        },
    ),
    "analyze": (
        ANALYZE,
        {
            "--batch-size": NUMBERS,
            "--min-count": NUMBERS,
            "--max-types": NUMBERS,
            "--samples": NUMBERS,
            "--seed": NUMBERS,
            "--sentences": NUMBERS,
            "--rank": NUMBERS,
            "--artificial": NUMBERS,
            "--models": NAMES,
            "--compare": NAMES,
            "--runs": NAMES,
            "--split": CHOICES,
            "--data": NAMES,
            "--column": NAMES,
        },
    ),
    "geometry": (
        GEOMETRY,
        {
            "--batch-size": NUMBERS,
            "--postprocess-dimensions": NUMBERS,
            "--models": NAMES,
            "--runs": NAMES,
            "--data": NAMES,
            "--split": CHOICES,
            "--score": CHOICES,
            "--postprocess": CHOICES,
            "--postprocess-data": NAMES,
        },
    ),
    "prepare": (
        PREPARE,
        {
            "--max-length": NUMBERS,
            "--shard-rows": NUMBERS,
            "--seed": NUMBERS,
            "--augment-percent": NUMBERS,
            "--augment": CHOICES,
            "--positives": CHOICES,
            "--columns": NAMES,
            "--data": NAMES,
            "--model": NAMES,
            "--augment-lexicon": NAMES,
        },
    ),
    "demo": (
        DEMO,
        {
            "--port": NUMBERS,
            "--host": NAMES,
            "--model": NAMES,
            "--compare": NAMES,
            "--data": NAMES,
            "--pooler": CHOICES,
        },
    ),
    "serve": (
        SERVE,
        {
            "--port": NUMBERS,
            "--batch-size": NUMBERS,
            "--truncate-dim": NUMBERS,
            "--timeout": NUMBERS,
            "--max-inputs": NUMBERS,
            "--max-queue": NUMBERS,
            "--max-requests": NUMBERS,
            "--max-body": NUMBERS,
            "--host": NAMES,
            "--name": NAMES,
            "--model": NAMES,
            "--index": NAMES,
            "--rerank": NAMES,
            "--pooler": CHOICES,
        },
    ),
    "export": (
        EXPORT,
        {"--workdir": NAMES, "--license": NAMES, "--push-to-hub": NAMES, "--revision": NAMES}
        | {"--base-model": NAMES, "--language": NAMES},
    ),
    "aot": (
        AOT,
        {
            "--batch-per-chip": NUMBERS,
            "--columns": NUMBERS,
            "--fill": NUMBERS,
            "--top": NUMBERS,
            "--plan": CHOICES,
            "--config": NAMES,
            "--topology": CHOICES,
            "--topologies": CHOICES,
        },
    ),
    "runs": ({}, {}),
    "overlap": (
        {"--anchor": ""},
        {"--positives": CHOICES, "--anchor": NAMES, "--positive": NAMES, "--label": NAMES},
    ),
}
# What is wrong whatever the values are.
MISUSES = {
    "an unknown option": ["--none-such"],
    "an unknown option with a value": ["--none-such=1"],
    "a second positional": ["one", "two", "three"],
    "an option without its value": ["--model"],
    "an option of bytes": ["--\udcff\udcfe"],
    "an empty argument": [""],
    "an option of 10,000 characters": ["--" + "x" * 10_000],
    "a NUL's escape": ["--model=\\x00"],
}
COMMANDS = (
    "train",
    "tune",
    "evaluate",
    "encode",
    "search",
    "export",
    "sweep",
    "analyze",
    "geometry",
    "aot",
    "demo",
    "serve",
    "build-data",
    "mine",
    "runs",
    "overlap",
)


def cases() -> Iterator[Case]:
    for command, (given, options) in OPTIONS.items():
        for option, values in options.items():
            for name, value in values.items():
                if command == "analyze" and name in ("other digits", "huge", "zero") and option != "--batch-size":
                    continue  # a valid number, and analyze is slow
                arguments = [f"{key}={text}" for key, text in (given | {option: value}).items()]
                yield Case(
                    "options",
                    command,
                    f"{option} is {name}",
                    arguments,
                    ("model", TEXT, PAIRS, *["train.csv"] * (command == "mine")),
                    end=EITHER,
                    leaves=("out",),
                )
    for command, (name, arguments) in itertools.product(COMMANDS, MISUSES.items()):
        yield Case("options", command, name, arguments, (TEXT,))
    for command in COMMANDS[:-1]:
        yield Case("options", command, "no arguments", [], ())
    yield from program()
    yield from flags()
    yield from checkpoints()
    yield from pictures()
    yield from queries()


def program() -> Iterator[Case]:
    """The command `simcse-jax` itself."""
    names = {
        "an unknown command": "trian",
        "an unknown option": "--none-such",
        "an empty command": "",
        "bytes": "\udcff",
    }
    names |= {
        "a module's name": "commands.overlap",
        "a private name": "__main__",
        "a path": "../encode",
        "a long name": LONG,
    }
    for name, value in names.items():
        yield Case("options", "__main__", name, [value])
    for command in ("train", *COMMANDS[1:-1]):
        yield Case("options", "__main__", f"{command} without arguments", [command.replace("_", "-")])


def flags() -> Iterator[Case]:
    """The flags of `main` and `sweep`."""
    whole = train_arguments("run")
    wrong = {
        "--config twice": [*whole, "--config=sup_bert"],
        "a config that is no file": ["--config=none-such.py", "--workdir=run"],
        "a config that is a folder": ["--config=model", "--workdir=run"],
        "a config that is text": [f"--config={TEXT}", "--workdir=run"],
        "a variant that does not exist": ["--config=unsup_bert:huge", "--workdir=run"],
        "no workdir": whole[:1],
        "an empty workdir": train_arguments(""),
        "a workdir that is a file": train_arguments(TEXT),
        "a workdir in a file": train_arguments(f"{TEXT}/run"),
        "a workdir of 300 characters": train_arguments(LONG),
        "a workdir of bytes that are the model's": train_arguments("model/\udcff", model__init_from="none"),
        "an empty profile": [*whole, "--profile="],
        "a dry run with a profile": [*whole, "--dry-run", "--profile=trace"],
        "a field of no section": [*whole, "--config.none=1"],
        "a field of a field": [*whole, "--config.seed.none=1"],
        "a section's value": [*whole, "--config.model=1"],
        "a field without a value": [*whole, "--config.seed"],
        "a positional": [*whole, "run"],
        "a misspelt field": [*whole, "--config.train.batchsize=8"],
        "a bucket of another store": train_arguments("s3://bucket/run"),
        "a bucket without a name": train_arguments("gs://"),
        "a reading that there is not": [*whole, "--config.objective.off_dropout.reading=mine"],
        "a field with a NUL's escape": [*whole, "--config.data.train=\\0"],
    }
    for command, (name, arguments) in itertools.product(("train", "sweep"), wrong.items()):
        if command == "sweep":
            arguments = [argument.replace("unsup_bert", "ablations/simcse_table3") for argument in arguments]
        yield Case("options", command, name, arguments, ("model", TEXT, PAIRS))
    over = {
        "a row of nothing": "",
        "a row of a short name": "temperature=0.1",
        "a row whose label is empty": "train.learning_rate=1e-3=",
        "a row whose label has a slash": "train.learning_rate=1e-3=a/b",
        "a row with two labels": "model.init_from=model=a=b",
        "a row of 300 characters": f"data.prompts.anchor={LONG}",
    }
    for name, value in over.items():
        yield Case("options", "sweep", name, [*whole, f"--over={value}"], ("model", TEXT, PAIRS))
    one_set = train_arguments("run", eval__postprocess="whitening", eval__postprocess_data="target_all")
    yield Case("options", "train", "all splits of a file", one_set, ("model", TEXT, PAIRS), names=PAIRS)


def queries() -> Iterator[Case]:
    """Queries that are typed, and one that is given."""
    given = [f"{option}={value}" for option, value in SEARCH.items()]
    typed = {
        "of other bytes": ("a cat\ncaf\udce9\n", REFUSED),
        "in UTF-16": ("\udcff\udcfea\0\n\0", REFUSED),
        "after a byte-order mark": ("\ufeffa cat\n\n", DONE),
        "none": ("", DONE),
    }
    for damage, (text, end) in typed.items():
        names = "of standard input is not UTF-8" if end == REFUSED else ""
        stdin = {"stdin": text}
        yield Case(
            "options", "search", f"queries {damage}", given[:-1], ("model", TEXT), end=end, names=names, options=stdin
        )
    other = [*given[:-1], "--query=caf\udce9"]
    yield Case("options", "search", "a query of other bytes", other, ("model", TEXT), names="--query")


def checkpoints() -> Iterator[Case]:
    """Names of checkpoints, RUN@step=N, of which the run has those of steps 1 and 2."""
    wrong = {f"step is {name}": (f"workdir@step={value}", "workdir@step=") for name, value in NUMBERS.items()}
    wrong |= {
        "a step that was not saved": ("workdir@step=3", "it has 1, 2"),
        "a step in the middle": ("workdir@3@step=2", "is not a run's folder"),
        "two steps": ("workdir@step=2@step=2", "is not a run's folder"),
        "a step of a model that is no run": ("model@step=2", "is not a run's folder"),
        "a step of a package": ("package:json@step=2", "is not a run's folder"),
        "a step of nothing": ("@step=2", "@step=2"),
    }
    wrong |= {
        "step is zero": ("workdir@step=0", "it has 1, 2"),
        "step is huge": (f"workdir@step={10**14}", "it has 1, 2"),
    }
    inputs = ("workdir", "model", TEXT, PAIRS)
    commands = {"encode": ENCODE, "export": EXPORT}
    for (command, given), (name, (value, names)) in itertools.product(commands.items(), wrong.items()):
        option = "--workdir" if command == "export" else "--model"
        names = names if command == "encode" else ""
        arguments = [f"{key}={text}" for key, text in (given | {option: value}).items()]
        yield Case("options", command, f"{option}: {name}", arguments, inputs, names=names)
    for name, (value, names) in wrong.items():
        yield Case("options", "train", name, train_arguments("run", model__init_from=value), inputs, names=names)
    arguments = ["--model=workdir@step=2", f"--data={PAIRS}", "--output=workdir/run.json"]
    yield Case("options", "evaluate", "an output in a checkpoint's run", arguments, inputs, names="would be lost")
    done = [f"{key}={text}" for key, text in (ENCODE | {"--model": "workdir@step=last"}).items()]
    yield Case("options", "encode", "the latest checkpoint", done, inputs, end=DONE, output="out.npy")


def pictures() -> Iterator[Case]:
    """The names, labels, post-processings and panels of `geometry`, and runs that recorded nothing to draw."""
    wrong = {
        "a method without data": ["--models", "model@whitening", f"--data={PAIRS}"],
        "two methods": ["--models", "model@whitening@flow", f"--data={PAIRS}", "--postprocess-data=target"],
        "a method that is none": ["--models", "model@pca", f"--data={PAIRS}", "--postprocess-data=target"],
        "too few sentences": ["--models", "model@whitening", f"--data={PAIRS}", "--postprocess-data=target"],
        "all splits of a file": ["--models", "model@flow", f"--data={PAIRS}", "--postprocess-data=target_all"],
        "data without a method": ["--models", "model", f"--data={PAIRS}", f"--postprocess-data={TEXT}"],
        "dimensions of a flow": [
            *("--models", "model@flow", f"--data={PAIRS}", f"--postprocess-data={TEXT}", "--postprocess-dimensions=2"),
        ],
        "an empty label": ["--models", "model=", f"--data={PAIRS}"],
        "a label without a model": ["--models", "=label", f"--data={PAIRS}"],
        "a label twice": ["--models", "model=a", "model@1=a", f"--data={PAIRS}"],
        "a model in two panels": ["--models", "model", "--models", "model", f"--data={PAIRS}"],
        "a panel without models": ["--models", "model", "--models", f"--data={PAIRS}"],
        "more titles than panels": ["--models", "model", "--panels", "a", "b", f"--data={PAIRS}"],
        "a title twice": ["--models", "model", "--models", "model@1", "--panels", "a", "a", f"--data={PAIRS}"],
        "titles without models": ["--runs", "workdir", "--panels", "a"],
        "an average of a file": ["--models", "model", "--score=sts_avg", f"--data={PAIRS}"],
        "models without data": ["--models", "model"],
        "a model as a run": ["--runs", "model"],
        "a run twice": ["--runs", "workdir", "workdir=a"],
        "a checkpoint as a run": ["--runs", "workdir@step=2"],
        "a step that was not saved": ["--models", "workdir@step=3@avg", f"--data={PAIRS}"],
    }
    for name, arguments in wrong.items():
        yield Case("options", "geometry", name, [*arguments, "--output=out"], ("workdir", "model", TEXT, PAIRS))
    done = ["--runs", "workdir=a label", "--output=out"]
    yield Case("options", "geometry", "records of a run", done, ("workdir",), end=DONE, output="out")
