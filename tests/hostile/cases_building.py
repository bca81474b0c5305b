"""Lists of sources for training, and downloads that the papers' training files are made of."""

import bz2
import gzip
from collections.abc import Iterator
from pathlib import Path

from hostile.case import EITHER, REFUSED, Case
from hostile.cases_options import CHOICES, NAMES, NUMBERS
from hostile.damages import Make, both, write
from hostile.seeds import train_arguments

KIND = "data files"
ROW = '{"gold_label": "%s", "sentence1": "A man eats.", "sentence2": "He %s."}\n'
NLI = ROW % ("entailment", "eats") + ROW % ("contradiction", "sleeps")
PAGE = "<page><title>A</title><ns>0</ns><revision><text>One. Two.</text></revision></page>"
DUMP = f"<mediawiki>{PAGE * 3}</mediawiki>"
PACKED = gzip.compress(DUMP.encode())
BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
HEAD = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"

DOWNLOADS: dict[str, tuple[str, str, bytes | str, str]] = {  # builder, file, content, end
    "a label that is a word": ("nli", "x.jsonl", NLI + ROW % ("perhaps", "x"), REFUSED),
    "a label of 5,000 digits": ("nli", "x.jsonl", NLI + ROW % ("9" * 5000, "x"), REFUSED),
    "a line that ends early": ("nli", "x.jsonl", NLI + NLI[:40], REFUSED),
    "a line that is a list": ("nli", "x.jsonl", NLI + "[]\n", REFUSED),
    "no hypothesis": ("nli_pairs", "x.jsonl", NLI + '{"gold_label": "neutral", "sentence1": "a"}\n', REFUSED),
    "a premise that is a number": ("nli", "x.jsonl", NLI.replace('"A man eats."', "3"), REFUSED),
    "half a character": ("nli", "x.jsonl", NLI.replace("He ", "\\ud800"), REFUSED),
    "a zero character": ("nli_sentences", "x.jsonl", NLI.replace("He ", "\\u0000"), REFUSED),
    "other columns": ("nli", "x.jsonl", '{"text": "a"}\n', REFUSED),
    "no contradiction": ("nli", "x.jsonl", ROW % ("entailment", "eats"), REFUSED),
    "no neutral sentence": ("nli_neutral", "x.jsonl", NLI, REFUSED),
    "only pairs without labels": ("nli_pairs", "x.jsonl", ROW % ("-", "eats"), REFUSED),
    "no NLI": ("nli_anli", "x.jsonl", "", REFUSED),
    "a packed download": ("nli", "x.zip", b"PK\x03\x04rest", REFUSED),
    "questions that are no pairs": ("qqp", "x.tsv", "a\tb\n1\t2\n", REFUSED),
    "a duplicate that is perhaps one": ("qqp", "x.tsv", HEAD + "1\t2\t3\ta\tb\t0.5\n", REFUSED),
    "no duplicates": ("qqp", "x.tsv", HEAD + "1\t2\t3\ta\tb\t0\n", REFUSED),
    "questions of other bytes": ("qqp", "x.tsv", HEAD.encode() + b"1\t2\t3\tcaf\xe9\tb\t1\n", REFUSED),
    "paraphrases without tabs": ("paranmt", "x.txt", "a cat\nthe dog\n", REFUSED),
    "paraphrases of zero bytes": ("paranmt", "x.txt", b"\0" * 4096, REFUSED),
    "captions of no image": ("flickr_pairs", "x.token", "a cat\n", REFUSED),
    "one caption an image": ("flickr_pairs", "x.token", "1.jpg#0\ta cat\n2.jpg#0\ta dog\n", REFUSED),
    "captions with bars in a token file": ("flickr_captions", "x.token", "1.jpg| 0| a cat\n", REFUSED),
    "a dump of no pages": ("wiki_sentences", "x.xml", "<mediawiki></mediawiki>", REFUSED),
    "a dump that is cut": ("wiki_sentences", "x.xml", DUMP[:-30], REFUSED),
    "a packed dump that is cut": ("wiki_documents", "x.bz2", bz2.compress(DUMP.encode())[:-9], REFUSED),
    "a packed dump of other bytes": ("wiki_documents", "x.gz", PACKED[:40] + b"\xff" * 40, REFUSED),
    "a dump of no encoding": ("wiki_documents", "x.xml", f'<?xml version="1.0" encoding="none"?>{DUMP}', REFUSED),
    "an article with a zero character": ("wiki_documents", "x.jsonl", '{"text": "A \\u0000."}\n', REFUSED),
    "an article of points": ("wiki_documents", "x.jsonl", '{"text": "A ' + "." * 100_000 + 'x."}\n', EITHER),
    "a premise of spaces": ("nli", "x.jsonl", NLI.replace("man ", "man" + " " * 100_000), EITHER),
    "a dump that is not packed": ("wiki_documents", "x.bz2", DUMP, REFUSED),
    "a dump that is a page": ("wiki_sentences", "x.xml", "<html><body>a</body></html>", REFUSED),
    "a dump that grows": ("wiki_sentences", "x.xml", f"{BOMB}]><mediawiki><page>&i;</page></mediawiki>", REFUSED),
    "articles that are numbers": ("wiki_documents", "x.jsonl", '{"text": 3}\n', REFUSED),
    "articles of blanks": ("wiki_documents", "x.jsonl", '{"text": " \\n"}\n', REFUSED),
    "an article of a megabyte": ("wiki_documents", "x.jsonl", '{"text": "' + "It is so. " * 100_000 + '"}\n', EITHER),
    "an article without an end": ("wiki_documents", "x.jsonl", '{"text": "' + ". " * 100_000 + '"}\n', EITHER),
}

TRIPLETS = "sent0,sent1,hard_neg\n" + "".join(f"a {n},b {n},c {n}\n" for n in range(9))


def cut_sets(folder: Path) -> None:
    """SentEval's folder with one file, whose last line is cut off."""
    (folder / "sets" / "SICK").mkdir(parents=True)
    (folder / "sets" / "SICK" / "SICK_train.txt").write_text("a header\n1\ta cat\ta dog\n2\ta ca")


LISTS: dict[str, tuple[str, dict, Make | None, str, str]] = {  # data.train, fields, damage, end, named
    "nothing between two commas": ("text.txt,,train.csv", {}, None, REFUSED, "source 2 of 3"),
    "a comma at the end": ("text.txt,", {}, None, REFUSED, "source 2 of 2"),
    "a comma alone": (",", {}, None, REFUSED, "no name"),
    "a source that is missing": ("text.txt,none.txt", {}, None, REFUSED, "none.txt"),
    "a source that is a folder": ("text.txt,model", {}, None, REFUSED, "model"),
    "a source twice": ("text.txt,text.txt", {}, None, REFUSED, "twice"),
    "sources of two kinds": ("text.txt,train.csv", {}, None, REFUSED, "data.mixed"),
    "mixed sources": ("text.txt,train.csv", {"data__mixed": True}, None, EITHER, ""),
    "mixed sources of which one has labels": (
        "text.txt,train.csv",
        {"data__mixed": True, "data__columns__label": "label"},
        None,
        REFUSED,
        "text.txt",
    ),
    "mixed sources with a change": (
        "text.txt,train.csv",
        {"data__mixed": True, "data__augment__name": "crop"},
        None,
        REFUSED,
        "augment",
    ),
    "a quotation mark without an end": ('text.txt,"train.csv', {}, None, REFUSED, "double quotes"),
    "a name with a comma": ("a,b.txt", {}, write("a,b.txt", "a cat\n" * 12), EITHER, ""),
    "a name with a comma in a list": ('text.txt,"a,b.txt"', {}, write("a,b.txt", "a cat\n" * 12), EITHER, ""),
    "a name with a comma in a list without quotes": ("text.txt,a,b.txt", {}, write("a,b.txt", "a cat\n"), REFUSED, ""),
    "a second source that is not UTF-8": (
        "text.txt,x.txt",
        {},
        write("x.txt", b"caf\xe9\n"),
        REFUSED,
        "x.txt: line 1",
    ),
    "a workdir's name in a list": ("text.txt,hf:", {}, None, REFUSED, "hf:"),
    "similarity sets that are not there": ("text.txt,sts:none", {}, None, REFUSED, "sts:none: no such folder"),
    "a folder without similarity sets": ("sts:model", {}, None, REFUSED, "no STS set there"),
    "a similarity set that is cut off": (
        "sts:sets",
        {},
        cut_sets,
        REFUSED,
        "SICK_train.txt: line 3",
    ),
    "sentences for pairs of one's own": (
        "train.csv",
        {"objective__info_nce__weight": 0.0, "objective__contrastive_tension__weight": 1.0},
        None,
        REFUSED,
        "contrastive_tension",
    ),
    "hard negatives and both views'": (
        "train.csv",
        {"objective__info_nce__negatives": "both"},
        None,
        REFUSED,
        "negatives=both",
    ),
}


def cases() -> Iterator[Case]:
    for damage, (builder, name, content, end) in DOWNLOADS.items():
        output = "out.txt" if builder in ("nli_sentences", "flickr_captions") or "wiki" in builder else "out.csv"
        arguments = [builder, f"--source={name}", f"--output={output}"]
        yield Case(KIND, "build-data", damage, arguments, (), write(name, content), end, name if end == REFUSED else "")
    for damage, (train, fields, make, end, named) in LISTS.items():
        arguments = train_arguments("run", data__train=train, **fields)
        further = (both(write("train.csv", TRIPLETS), make) if make else write("train.csv", TRIPLETS),)
        yield Case(KIND, "train", damage, arguments, ("model", "text.txt", "pairs.tsv"), *further, end, named)
    for option, values in {"--source": NAMES, "--split": NAMES, "--seed": NUMBERS, "--count": NUMBERS}.items():
        for name, value in values.items():
            given = {"--source": "x.jsonl", "--output": "out.txt"} | {option: value}
            builder = "nli_sentences" if option in ("--split", "--source") else "wiki_sentences"
            yield _option(builder, f"{option} is {name}", given)
    for option in ("--hypothesis", "--draw"):
        for name, value in CHOICES.items():
            yield _option("nli", f"{option} is {name}", {"--source": "x.jsonl", "--output": "out.csv", option: value})
    for name, value in NAMES.items():
        yield _option("nli", f"--output is {name}", {"--source": "x.jsonl", "--output": value})
    for name, value in CHOICES.items():
        yield Case("options", "build-data", f"the file is {name}", [value, "--source=x.jsonl"], ())


def _option(builder: str, damage: str, given: dict[str, str]) -> Case:
    arguments = [builder, *(f"{key}={value}" for key, value in given.items())]
    make = write("x.jsonl", NLI.replace("}", ', "text": "It is so. It was."}'))
    return Case("options", "build-data", damage, arguments, (), make, EITHER)
