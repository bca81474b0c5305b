"""Hard negatives: pairs and corpora that `mine` cannot use, numbers out of range, and what an earlier call left."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hostile.case import DONE, REFUSED, SAME, Case
from hostile.damages import PLACES, Make, as_earlier, both, copy, cut, instead, remove, write
from hostile.json_damages import WHOLE, change_json
from hostile.seeds import MINE, MINED
from safetensors.numpy import load_file, save_file
from support.cross_encoders import write_cross_encoder

KIND = "hard negatives"
INPUTS = ("model", "text.txt", "train.csv")
PAIRS, PARTIAL, STATE = "x.csv", "mined/.out.jsonl.partial", "mined/.out.jsonl.state.json"
HEAD = "sent0,sent1\na cat,the cat sat\n"
ROWS = "sent0,sent1,positive_row\na cat,the cat sat,0\n"
ON_PAIRS, ON_ROWS = [*MINE, f"--pairs={PAIRS}"], [*MINE, f"--pairs={PAIRS}", "--corpus=rows.npy"]

FILES: dict[str, tuple[str | bytes, str, str]] = {  # of pairs: the file, how it ends, and what the error names
    "empty": ("", REFUSED, PAIRS),
    "a header alone": ("sent0,sent1\n", REFUSED, "holds no pairs"),
    "blank rows alone": ("sent0,sent1\n,\n ,a\n", REFUSED, "holds no pairs"),
    "one column": ("sent0\na cat\n", REFUSED, "one column of sentences"),
    "columns of other names": ("w,x,y,z\n1,2,3,4\n", REFUSED, "--columns anchor=NAME"),
    "a column twice": ("sent0,sent1,sent1\na,b,c\n", REFUSED, "sent1"),
    "scores in place of positives": ("sent0,score\na cat,0.5\n", REFUSED, "one column of sentences"),
    "a row with too many cells": (HEAD + "a,b,c\n", REFUSED, "line 3"),
    "a row with too few cells": (HEAD + "a\n", REFUSED, "line 3"),
    "an open quote": (HEAD + '"a,b\n', REFUSED, PAIRS),
    "not UTF-8": (HEAD.encode() + b"caf\xe9,b\n", REFUSED, PAIRS),
    "binary": (bytes(range(256)) * 16, REFUSED, PAIRS),
    "a blank row among others": (HEAD + ",\n", DONE, ""),
    "the same pair many times": (HEAD + "a cat,the cat sat\n" * 50, DONE, ""),
}
SETTINGS = "config_sentence_transformers.json"
NUMBERED_PROMPT = '{"model_type": "CrossEncoder", "prompts": {"query": 3}}'


def judge(folder: Path) -> None:
    """A cross-encoder."""
    write_cross_encoder(folder / "judge")


def edit_tensors(name: str, drop: str = "", nan: str = "") -> Make:
    """Leaves out a tensor of a model, or makes it NaN."""

    def make(folder: Path) -> None:
        file = folder / name / "model.safetensors"
        tensors = {each: value for each, value in load_file(file).items() if each != drop}
        tensors |= {nan: tensors[nan] * np.float32("nan")} if nan else {}
        save_file(tensors, file, metadata={"format": "pt"})

    return make


def softmax(config: dict[str, Any]) -> None:
    """An activation that is not supported."""
    config["sentence_transformers"] = {"activation_fn": "torch.nn.modules.activation.Softmax"}


def of_nomic(config: dict[str, Any]) -> None:
    """A type without such a head."""
    config.update(model_type="nomic_bert", hidden_act="silu", rope_parameters={"rope_theta": 100.0})


NUMBERED: dict[str, tuple[str, str]] = {  # with rows of a corpus that has no text
    "no numbers of rows": (HEAD, "positive_row"),
    "a word as a row": (ROWS + "a,b,first\n", "positive_row"),
    "an empty row": (ROWS + "a,b,\n", "positive_row"),
    "a row below zero": (ROWS + "a,b,-1\n", "positive_row"),
    "a fraction as a row": (ROWS + "a,b,1.5\n", "positive_row"),
    "a row of other digits": (ROWS + "a,b,²\n", "positive_row"),
    "a row that the corpus lacks": (ROWS + "a,b,9\n", "names row 9"),
    "a row of 30 digits": (ROWS + f"a,b,{'9' * 30}\n", "positive_row"),
}
OPTIONS: dict[str, tuple[list[str], str]] = {
    "no negatives": (["--num-negatives=0"], "--num-negatives 0"),
    "more negatives than ranks": (["--num-negatives=5", "--range-max=4"], "--num-negatives 5"),
    "an empty range": (["--range-min=4", "--range-max=4"], "--range-max 4"),
    "a range that ends before it begins": (["--range-min=9", "--range-max=4"], "--range-max 4"),
    "a range beyond the corpus": (["--range-min=1000"], "--range-min 1000"),
    "a range below zero": (["--range-min=-1"], "--range-min -1"),
    "a huge range": ([f"--range-max={10**30}"], "--range-max"),
    "a margin that is NaN": (["--relative-margin=nan"], "--relative-margin"),
    "a margin that is infinite": (["--absolute-margin=inf"], "--absolute-margin"),
    "a score that is NaN": (["--max-score=nan"], "--max-score"),
    "a score that nothing has": (["--min-score=5"], "relax them"),
    "scores that exclude each other": (["--min-score=0.5", "--max-score=-0.5"], "relax them"),
    "more than are asked for": (["--at-least=4"], "--at-least 4"),
    "a pair needs more than there are": (["--num-negatives=30", "--range-max=40", "--at-least=30"], "relax them"),
    "another sampling": (["--sampling=best"], "--sampling"),
    "a seed without a draw": (["--seed=1"], "--seed"),
    "a seed below zero": (["--sampling=random", "--seed=-1"], "--seed -1"),
    "a huge seed": (["--sampling=random", f"--seed={2**40}"], "--seed"),
    "blocks of no rows": (["--block-rows=0"], "--block-rows 0"),
    "a judge that is missing": (["--judge=none-such", "--max-score=0.9"], "none-such"),
    "a judge that is no model": (["--judge=text.txt", "--max-score=0.9"], "text.txt"),
    "a judge of a corpus without text": (["--judge=model", "--max-score=0.9", "--corpus=rows.npy"], "--judge"),
    "a role that is none": (["--columns", "label=sent0"], "--columns label=sent0"),
    "one role alone": (["--columns", "anchor=sent0"], "--columns"),
    "a column that is not there": (["--columns", "anchor=sent0", "positive=answer"], "answer"),
    "a column for both": (["--columns", "anchor=sent0", "positive=sent0"], "--columns"),
    "LanceDB's refine": (["--refine=5"], "refine=5"),
    "LanceDB's cells": (["--nprobes=5"], "nprobes=5"),
    "another backend": (["--backend=annoy"], "--backend"),
    "more elements than there are": (["--truncate-dim=99"], "99"),
    "pairs that are text": (["--pairs=text.txt"], "--pairs text.txt"),
    "pairs that are a folder": (["--pairs=model"], "--pairs model"),
    "pairs that are missing": (["--pairs=none-such.csv"], "--pairs none-such.csv"),
    "pairs in a bucket": (["--pairs=gs://bucket/pairs.csv"], "--pairs"),
    "an output of another kind": (["--output=mined.csv"], "--output"),
    "an output in a bucket": (["--output=gs://bucket/mined.jsonl"], "--output"),
    "an output that is a folder": (["--output=model"], "--output"),
    "an output in a file": (["--output=text.txt/mined.jsonl"], "text.txt/mined.jsonl"),
    "the output is the pairs": (["--pairs=more.jsonl", "--output=more.jsonl"], "more.jsonl"),
    "the corpus is missing": (["--corpus=none-such.txt"], "none-such.txt"),
    "the corpus is the model": (["--corpus=model"], "model"),
    "the corpus is an empty folder": (["--corpus=empty"], "empty"),
    "the corpus is in a bucket of another store": (["--corpus=s3://bucket/x"], "s3://bucket/x"),
    "a column of a corpus of lines": (["--corpus-column=answer"], "answer"),
    "a column that the corpus lacks": (["--corpus=train.csv", "--corpus-column=answer"], "answer"),
    "a corpus of blank lines": (["--corpus=blank.txt"], "blank.txt"),
    "embeddings of another size": (["--corpus=wide.npy"], "wide.npy"),
    "embeddings with NaN": (["--corpus=nan.npy"], "nan.npy"),
    "embeddings in bytes": (["--corpus=bytes.npy"], "bytes.npy"),
}
JUDGES: dict[str, tuple[Make, str]] = {  # a cross-encoder in the folder `judge`, and what the error names
    "of two labels": (lambda folder: write_cross_encoder(folder / "judge", labels=2), "has 2 labels"),
    "without its head": (both(judge, edit_tensors("judge", drop="classifier.weight")), "classifier.weight"),
    "with NaN": (both(judge, edit_tensors("judge", nan="classifier.bias")), "not finite"),
    "with weights cut": (both(judge, cut("judge/model.safetensors", 0.5)), "judge"),
    "with another activation": (both(judge, change_json("judge/config.json", softmax)), "Softmax"),
    "of another type": (both(judge, change_json("judge/config.json", of_nomic)), "nomic_bert"),
    "with a prompt that is a number": (both(judge, write(f"judge/{SETTINGS}", NUMBERED_PROMPT)), "prompts"),
}
STATES: dict[str, Callable[[dict[str, Any]], Any]] = {  # what an earlier call left, changed
    "more rows done than there are bytes": lambda state: state.update(bytes=10**9),
    "rows below zero": lambda state: state.update(done=-1),
    "rows as text": lambda state: state.update(done="6"),
    "no bytes": lambda state: state.pop("bytes") and None,
    "counts that are a list": lambda state: state.update(counted=[]),
    "no options": lambda state: state.pop("about") and None,
    "another model": lambda state: state["about"].update({"--model": {"name": "x"}}),
    "the hash of other pairs": lambda state: state["about"].update({"--pairs": "0" * 64}),
}


def prepare(folder: Path) -> None:
    """What the wrong options name."""
    (folder / "more.jsonl").write_text('{"anchor": "a cat", "positive": "the cat sat"}\n')
    (folder / "blank.txt").write_text("\n \n")
    (folder / "empty").mkdir()
    for name, array in {
        "rows": np.ones((5, 32), np.float32),
        "wide": np.ones((5, 33), np.float32),
        "nan": np.full((5, 32), np.nan, np.float32),
        "bytes": np.ones((5, 32), np.int8),
    }.items():
        np.save(folder / f"{name}.npy", array)


def cases() -> Iterator[Case]:
    def case(damage: str, arguments: list[str], make: Make | None, end: str, names: str = "") -> Case:
        output = "mined.jsonl" if end in (DONE, SAME) else ""
        return Case(KIND, "mine", damage, arguments, INPUTS, make, end, names, output)

    yield case("none", MINE, None, DONE)
    for damage, (content, end, names) in FILES.items():
        yield case(f"pairs: {damage}", ON_PAIRS, write(PAIRS, content), end, names)
    for damage, put in PLACES.items():
        yield case(f"pairs: {damage}", ON_PAIRS, instead(PAIRS, put), REFUSED, PAIRS)
    for damage, (text, names) in NUMBERED.items():
        yield case(f"pairs: {damage}", ON_ROWS, both(prepare, write(PAIRS, text)), REFUSED, names)
    for damage, (options, names) in OPTIONS.items():
        yield case(damage, [*MINE, *options], prepare, REFUSED, names)
    for damage, (make, names) in JUDGES.items():
        yield case(f"a cross-encoder {damage}", [*MINE, "--judge=judge"], make, REFUSED, names)
    yield case("a cross-encoder", [*MINE, "--judge=judge"], judge, DONE)
    yield from interrupted()
    yield from indexes()


def interrupted() -> Iterator[Case]:
    """After a call that was stopped when half of its rows were done."""
    inputs = (*INPUTS, "mined")

    def case(damage: str, make: Make | None, end: str, names: str = "", *more: str) -> Case:
        output = "mined/out.jsonl" if end in (DONE, SAME) else ""
        leaves = ("mined/*",) if end == DONE else ("mined/.out.jsonl.lock",)
        arguments = [*MINED, *more]
        return Case(KIND, "mine", f"resuming: {damage}", arguments, inputs, make, end, names, output, leaves)

    yield case("undamaged", None, DONE)
    for damage, change in STATES.items():
        yield case(damage, change_json(STATE, change), REFUSED, "out.jsonl.")
    for damage in ("empty", "truncated", "a list", "binary", "nested deeply"):
        change = WHOLE[damage]
        data = lambda folder, change=change: write(STATE, change((folder / STATE).read_bytes()))(folder)  # noqa: E731
        yield case(f"the state is {damage}", data, REFUSED, "out.jsonl.")
    yield case("records cut", cut(PARTIAL, 0.5), REFUSED, PARTIAL)
    yield case("no records", remove(PARTIAL), DONE)
    yield case("no state", remove(STATE), DONE)
    yield case("records that are a folder", instead(PARTIAL, Path.mkdir), REFUSED, "mined/out.jsonl")
    yield case("begun by an earlier version", as_earlier("mined"), DONE)
    yield case("begun twice", both(copy(PARTIAL), copy(STATE)), REFUSED, "mined: has .out.jsonl.state.json and")
    yield case("other pairs", write("train.csv", HEAD), REFUSED, "another --pairs")
    yield case("another corpus", write("text.txt", "a cat\na dog\n"), REFUSED, "another --corpus")
    for option in ("num-negatives=2", "block-rows=5", "sampling=random", "max-score=0.9", "pooler=avg"):
        name = "--model" if option.startswith("pooler") else f"--{option.partition('=')[0]}"
        yield case(f"another --{option}", None, REFUSED, f"another {name}", f"--{option}")


def indexes() -> Iterator[Case]:
    """Indexes and embeddings of another model, and damaged ones."""
    for name in ("index", "lance", "embeddings"):
        arguments = [*MINE, f"--corpus={name}"]
        yield Case(KIND, "mine", f"in {name}", arguments, (*INPUTS, name), None, DONE, output="mined.jsonl")
        other = [*arguments, "--model=roberta"]
        yield Case(KIND, "mine", f"another model than that of {name}", other, (*INPUTS, "roberta", name), None)
        column = [*arguments, "--corpus-column=text"]
        yield Case(KIND, "mine", f"a column of {name}", column, (*INPUTS, name), names="--corpus-column")
    for name, damage in (
        ("index", lambda folder: cut(f"index/{next((folder / 'index').glob('*.npy')).name}", 0.5)(folder)),
        ("lance", remove("lance/rows.lance")),
        ("embeddings", cut("embeddings/emb.parquet", 0.5)),
        ("corpus", cut("corpus/corpus.json", 0.5)),
    ):
        arguments = [*MINE, f"--corpus={name}"]
        yield Case(KIND, "mine", f"a damaged {name}", arguments, (*INPUTS, name), damage, names=name)
