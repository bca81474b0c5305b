"""Data files: damaged text, tables, JSON lines and parquet, for every command that reads data."""

import csv
import io
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow
import pyarrow.parquet
from hostile.case import DONE, EITHER, REFUSED, SAME, Case, Reader
from hostile.damages import PLACES, both, cut, flip, instead, unreadable, write
from hostile.line_damages import LINES, cells, of_lines, records
from hostile.seeds import GRADED, MINE, SENTENCES, train_arguments

KIND, OTHERS = "data files", "tables of other programs"
INPUTS, LEAVES = ["model", "text.txt", "pairs.tsv"], ("run", "run/*")
TUNED = ("--model=model", "--workdir=run", "--config.train.max_steps=1")


def reader(command: str, *line: str, output: str = "", inputs: Sequence[str] = INPUTS) -> Reader:
    return Reader(command, line, inputs, output, LEAVES if command in ("train", "tune") else ())


def of_sentences(name: str) -> list[Reader]:
    """The commands that read sentences from this file."""
    given = ["--model=model", f"--data={name}"]
    return [
        reader("encode", *given, "--output=out.npy", output="out.npy"),
        reader("search", *given, "--query=a", "--output=out.json", output="out.json"),
        reader("search", "--model=model", "--data=text.txt", f"--queries={name}", "--output=out.json"),
        reader("analyze", *given, "--output=out"),
        reader("train", *train_arguments("run", data__train=name)),
        reader("demo", *given, "--port=0"),
        reader("tune", *TUNED, f"--data={name}"),
        reader("train", *train_arguments("run", analysis__every=1, analysis__data=name)),
    ]


def of_pairs(name: str) -> list[Reader]:
    """The commands that read graded pairs from this file; the last two need no scores, or more pairs."""
    return [
        reader("evaluate", "--model=model", f"--data={name}", "--output=out.json", output="out.json"),
        reader("geometry", "--models=model", f"--data={name}", "--output=out"),
        reader("train", *train_arguments("run", eval__data=name)),
        reader("tune", *TUNED, "--data=text.txt", f"--eval={name}"),
        reader("overlap", name),
    ]


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    """A table as the bytes of a file."""
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink, **options)
    return sink.getvalue()


def invalid_strings(rows: int) -> pyarrow.Array:
    """A column of strings that are not UTF-8."""
    offsets = pyarrow.py_buffer(b"".join((4 * i).to_bytes(4, "little") for i in range(rows + 1)))
    return pyarrow.StringArray.from_buffers(rows, offsets, pyarrow.py_buffer(b"caf\xe9" * rows))


WORDS, N = pyarrow.array(SENTENCES), len(SENTENCES)
LATE = pyarrow.array([2**62] * N, pyarrow.timestamp("us"))
REFUSED_PARQUETS: dict[str, bytes] = {
    "no rows": parquet({"sentence": pyarrow.array([], pyarrow.string())}),
    "no columns": parquet({}),
    "a column of numbers": parquet({"sentence": list(range(N))}),
    "invalid UTF-8": parquet({"sentence": invalid_strings(N)}),
    "a surrogate's bytes in a name": parquet({"sentence": WORDS}).replace(b"sentence", b"sent\xed\xa0\x80e"),
}
READ_PARQUETS: dict[str, bytes] = {  # or refused
    "a null": parquet({"sentence": [*SENTENCES[:-1], None]}),
    "only nulls": parquet({"sentence": pyarrow.nulls(N)}),
    "invalid UTF-8 in another column": parquet({"sentence": WORDS, "other": invalid_strings(N)}),
    "a time out of range": parquet({"sentence": WORDS, "t": LATE}),
}
WHOLE = write("x.parquet", parquet({"sentence": WORDS, "other": list(range(N))}))


def table(rows: Sequence[Sequence[Any]], separator: str, quoting: int = csv.QUOTE_MINIMAL, end: str = "\n") -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=separator, quoting=quoting, lineterminator=end).writerows(rows)
    return text.getvalue()


def columns(**named: Sequence[str]) -> str:
    return table([list(named), *zip(*named.values(), strict=True)], ",")


TEXT = "\n".join(SENTENCES) + "\n"
TEXTS = [["sentence", "row"], *([text, row] for row, text in enumerate(SENTENCES))]
PAIRS = [["sentence1", "sentence2", "score"], *map(list, GRADED)]
MANY = [f"{text} {row}" for row, text in enumerate(SENTENCES * 2)]
FEW = ["news", "forum", "mail", "talk"] * 6
IN_REPORTS = [  # with the highest score, so that the run's report shows them
    ["<script>alert(1)</script>", "\u202e\u0645\u0631\u062d\u0628\u0627", "9"],
    ["\U0001f469\u200d\U0001f467 x", "y" * 100_000, "9"],
]
SAME_TEXTS: dict[str, tuple[str, bytes | str]] = {  # the sentences of text.txt: a file's name and contents
    "a mark of UTF-8": ("text.txt", "\ufeff" + TEXT),
    "CRLF": ("text.txt", TEXT.replace("\n", "\r\n")),
    "no last line break": ("text.txt", TEXT[:-1]),
    "parquet with a dictionary": ("x.parquet", parquet({"sentence": WORDS.dictionary_encode()})),
    "parquet with large strings": ("x.parquet", parquet({"sentence": WORDS.cast(pyarrow.large_string())})),
    "semicolons": ("x.csv", table(TEXTS, ";", end="\r\n")),
    "semicolons after a mark of UTF-8": ("x.csv", "\ufeff" + table(TEXTS, ";")),
    "tabs": ("x.csv", table(TEXTS, "\t")),
    "a line that says its separator": ("x.csv", "sep=;\n" + table(TEXTS, ";")),
    "commas in a .tsv": ("x.tsv", table(TEXTS, ",")),
    "all quoted in a .tsv": ("x.tsv", table(TEXTS, "\t", csv.QUOTE_ALL)),
}
SAME_PAIRS = {"text quoted": table(PAIRS, "\t", csv.QUOTE_NONNUMERIC), "semicolons": table(PAIRS, ";")}
SAME_PAIRS |= {"empty cells at the end": table([[*row, "", ""] for row in PAIRS], "\t").replace("score\t\t", "score")}
LISTS = "".join(f'{{"query": "{a}", "pos": ["{b}", "{a}"], "neg": []}}\n' for a, b, _ in GRADED)
TRAINED = {  # a file that trains
    "a category first": ("x.csv", columns(genre=["news", "forum"] * 12, sentence1=MANY, sentence2=MANY[::-1])),
    "FlagEmbedding's lists": ("x.jsonl", LISTS),
    "pairs with tabs in a .csv": ("x.csv", table([*PAIRS, *PAIRS[1:]], "\t")),
}
UNTRAINED = {  # a file that does not, and what the error names
    "a category by its order": ("x.csv", columns(left=MANY, register=FEW), "'register' holds 4 different values"),
    "links by their order": ("x.csv", columns(left=MANY, seen=["https://a"] * 24), "no sentences"),
    "nothing but metadata": ("x.csv", columns(genre=FEW, url=FEW), "genre, url"),
    "a carriage return in a cell": ("x.csv", "sent0,sent1\na\rb,c\n", "line 2"),
    "semicolons and an open quote": ("x.csv", 'sent0;sent1\n"a;b\n', "line 2"),
    "a positive that is a number": ("x.jsonl", '{"query": "a", "pos": ["b", 3]}\n', "'pos' holds 3"),
    "no positives": ("x.jsonl", '{"query": "a", "pos": []}\n', "holds no pairs"),
}


def cases() -> Iterator[Case]:
    yield from of_lines(KIND, of_sentences("x.txt"), "x.txt", LINES, write("x.txt", TEXT))
    yield from of_lines(KIND, of_pairs("x.tsv")[:3], "x.tsv", LINES | cells("\t"), write("x.tsv", table(PAIRS, "\t")))
    texts = write("x.csv", table(TEXTS, ","))
    yield from of_lines(KIND, of_sentences("x.csv"), "x.csv", cells(",", numbers=False), texts)
    sentences = write("x.jsonl", "".join(f'{{"sentence": "{text}"}}\n' for text in SENTENCES))
    yield from of_lines(KIND, of_sentences("x.jsonl"), "x.jsonl", LINES | records("sentence", "\ud800"), sentences)
    readers, turns = of_sentences("x.parquet"), itertools.cycle(of_sentences("x.parquet"))
    for damage, data in REFUSED_PARQUETS.items():
        for each in (next(turns), next(turns)):
            yield each.case(KIND, f"{each.arguments[1]} {damage}", write("x.parquet", data), names="x.parquet")
    for damage, data in READ_PARQUETS.items():
        yield readers[0].case(KIND, f"parquet with {damage}", write("x.parquet", data), EITHER)
    for seed in range(12):
        damage = both(WHOLE, flip("x.parquet", seed))
        yield readers[seed % 3].case(KIND, f"parquet changed by seed {seed}", damage, EITHER)
    for share in (0, 0.01, 0.5, 0.99):
        yield next(turns).case(KIND, f"parquet cut to {share}", both(WHOLE, cut("x.parquet", share)), names="x.parquet")
    for each in [*of_sentences("x.txt"), *of_pairs("x.tsv")]:
        name = "x.tsv" if each.arguments in [other.arguments for other in of_pairs("x.tsv")] else "x.txt"
        option = next(argument for argument in each.arguments if argument.endswith(name))
        data = write(name, TEXT if name == "x.txt" else table(PAIRS, "\t"))
        yield each.case(KIND, f"{option} may not be read", both(data, unreadable(name)), REFUSED, name, drop=True)
        yield each.case(KIND, f"{option} is missing", instead(name, PLACES["missing"]), names=name)
    yield from tables()


def tables() -> Iterator[Case]:
    """Tables as spreadsheets, pandas and other projects write them: separators, quotation marks, columns and lists."""
    like = tuple(of_sentences("text.txt")[0].arguments)
    for damage, (name, data) in SAME_TEXTS.items():
        line = of_sentences(name)[0].arguments
        yield Case(OTHERS, "encode", damage, line, INPUTS, write(name, data), SAME, output="out.npy", like=like)
    for damage, text in SAME_PAIRS.items():
        yield of_pairs("pairs.tsv")[0].case(OTHERS, damage, write("pairs.tsv", text), SAME)
    shown = write("pairs.tsv", table([*PAIRS, *IN_REPORTS], "\t"))
    yield of_sentences("text.txt")[4].case(OTHERS, "texts that a page must not run", shown, DONE)
    for damage, (name, text) in TRAINED.items():
        yield of_sentences(name)[4].case(OTHERS, damage, write(name, text), DONE)
    for number, (damage, (name, text, names)) in enumerate(UNTRAINED.items()):
        mine = reader("mine", *MINE, f"--pairs={name}", inputs=[*INPUTS, "train.csv"])
        chosen = mine if number in (0, 6) else of_sentences(name)[4]
        yield chosen.case(OTHERS, damage, write(name, text), names=names)
