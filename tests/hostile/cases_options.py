"""Wrong command lines: each option of each command with values of a wrong type, size or form."""

import itertools
from collections.abc import Iterator

from hostile.case import DONE, EITHER, PAIRS, REFUSED, TEXT, Case, Reader
from hostile.seeds import train_arguments

KIND, LONG, INPUTS = "options", "n" * 300, ["model", TEXT, PAIRS]
NUMBERS = {"empty": "", "a word": "many", "a fraction": "1.5", "zero": "0", "minus one": "-1", "huge": "9" * 30}
NUMBERS |= {"longer than int() takes": "9" * 5000, "an exponent": "1e21", "NaN": "nan", "infinite": "inf"}
NUMBERS |= {"hex": "0x10", "other digits": "١٢", "a list": "[1]", "a NUL's name": "\\0"}
NAMES = {"empty": "", "a blank": " ", "300 characters": LONG, "of 249 characters": "n" * 249, "not UTF-8": "caf\udce9"}
NAMES |= {"a dash": "-", "dots": "..", "a line break": "a\nb", "an unknown user's": "~nobody-of-that-name/x"}
NAMES |= {"of a bucket": "s3://bucket/x", "a template": "{0} %s", "deep": "a/" * 3000}
CHOICES = {"empty": "", "unknown": "none-such", "a number": "3", "upper case": "AVG", "not UTF-8": "\udcff"}
CHOICES |= {"a list": "a,b"}
SLOW = ("other digits", "huge", "zero")  # valid numbers


OF_DATA, OF_PAIRS = f"model=model data={TEXT}", f"data={PAIRS}"
OPTIONS: dict[str, tuple[str, str, str, str]] = {  # what is given; options that take a number, a name, a choice
    "encode": (
        f"{OF_DATA} output=out.npy",
        "num-layers max-length batch-size save-every parts part",
        "ranges calibration model data column",
        "pooler dtype output-dtype",
    ),
    "evaluate": (
        f"model=model {OF_PAIRS}",
        "num-layers batch-size postprocess-dimensions",
        "postprocess-data model data",
        "pooler tasks metric aggregation transfer-protocol split postprocess",
    ),
    "search": (
        f"{OF_DATA} query=cat",
        "batch-size top-k threshold recall-target rescore candidates",
        "ranges model data column queries compare compare-index rerank",
        "backend storage precision pooler compare-pooler",
    ),
    "mine": (
        f"model=model pairs=train.csv corpus={TEXT} output=out.jsonl",
        "num-negatives range-max max-score relative-margin block-rows",
        "pairs corpus judge",
        "sampling backend",
    ),
    "analyze": (
        f"{OF_DATA} output=out",
        "batch-size min-count max-types samples seed sentences rank artificial",
        "models runs data column",
        "split units",
    ),
    "geometry": (
        f"models=model {OF_PAIRS} output=out",
        "batch-size postprocess-dimensions",
        "models runs data postprocess-data",
        "split score postprocess",
    ),
    "prepare": (
        f"{OF_DATA} max-length=16 output=out",
        "max-length num-proc seed augment-percent",
        "columns data model augment-lexicon",
        "augment positives",
    ),
    "serve": (
        "model=model port=0",
        "port batch-size truncate-dim timeout max-inputs max-queue max-requests max-body",
        "host name model index rerank",
        "pooler",
    ),
    "demo": (f"{OF_DATA} port=0", "port", "host model compare data", "pooler"),
    "export": ("workdir=none-such output=out", "", "workdir license push-to-hub revision base-model language", ""),
    "aot": (
        "config=unsup_bert topology=v5e:2x4",
        "batch-per-chip columns fill top",
        "config",
        "plan topology",
    ),
    "merge": ("models=model output=out", "", "models output", "method"),
    "overlap": ("anchor=", "", "anchor positive label", "positives"),
}
# What is wrong whatever the values are.
MISUSES = {"an unknown option": ["--none-such"], "an unknown option with a value": ["--none-such=1"]}
MISUSES |= {"a second positional": ["one", "two", "three"], "an option without its value": ["--model"]}
MISUSES |= {"an option of bytes": ["--\udcff\udcfe"], "an empty argument": [""]}
MISUSES |= {"an option of 10,000 characters": ["--" + "x" * 10_000], "a NUL's escape": ["--model=\\x00"]}
COMMANDS = (
    "train tune evaluate encode search export sweep analyze geometry aot demo serve build-data mine runs merge overlap"
)


def line(given: str, **more: str) -> list[str]:
    """Options as words; an underscore is a dash."""
    options = dict(word.split("=", 1) for word in given.split())
    options |= {name.replace("_", "-"): value for name, value in more.items()}
    return [f"--{name}={value}" for name, value in options.items()]


def cases() -> Iterator[Case]:
    """Options of one kind are read by one function, so each has some of the values: a command has all of them."""
    for command, (given, *kinds) in OPTIONS.items():
        inputs = [*INPUTS, "train.csv"] if command == "mine" else INPUTS
        for options, values, count in zip(kinds, (NUMBERS, NAMES, CHOICES), (5, 5, 3), strict=True):
            turns = itertools.cycle(values.items())
            for option in options.split():
                for name, value in itertools.islice(turns, count):
                    if not (command == "analyze" and name in SLOW and option != "batch-size"):
                        reader = Reader(command, line(given, **{option: value}), inputs, leaves=("out",))
                        yield reader.case(KIND, f"--{option} is {name}", None, EITHER)
    misuses = itertools.cycle(MISUSES.items())
    for command in COMMANDS.split():
        for name, arguments in itertools.islice(misuses, 5):
            yield Reader(command, arguments, [TEXT]).case(KIND, name)
        if command != "overlap":
            yield Reader(command, []).case(KIND, "no arguments")
    yield from program()
    yield from flags()
    yield from checkpoints()
    yield from queries()


def program() -> Iterator[Case]:
    """The command `simcse-jax` itself."""
    names = {
        "an unknown command": "trian",
        "an unknown option": "--none-such",
        "an empty command": "",
        "a path": "../x",
    }
    names |= {"bytes": "\udcff", "a module's name": "commands.overlap", "a long name": LONG, "no more": "train"}
    for name, value in names.items():
        yield Reader("__main__", [value]).case(KIND, name)


def flags() -> Iterator[Case]:
    """The flags of `main` and `sweep`."""
    whole = train_arguments("run")
    wrong = {
        "--config twice": [*whole, "--config=sup_bert"],
        "a config that is no file": ["--config=none-such.py", "--workdir=run"],
        "a variant that does not exist": ["--config=unsup_bert:huge", "--workdir=run"],
        "a workdir that is a file": train_arguments(TEXT),
        "a workdir of bytes that are the model's": train_arguments("model/\udcff", model__init_from="none"),
        "a dry run with a profile": [*whole, "--dry-run", "--profile=trace"],
        "a field of no section": [*whole, "--config.none=1"],
        "a section's value": [*whole, "--config.model=1"],
        "a positional": [*whole, "run"],
        "a bucket of another store": train_arguments("s3://bucket/run"),
    }
    for command, (name, arguments) in zip(itertools.cycle(("train", "sweep", "train")), wrong.items(), strict=False):
        if command == "sweep":
            arguments = [argument.replace("unsup_bert", "ablations/simcse_table3") for argument in arguments]
        yield Reader(command, arguments, INPUTS).case(KIND, name)
    rows = {"a row of nothing": "", "a row whose label has a slash": "train.learning_rate=1e-3=a/b"}
    for name, value in rows.items():
        yield Reader("sweep", [*whole, f"--over={value}"], INPUTS).case(KIND, name)


def queries() -> Iterator[Case]:
    """Queries that are typed, and one that is given."""
    typed = Reader("search", line(OF_DATA), ["model", TEXT])
    for damage, text in {"of other bytes": "a cat\ncaf\udce9\n", "in UTF-16": "\udcff\udcfea\0\n\0"}.items():
        yield typed.case(KIND, f"queries {damage}", names="of standard input is not UTF-8", stdin=text)
    for damage, text in {"after a byte-order mark": "\ufeffa cat\n\n", "none": ""}.items():
        yield typed.case(KIND, f"queries {damage}", None, DONE, stdin=text)
    yield typed.case(KIND, "a query of other bytes", None, REFUSED, "--query", "--query=caf\udce9")


def checkpoints() -> Iterator[Case]:
    """Names of checkpoints, RUN@step=N, of which the run has those of steps 1 and 2."""
    inputs = ["workdir", *INPUTS]
    wrong = {f"step is {name}": f"workdir@step={value}" for name, value in NUMBERS.items()}
    wrong |= {"a step in the middle": "workdir@3@step=2", "a step of a model": "model@step=2"}
    for number, (name, value) in enumerate(wrong.items()):
        encode = Reader("encode", line(f"{OF_DATA} output=out.npy", model=value), inputs)
        train = Reader("train", train_arguments("run", model__init_from=value), inputs)
        yield (encode, train)[number % 2].case(KIND, name)
    into = line(f"model=workdir@step=2 {OF_PAIRS} output=workdir/run.json")
    yield Reader("evaluate", into, inputs).case(KIND, "an output in a checkpoint's run", names="would be lost")
    last = Reader("encode", line(f"{OF_DATA} output=out.npy", model="workdir@step=last"), inputs, "out.npy")
    yield last.case(KIND, "the latest checkpoint", None, DONE)
