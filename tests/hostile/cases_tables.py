"""Tables as spreadsheets, pandas and other projects write them: separators, quotation marks, columns and lists."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

from hostile.case import DONE, REFUSED, SAME, Case
from hostile.damages import Make, write
from hostile.seeds import GRADED, MINE, SENTENCES, train_arguments

KIND = "tables of other programs"
INPUTS = ("model", "text.txt", "pairs.tsv")
ENCODE = ["--model=model", "--data=x.csv", "--output=out.npy"]
TEXTS = [["sentence", "row"], *([text, row] for row, text in enumerate(SENTENCES))]
PAIRS = [["sentence1", "sentence2", "score"], *map(list, GRADED)]
MANY = [f"{text} {row}" for row, text in enumerate(SENTENCES * 2)]


def table(rows: Sequence[Sequence[Any]], separator: str, quoting: int = csv.QUOTE_MINIMAL, end: str = "\n") -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=separator, quoting=quoting, lineterminator=end).writerows(rows)
    return text.getvalue()


def columns(**named: Sequence[str]) -> str:
    return table([list(named), *zip(*named.values(), strict=True)], ",")


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


SAME_TEXTS = {  # the sentences of text.txt: a file's name and text
    "semicolons": ("x.csv", table(TEXTS, ";", end="\r\n")),
    "semicolons after a mark of UTF-8": ("x.csv", "\ufeff" + table(TEXTS, ";")),
    "bars": ("x.csv", table(TEXTS, "|")),
    "tabs": ("x.csv", table(TEXTS, "\t")),
    "tabs, all quoted": ("x.csv", table(TEXTS, "\t", csv.QUOTE_ALL)),
    "a line that says its separator": ("x.csv", "sep=;\n" + table(TEXTS, ";")),
    "commas in a .tsv": ("x.tsv", table(TEXTS, ",")),
    "all quoted in a .tsv": ("x.tsv", table(TEXTS, "\t", csv.QUOTE_ALL)),
    "text quoted in a .tsv": ("x.tsv", table(TEXTS, "\t", csv.QUOTE_NONNUMERIC)),
}
SAME_PAIRS = {
    "all quoted": table(PAIRS, "\t", csv.QUOTE_ALL),
    "text quoted": table(PAIRS, "\t", csv.QUOTE_NONNUMERIC),
    "commas": table(PAIRS, ","),
    "semicolons": table(PAIRS, ";"),
    "empty cells at the end": table([[*row, "", ""] for row in PAIRS], "\t").replace("score\t\t", "score"),
}
TRAINED = {  # a file that trains
    "a category first": ("x.csv", columns(genre=["news", "forum"] * 12, sentence1=MANY, sentence2=MANY[::-1])),
    "a category last": ("x.csv", columns(question=MANY, answer=MANY[::-1], category=["towers"] * 24)),
    "FlagEmbedding's lists": ("x.jsonl", lines(*({"query": a, "pos": [b, a], "neg": []} for a, b, _ in GRADED))),
    "pairs with tabs in a .csv": ("x.csv", table([*PAIRS, *PAIRS[1:]], "\t")),
}
FEW = ["news", "forum", "mail", "talk"] * 6
REFUSED_TABLES = {  # a file that does not, and what the error names
    "a category by its order": ("x.csv", columns(left=MANY, register=FEW), "'register' holds 4 different values"),
    "a category as the anchor": ("x.csv", columns(register=FEW, left=MANY, right=MANY[::-1]), "'register' holds 4"),
    "links by their order": ("x.csv", columns(left=MANY, seen=[f"https://a/{row}" for row in range(24)]), "links"),
    "dates by their order": ("x.csv", columns(day=["2026-11-26", "2026-11-27"] * 12, left=MANY), "'day' holds dates"),
    "identifiers by their order": ("x.csv", columns(key=[f"doc_{row}" for row in range(24)], left=MANY), "'key'"),
    "nothing but metadata": ("x.csv", columns(genre=FEW, url=FEW), "genre, url"),
    "a carriage return in a cell": ("x.csv", "sent0,sent1\na\rb,c\n", "line 2"),
    "semicolons and a row with more": ("x.csv", "sent0;sent1\na;b;c\n", "line 2"),
    "semicolons and an open quote": ("x.csv", 'sent0;sent1\n"a;b\n', "line 2"),
    "positives in text after lists": (
        "x.jsonl",
        lines({"query": "a", "pos": ["b"]}, {"query": "c", "pos": "d"}),
        "pos",
    ),
    "a positive that is a number": ("x.jsonl", lines({"query": "a", "pos": ["b", 3]}), "'pos' holds 3"),
    "no positives": ("x.jsonl", lines({"query": "a", "pos": []}, {"query": "b", "pos": []}), "holds no sentences"),
    "lists of lists": ("x.jsonl", lines({"query": "a", "pos": [["b"]]}), "'pos' holds"),
    "negatives that are a number": ("x.jsonl", lines({"query": "a", "pos": ["b"], "neg": [7]}), "'neg' holds 7"),
}


def cases() -> Iterator[Case]:
    like = tuple(argument.replace("x.csv", "text.txt") for argument in ENCODE)
    for damage, (name, text) in SAME_TEXTS.items():
        arguments = [argument.replace("x.csv", name) for argument in ENCODE]
        yield _case("encode", damage, arguments, write(name, text), SAME, output="out.npy", like=like)
    for damage, text in SAME_PAIRS.items():
        arguments = ["--model=model", "--data=pairs.tsv", "--output=out.json"]
        yield _case("evaluate", damage, arguments, write("pairs.tsv", text), SAME, output="out.json")
    for damage, (name, text) in TRAINED.items():
        yield _case("train", damage, train_arguments("run", data__train=name), write(name, text), DONE)
    for damage, (name, text, names) in REFUSED_TABLES.items():
        make = write(name, text)
        yield _case("train", damage, train_arguments("run", data__train=name), make, REFUSED, names=names)
        if damage.endswith(("by their order", "lists", "a positive that is a number")):
            yield _case("mine", damage, [*MINE, f"--pairs={name}"], make, REFUSED, names=names)


def _case(command: str, damage: str, arguments: list[str], make: Make, end: str, **options: Any) -> Case:
    inputs = (*INPUTS, "train.csv") if command == "mine" else INPUTS
    return Case(KIND, command, damage, arguments, inputs, make, end, **options)
