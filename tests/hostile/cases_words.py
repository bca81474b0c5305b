"""Word vectors: files in GloVe's format, and sentence-transformers' module of them."""

import gzip
import itertools
from collections.abc import Iterator

from hostile.case import DONE, REFUSED, TEXT, Case, Reader
from hostile.damages import write
from hostile.line_damages import LINES, cells, of_lines
from hostile.readers import readers_of_model
from hostile.seeds import train_arguments

KIND = "word vectors"
FILE = "vectors.txt"
ROWS = "the 1.5 2 -3\ncat 0 1 2\na 2 2 2.5\n"
READ: dict[str, str | bytes] = {"none": ROWS, "with a header": f"3 3\n{ROWS}"}
READ |= {"compressed": gzip.compress(ROWS.encode()), "words with spaces": ROWS.replace("cat", ". . 1 2 3\ncat")}
READ |= {"a byte-order mark and a header": f"\ufeff3 3\n{ROWS}"}
WRONG: dict[str, str | bytes] = {"words alone": "the\ncat\n"}
WRONG |= {"a header of a huge width": f"3 {10**12}\n{ROWS}", "tabs": ROWS.replace(" ", "\t")}
WRONG |= {"compressed and cut short": gzip.compress(ROWS.encode() * 100)[:-30]}
NAMES = ("glove:", "glove:none-such.txt", "glove:.", "glove+upper:vectors.txt")


def cases() -> Iterator[Case]:
    def readers(name: str) -> dict[str, Reader]:
        return {reader.command: reader._replace(inputs=reader.inputs[1:]) for reader in readers_of_model(name)}

    of_file = readers(f"glove:{FILE}")
    both_readers = [of_file["encode"], of_file["evaluate"]]
    turns = itertools.cycle(both_readers)
    yield from of_lines(KIND, both_readers, FILE, LINES | cells(" "), write(FILE, ROWS))
    for damage, content in READ.items():
        yield next(turns).case(KIND, damage, write(FILE, content), DONE)
    for damage, content in WRONG.items():
        yield next(turns).case(KIND, damage, write(FILE, content), REFUSED, FILE)
    for name in NAMES:
        yield readers(name)["encode"].case(KIND, f"the name {name}", write(FILE, ROWS), names="glove")
    for command in ("analyze", "train"):
        yield of_file[command].case(KIND, "no layers", write(FILE, ROWS), names=FILE)
    for damage, changes in {
        "no layers, the pooler cls": {"model__pooler": "cls"},
        "no layers, a language model": {"objective__mlm__weight": 0.1, "model__pooler": "avg"},
        "no layers, measured": {"analysis__every": 1, "model__pooler": "avg"},
    }.items():
        line = train_arguments("run", model__init_from=f"glove:{FILE}", train__max_steps=0, **changes)
        yield Reader("train", line, [TEXT, "pairs.tsv"]).case(KIND, damage, write(FILE, ROWS), names=FILE)
