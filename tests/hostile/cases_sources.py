"""Sources of a run: lists of them, weights, prompts, lengths and batches; downloads that training files are made of."""

import bz2
import gzip
import itertools
from collections.abc import Iterator
from pathlib import Path

from hostile.case import EITHER, REFUSED, Case, Reader
from hostile.cases_options import CHOICES, NAMES, NUMBERS
from hostile.damages import Make, both, write
from hostile.json_damages import Change
from hostile.line_damages import LINES, cells, of_lines, records
from hostile.seeds import train_arguments

FILES, SEVERAL = "data files", "several sources"
ROW = '{"gold_label": "%s", "sentence1": "A man eats.", "sentence2": "He %s."}\n'
NLI = ROW % ("entailment", "eats") + ROW % ("contradiction", "sleeps")
PAGE = "<page><title>A</title><ns>0</ns><revision><text>One. Two.</text></revision></page>"
DUMP = f"<mediawiki>{PAGE * 3}</mediawiki>"
PACKED = gzip.compress(DUMP.encode())
BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in itertools.pairwise("abcdefghi")
)
HEAD = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
ARTICLE = '{"text": "It is so. It was."}\n'
FORMS: list[tuple[str, str, str, dict[str, Change]]] = [  # builder, file, content, damages of it alone
    ("nli", "x.jsonl", NLI * 3, LINES | records("gold_label", "sentence1", "sentence2")),
    ("qqp", "x.tsv", HEAD + "1\t2\t3\ta cat\tthe cat\t1\n" * 3, LINES | cells("\t")),
    ("wiki_documents", "a.jsonl", ARTICLE * 3, records("text")),
    ("flickr_pairs", "x.token", "1.jpg#0\ta cat\n1.jpg#1\ta dog\n", cells("\t", numbers=False)),
]
DOWNLOADS: dict[str, tuple[str, str, bytes | str]] = {  # builder, file, content
    "no neutral sentence": ("nli_neutral", "x.jsonl", NLI),
    "paraphrases of zero bytes": ("paranmt", "x.txt", b"\0" * 4096),
    "captions with bars in a token file": ("flickr_captions", "x.token", "1.jpg| 0| a cat\n"),
    "a dump that is cut": ("wiki_sentences", "x.xml", DUMP[:-30]),
    "a packed dump that is cut": ("wiki_documents", "x.bz2", bz2.compress(DUMP.encode())[:-9]),
    "a packed dump of other bytes": ("wiki_documents", "x.gz", PACKED[:40] + b"\xff" * 40),
    "a dump of no encoding": ("wiki_documents", "x.xml", f'<?xml version="1.0" encoding="none"?>{DUMP}'),
    "a dump that is a page": ("wiki_sentences", "x.xml", "<html><body>a</body></html>"),
    "a dump that grows": ("wiki_sentences", "x.xml", f"{BOMB}]><mediawiki><page>&i;</page></mediawiki>"),
}
LARGE: dict[str, tuple[str, str, str]] = {  # or read
    "a premise of spaces": ("nli", "x.jsonl", NLI.replace("man ", "man" + " " * 100_000)),
    "an article of points": ("wiki_documents", "x.jsonl", '{"text": "A ' + "." * 100_000 + 'x."}\n'),
    "an article of a megabyte": ("wiki_documents", "x.jsonl", '{"text": "' + "It is so. " * 100_000 + '"}\n'),
    "an article without an end": ("wiki_documents", "x.jsonl", '{"text": "' + ". " * 100_000 + '"}\n'),
}
TRIPLETS = write("train.csv", "sent0,sent1,hard_neg\n" + "".join(f"a {n},b {n},c {n}\n" for n in range(9)))
COMMA = write("a,b.txt", "a cat\n" * 12)


def cut_sets(folder: Path) -> None:
    """SentEval's folder with one file, whose last line is cut off."""
    (folder / "sets" / "SICK").mkdir(parents=True)
    (folder / "sets" / "SICK" / "SICK_train.txt").write_text("a header\n1\ta cat\ta dog\n2\ta ca")


LISTS: dict[str, tuple[str, str, Make | None, str]] = {  # data.train, a field, damage, what the error names
    "nothing between two commas": ("text.txt,,train.csv", "", None, "source 2 of 3"),
    "a source that is missing": ("text.txt,none.txt", "", None, "none.txt"),
    "a source twice": ("text.txt,text.txt", "", None, "twice"),
    "sources of two kinds": ("text.txt,train.csv", "", None, "data.mixed"),
    "a quotation mark without an end": ('text.txt,"train.csv', "", None, "double quotes"),
    "a second source that is not UTF-8": ("text.txt,x.txt", "", write("x.txt", b"caf\xe9\n"), "x.txt: line 1"),
    "similarity sets that are not there": ("text.txt,sts:none", "", None, "sts:none: no such folder"),
    "a similarity set that is cut off": ("sts:sets", "", cut_sets, "SICK_train.txt: line 3"),
    "sentences for pairs of one's own": ("train.csv", "objective.contrastive_tension.weight=1", None, "contrastive_"),
}
LISTS_READ = {"mixed sources": ("text.txt,train.csv", "data.mixed=True"), "a name with a comma": ("a,b.txt", "seed=1")}
LISTS_READ |= {"a name with a comma in a list": ('text.txt,"a,b.txt"', "seed=1")}
WRONG: dict[str, tuple[str, str]] = {  # the fields, and what the error names
    "a weight for one of two": ("data.weights=1", "data.weights=1: 1 weights"),
    "a weight that is NaN": ("data.weights=nan,1", "data.weights"),
    "a weight that gives no row": ("data.weights=1e-20,1", "text.txt"),
    "a source smaller than a batch of its own": ("data.batching=one_source data.train=text.txt,more.txt", "more.txt"),
    "a length beyond the positions": ("data.lengths.positive=65", "data.lengths.positive=65"),
    "a prompt with an open quotation mark": ('data.prompts.anchor="a,b', "data.prompts.anchor"),
    "a prompt that fills the length": (f"data.prompts.anchor={'cat.' * 20}", "data.prompts.anchor"),
    "a prepared corpus and a file": ("data.train=corpus,train.csv data.mixed=False", "train.csv is not"),
}


def building(builder: str, name: str) -> Reader:
    """A training file made of this download."""
    output = "out.txt" if builder in ("nli_sentences", "flickr_captions") or "wiki" in builder else "out.csv"
    return Reader("build-data", [builder, f"--source={name}", f"--output={output}"])


def cases() -> Iterator[Case]:
    for builder, name, content, damages in FORMS:
        yield from of_lines(FILES, [building(builder, name)], name, damages, write(name, content))
    for downloads, end in ((DOWNLOADS, REFUSED), (LARGE, EITHER)):
        for damage, (builder, name, content) in downloads.items():
            yield building(builder, name).case(FILES, damage, write(name, content), end, name if end == REFUSED else "")
    inputs = ["model", "text.txt", "pairs.tsv"]
    for damage, (sources, field, make, names) in LISTS.items():
        fields = [field] if field else []
        fields += ["data.mixed=True"] if damage.startswith("mixed") else []
        fields += ["objective.info_nce.weight=0.0"] if "contrastive" in field else []
        train = Reader("train", train_arguments("run", data__train=sources), inputs)
        more = [f"--config.{each}" for each in fields]
        yield train.case(FILES, damage, both(TRIPLETS, make) if make else TRIPLETS, REFUSED, names, *more)
    for damage, (sources, field) in LISTS_READ.items():
        train = Reader("train", train_arguments("run", data__train=sources), inputs)
        yield train.case(FILES, damage, both(TRIPLETS, COMMA), EITHER, "", f"--config.{field}")
    line = train_arguments("run", data__train="text.txt,train.csv", data__mixed=True)
    several = Reader("train", line, [*inputs, "train.csv", "corpus"])
    for damage, (fields, names) in WRONG.items():
        more = [f"--config.{field}" for field in fields.split()]
        yield several.case(SEVERAL, damage, write("more.txt", "a cat\na dog\n"), REFUSED, names, *more)
    yield from options()


def options() -> Iterator[Case]:
    """Of `build-data`, each with some of the values that there are."""

    def option(builder: str, name: str, damage: str, value: str, output: str) -> Case:
        given = {"--source": "x.jsonl", "--output": output} | {name: value}
        reader = Reader("build-data", [builder, *(f"{key}={text}" for key, text in given.items())])
        return reader.case("options", f"{name} is {damage}", articles, EITHER)

    articles = write("x.jsonl", NLI.replace("}", ', "text": "It is so. It was."}'))
    names, numbers = itertools.cycle(NAMES.items()), itertools.cycle(NUMBERS.items())
    for name in ("--source", "--split", "--output"):
        for damage, value in itertools.islice(names, 4):
            yield option("nli_sentences", name, damage, value, "out.txt")
    for name in ("--seed", "--count"):
        for damage, value in itertools.islice(numbers, 7):
            yield option("wiki_sentences", name, damage, value, "out.txt")
    for damage, value in CHOICES.items():
        yield option("nli", "--hypothesis", damage, value, "out.csv")
        yield option("nli", "--draw", damage, value, "out.csv")
        yield Reader("build-data", [value, "--source=x.jsonl"]).case("options", f"the file is {damage}")
