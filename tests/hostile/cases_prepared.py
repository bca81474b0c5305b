"""Prepared corpora and folders of embeddings: damaged files, those of another command, and inputs that changed."""

import itertools
from collections.abc import Iterator
from pathlib import Path

from hostile.case import DONE, EITHER, REFUSED, Case, Reader
from hostile.damages import PLACES, Make, both, change, cut, flip, instead, remove, swap, write
from hostile.json_damages import WHOLE
from hostile.seeds import BLOCKS, PREPARE, train_arguments

CORPORA, EMBEDDINGS = "prepared corpora", "folders of embeddings"
OF_CORPUS = ["model", "text.txt", "pairs.tsv", "corpus"]
FROM_CORPUS = train_arguments("run", data__train="corpus")
TRAIN = Reader("train", FROM_CORPUS, OF_CORPUS, leaves=("run", "run/*"))  # a run may have begun when a row is read
IN_TURN = Reader("train", [*FROM_CORPUS, "--config.train.batch_size=12"], OF_CORPUS, leaves=("run", "run/*"))
PREPARING = Reader("prepare", PREPARE, OF_CORPUS)
ENCODE = Reader("encode", BLOCKS, ["model", "roberta", "text.txt", "blocks"])
BUILD = Reader("search", ["build", "--embeddings=blocks", "--output=out.lance"], ["blocks"])

CORPUS, SHARD = "corpus/corpus.json", "corpus/data-00000.arrow"
PLAN, ROWS, LIST = (f"blocks/.{name}.json" for name in ("plan", "rows-00000", "embeddings"))
FIRST, SECOND = (f"blocks/embeddings-00000-0000{number}.parquet" for number in range(2))
CHANGED = write("text.txt", "a cat\na dog\n")
BUCKETS = ("gs://", "gs:///x", "s3://bucket/x", "gs://no such bucket/x")
unfinished = both(remove(LIST), remove(SECOND))
OTHER_TOKENS = change(SHARD, lambda data: data[: len(data) // 2] + b"\xff" * (len(data) - len(data) // 2))
ZEROS = change(SHARD, lambda data: bytes(len(data)))  # what a disk has for what was lost


def others(name: str) -> Make:
    """Another program's file in a folder."""

    def make(folder: Path) -> None:
        (folder / name).mkdir()
        (folder / name / "thesis.tex").write_text("x")

    return both(remove(name), make)


def cases() -> Iterator[Case]:
    yield from reading_a_corpus()
    yield from preparing()
    yield from of_embeddings()


def reading_a_corpus() -> Iterator[Case]:
    for damage, changed in WHOLE.items():
        yield TRAIN.case(CORPORA, f"a manifest that is {damage}", change(CORPUS, changed), names="corpus.json")
    for share in (0, 0.3, 0.99):
        yield TRAIN.case(CORPORA, f"a shard cut to {share:.0%}", cut(SHARD, share), names=SHARD)
    yield IN_TURN.case(CORPORA, "a shard of zeros", ZEROS, names=SHARD)
    yield IN_TURN.case(CORPORA, "a shard with other tokens", OTHER_TOKENS, names=SHARD)
    for seed in range(4):
        yield IN_TURN.case(CORPORA, f"a shard changed by seed {seed}", flip(SHARD, seed, 200), EITHER)
    for damage, put in PLACES.items():
        yield TRAIN.case(CORPORA, f"a shard that is {damage}", instead(SHARD, put), names=SHARD)
    for field in ("max_length=32", "columns.anchor=text", "mixed=True", "augment.name=crop", "positives=all"):
        name = f"data.{field.partition('=')[0]}"
        yield TRAIN.case(CORPORA, f"another {name}", None, REFUSED, name, f"--config.data.{field}")
    other = TRAIN._replace(inputs=[*OF_CORPUS, "roberta"])
    yield other.case(CORPORA, "another tokenizer", None, REFUSED, "tokenizer", "--config.model.init_from=roberta")
    for name in BUCKETS:
        yield TRAIN.case(CORPORA, f"data.train={name}", None, REFUSED, name, f"--config.data.train={name}")


def preparing() -> Iterator[Case]:
    for option in ("max-length=8", "keep-text", "labels"):
        yield PREPARING.case(CORPORA, f"another --{option} into one folder", None, REFUSED, "", f"--{option}")
    yield PREPARING.case(CORPORA, "a source that was changed", CHANGED, names="another corpus")
    yield PREPARING.case(CORPORA, "into a folder with other files", others("corpus"), names="other files")
    verify = Reader("prepare", ["--output=corpus", "--verify"], OF_CORPUS)
    yield verify.case(CORPORA, "verify of other tokens", OTHER_TOKENS, names=SHARD)
    yield verify.case(CORPORA, "verify of a shard that is missing", remove(SHARD), names=SHARD)
    yield PREPARING.case(CORPORA, "verify with other options", None, REFUSED, "--data", "--verify")
    begins = PREPARING._replace(inputs=["model", "text.txt"], leaves=("corpus", "corpus/*"))
    for damage, put in PLACES.items():
        yield begins.case(CORPORA, f"data is {damage}", instead("text.txt", put), names="text.txt")
    for damage, data in {"empty": b"", "not UTF-8": b"a\ncaf\xe9\n", "UTF-16": "a\n".encode("utf-16")}.items():
        yield begins.case(CORPORA, f"data is {damage}", write("text.txt", data), names="text.txt")


def of_embeddings() -> Iterator[Case]:
    for number, (name, (damage, changed)) in enumerate(itertools.product((PLAN, ROWS, LIST), WHOLE.items())):
        if number % 3 == 0:
            yield ENCODE.case(EMBEDDINGS, f"{name} is {damage}", change(name, changed), EITHER, Path(name).name)
    for option in ("block-rows=5", "max-length=8", "pooler=avg", "output-dtype=float16", "model=roberta", "prompt=a"):
        name = option.partition("=")[0]
        yield ENCODE.case(EMBEDDINGS, f"another --{name} into one folder", None, REFUSED, name, f"--{option}")
    alone = ENCODE._replace(arguments=BLOCKS[:-1])
    yield alone.case(EMBEDDINGS, "without --keep-text", names="--keep-text")
    yield ENCODE.case(EMBEDDINGS, "an input that was changed", CHANGED, names="other embeddings")
    yield ENCODE.case(EMBEDDINGS, "an input that is missing", remove("text.txt"), names="text.txt")
    yield ENCODE.case(EMBEDDINGS, "into a folder with other files", others("blocks"), names="other files")
    for command, line, folder in (("encode", BLOCKS, "corpus"), ("prepare", PREPARE, "blocks")):
        reader = Reader(command, [*line, f"--output={folder}/"], ["model", "text.txt", folder])
        yield reader.case(EMBEDDINGS, f"into the folder {folder}", names="choose another folder")
    for share in (0, 0.3, 0.99):
        yield ENCODE.case(EMBEDDINGS, f"a block cut to {share:.0%}", both(remove(LIST), cut(FIRST, share)), names=FIRST)
        yield ENCODE.case(EMBEDDINGS, f"a block of a list cut to {share:.0%}", cut(FIRST, share), names=FIRST)
    swapped = both(remove(LIST), swap(FIRST, SECOND))
    yield ENCODE.case(EMBEDDINGS, "the blocks of one file under the names of another", swapped, names=FIRST)
    for damage, put in PLACES.items():
        yield ENCODE.case(EMBEDDINGS, f"a block that is {damage}", both(remove(LIST), instead(FIRST, put)), EITHER)
    options = {"data=*.jsonl": "no file matches", "data=text.txt,text.txt": "named twice", "output=model/": ""}
    options |= {"output=gs://bucket/emb.npy": "name a folder"}
    options |= {f"{option}={name}": name for option in ("output", "data") for name in BUCKETS}
    for option, names in options.items():
        yield ENCODE.case(EMBEDDINGS, f"--{option}", None, REFUSED, names, f"--{option}")
    for option in ("hosts=2", "parts=2", "save-every=5"):  # which have no effect here
        yield ENCODE.case(EMBEDDINGS, f"--{option}", None, DONE, "", f"--{option}")
    yield ENCODE.case(EMBEDDINGS, "complete", None, DONE)
    yield ENCODE.case(EMBEDDINGS, "unfinished", unfinished, DONE)
    yield BUILD.case(EMBEDDINGS, "an index of an unfinished folder", unfinished, names=LIST)
