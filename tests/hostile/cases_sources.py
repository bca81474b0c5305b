"""Several sources in one run: weights, prompts, lengths and batches that do not fit them."""

from collections.abc import Iterator
from pathlib import Path

from hostile.case import Case
from hostile.damages import write
from hostile.seeds import train_arguments

KIND = "several sources"
INPUTS = ("model", "text.txt", "train.csv", "pairs.tsv", "corpus")
SOURCES = "text.txt,train.csv"
TRAIN = train_arguments("run", data__train=SOURCES, data__mixed=True)
ONE_SOURCE = "data.batching=one_source"
PREPARED = ("data.train=corpus,train.csv", "data.mixed=False")

WRONG: dict[str, tuple[tuple[str, ...], str]] = {  # the fields, and what the error names
    "a weight for one of two": (("data.weights=1",), "data.weights=1: 1 weights"),
    "three weights for two": (("data.weights=1,2,3",), "data.weights=1,2,3: 3 weights"),
    "a weight of zero": (("data.weights=1,0",), "data.weights"),
    "a weight below zero": (("data.weights=1,-2",), "data.weights"),
    "a weight that is NaN": (("data.weights=nan,1",), "data.weights"),
    "a weight that is infinite": (("data.weights=1,inf",), "data.weights"),
    "a weight that is no number": (("data.weights=1,much",), "data.weights"),
    "a weight that gives no row": (("data.weights=1e-20,1",), "text.txt"),
    "a weight that gives no batch": ((ONE_SOURCE, "data.weights=1e-20,1"), "text.txt"),
    "weights for one source": (("data.train=text.txt", "data.weights=1,2"), "data.weights=1,2"),
    "weights of spans": (("data.train=text.txt,more.txt", "data.weights=1,2", "data.positives=spans"), "data.weights"),
    "a source smaller than a batch of its own": ((ONE_SOURCE, "data.train=text.txt,more.txt"), "more.txt"),
    "a source without hard negatives": (
        (ONE_SOURCE, "objective.margin_mse.weight=1.0", "teacher.model=model"),
        "objective.margin_mse",
    ),
    "a length beyond the positions": (("data.lengths.positive=65",), "data.lengths.positive=65"),
    "a length of two": (("data.lengths.anchor=2",), "data.lengths.anchor=2"),
    "a length of a column that is not there": (
        ("data.train=text.txt", "data.mixed=False", "data.lengths.positive=12"),
        "data.lengths.positive=12",
    ),
    "three prompts for two": (("data.prompts.anchor=a,b,c",), "data.prompts.anchor"),
    "a prompt with an open quotation mark": (('data.prompts.anchor="a,b',), "data.prompts.anchor"),
    "a prompt that fills the length": ((f"data.prompts.anchor={'a cat ' * 20}",), "data.prompts.anchor"),
    "a prompt for positives that are not there": (("data.prompts.positive=a ,b ",), "text.txt"),
    "a prepared corpus and a file": (PREPARED, "train.csv is not"),
    "a prompt for a prepared corpus": (
        ("data.train=corpus", "data.mixed=False", "data.prompts.anchor=a "),
        "data.prompts.anchor",
    ),
    "other lengths than a prepared corpus": (
        ("data.train=corpus", "data.mixed=False", "data.lengths.anchor=8"),
        "data.lengths",
    ),
}


def cases() -> Iterator[Case]:
    more = write("more.txt", "a cat\na dog\n")
    for damage, (fields, names) in WRONG.items():
        arguments = [*TRAIN, *(f"--config.{field}" for field in fields)]
        yield Case(KIND, "train", damage, arguments, INPUTS, more, names=names)
    lengths = {"three lengths": ("8", "9", "10"), "a second length of two": ("8", "2"), "two of one column": ("8", "9")}
    for damage, given in lengths.items():
        arguments = ["--data=text.txt", "--model=model", "--output=out", "--max-length", *given]
        yield Case(KIND, "prepare", damage, arguments, ("model", "text.txt"), nothing, names="--max-length")


def nothing(folder: Path) -> None:
    """No damage: the arguments are wrong."""
