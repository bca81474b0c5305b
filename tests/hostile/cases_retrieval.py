"""Folders of retrieval tasks, the options and fields that name them, and files of earlier scores to compare with."""

from collections.abc import Iterator
from typing import Any

from hostile.case import DONE, PAIRS, REFUSED, TEXT, Case
from hostile.cases_data import DEEP
from hostile.damages import PLACES, Make, instead, remove, write
from hostile.seeds import train_arguments

KIND = "retrieval"
FOLDER, BASELINE = "beir", "scores.json"
HEAD = "query-id\tcorpus-id\tscore\n"
ROWS = HEAD + "q0\td0\t1\n"
EVALUATE = ["--model=model", f"--tasks=retrieval:{FOLDER}", "--output=out.json"]
TRAIN = train_arguments("run", eval__development="retrieval", eval__retrieval__data=FOLDER)
INPUTS = ("model", TEXT, PAIRS, FOLDER)

TEXTS: dict[str, tuple[str | bytes, str]] = {  # corpus.jsonl, or queries.jsonl
    "empty": ("", REFUSED),
    "blank": ("\n\n", REFUSED),
    "not JSON": ("d0\n", REFUSED),
    "a list a line": ('["d0", "a"]\n', REFUSED),
    "no id": ('{"text": "a"}\n', REFUSED),
    "an id that is a number": ('{"_id": 0, "text": "a"}\n', REFUSED),
    "no text": ('{"_id": "d0"}\n', REFUSED),
    "a text that is null": ('{"_id": "d0", "text": null}\n', REFUSED),
    "an id twice": ('{"_id": "d0", "text": "a"}\n' * 2, REFUSED),
    "nested deeply": (f'{{"_id": "d0", "text": {DEEP}}}\n', REFUSED),
    "half a character": ('{"_id": "d0", "text": "\\ud800"}\n', REFUSED),
    "not UTF-8": (b'{"_id": "d0", "text": "caf\xe9"}\n', REFUSED),
    "UTF-16": ('{"_id": "d0", "text": "a"}\n'.encode("utf-16"), REFUSED),
    "binary": (bytes(range(256)) * 16, REFUSED),
    "other ids": ('{"_id": "x", "text": "a"}\n', REFUSED),
}
JUDGEMENTS: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", REFUSED),
    "a header alone": (HEAD, REFUSED),
    "no header": ("q0\td0\t1\n", REFUSED),
    "trec_eval's columns": ("q0 0 d0 1\n", REFUSED),
    "a query that is unknown": (ROWS + "x\td0\t1\n", DONE),
    "no query that is known": (HEAD + "x\td0\t1\n", REFUSED),
    "a document that is unknown": (ROWS + "q0\tx\t1\nq0\ty\t0\n", DONE),
    "no document that is known": (HEAD + "q0\tx\t1\n", REFUSED),
    "a score that is a word": (ROWS + "q0\td1\tgood\n", REFUSED),
    "a score that is a fraction": (ROWS + "q0\td1\t0.5\n", REFUSED),
    "a score that is NaN": (ROWS + "q0\td1\tnan\n", REFUSED),
    "a score of other digits": (ROWS + "q0\td1\t١\n", REFUSED),
    "a score that is huge": (ROWS + "q0\td1\t" + "9" * 5000 + "\n", REFUSED),
    "an empty score": (ROWS + "q0\td1\t\n", REFUSED),
    "two columns": (ROWS + "q0\td1\n", REFUSED),
    "four columns": (ROWS + "q0\td1\t1\t1\n", REFUSED),
    "judged twice": (ROWS + "q0\td0\t0\n", REFUSED),
    "nothing relevant": (HEAD + "q0\td0\t0\n", REFUSED),
    "not UTF-8": (ROWS.encode() + b"caf\xe9\td0\t1\n", REFUSED),
    "negative scores": (ROWS + "q0\td1\t-2\n", DONE),
    "blank lines": (ROWS + "\n\n", DONE),
    "CRLF": (ROWS.replace("\n", "\r\n"), DONE),
}
OPTIONS: dict[str, tuple[list[str], str]] = {
    "no folder": (["--tasks=retrieval:"], REFUSED),
    "a folder that is a file": ([f"--tasks=retrieval:{TEXT}"], REFUSED),
    "a folder that is missing": (["--tasks=retrieval:none-such"], REFUSED),
    "two folders of one name": ([f"--tasks=retrieval:{FOLDER},retrieval:./{FOLDER}"], REFUSED),
    "a name that is not UTF-8": (["--tasks=retrieval:\udcff"], REFUSED),
    "a bucket": (["--tasks=retrieval:gs://bucket/beir"], REFUSED),
    "a measure without a cutoff": (["--metric=ndcg"], REFUSED),
    "a measure of another cutoff": (["--metric=ndcg@0"], REFUSED),
    "no document": (["--documents=0"], REFUSED),
    "documents that are no number": (["--documents=many"], REFUSED),
    "too many documents": ([f"--documents={'9' * 30}"], DONE),
    "fewer documents than are judged": (["--documents=1"], DONE),
    "a seed alone": (["--documents-seed=1"], REFUSED),
    "a huge seed": (["--documents=20", f"--documents-seed={'9' * 30}"], DONE),
    "another storage": (["--storage=int8"], REFUSED),
    "a post-processing": (["--postprocess=whitening", "--postprocess-data=target"], REFUSED),
    "the output in the folder": ([f"--output={FOLDER}/corpus.jsonl"], REFUSED),
    "the output is the baseline": ([f"--baseline={BASELINE}", f"--output={BASELINE}"], REFUSED),
}
FIELDS: dict[str, dict[str, Any]] = {
    "no data": {"data": ""},
    "a folder twice": {"data": f"{FOLDER},./{FOLDER}"},
    "a folder that is missing": {"data": "none-such"},
    "no judgements of that name": {"development": "train"},
    "another split": {"split": "all"},
    "no measures": {"measures": ""},
    "a measure that is none": {"measures": "ndcg"},
    "minus one document": {"documents": -1},
    "a negative seed": {"seed": -1},
    "another storage": {"storage": "int8"},
}
BASELINES: dict[str, str] = {
    "not JSON": "{",
    "a list": "[]",
    "without scores": "{}",
    "of similarity": '{"STS12": {"spearman": 3.0}}',
    "scores that are a number": '{"retrieval": 3}',
    "a task that is a list": f'{{"retrieval": {{"{FOLDER}": []}}}}',
    "of other data": f'{{"retrieval": {{"{FOLDER}": {{"sha256": "0", "per_query": {{}}}}}}}}',
    "nested deeply": DEEP,
}


def cases() -> Iterator[Case]:
    def case(damage: str, make: Make | None, end: str, names: str = "", *more: str) -> Case:
        output = "out.json" if end == DONE else ""
        return Case(KIND, "evaluate", damage, [*EVALUATE, *more], INPUTS, make, end, names, output)

    for name in ("corpus.jsonl", "queries.jsonl"):
        for damage, (text, end) in TEXTS.items():
            yield case(f"{name}: {damage}", write(f"{FOLDER}/{name}", text), end, name)
        for damage, put in PLACES.items():
            yield case(f"{name}: {damage}", instead(f"{FOLDER}/{name}", put), REFUSED, name)
    for damage, (text, end) in JUDGEMENTS.items():
        yield case(
            f"qrels: {damage}", write(f"{FOLDER}/qrels/test.tsv", text), end, "test.tsv" if end == REFUSED else ""
        )
    for damage, put in PLACES.items():
        yield case(f"qrels: {damage}", instead(f"{FOLDER}/qrels/test.tsv", put), REFUSED, "test.tsv")
    yield case("no folder of qrels", remove(f"{FOLDER}/qrels"), REFUSED, "test.tsv")
    for damage, (options, end) in OPTIONS.items():
        yield case(damage, write(BASELINE, "{}"), end, "", *options)
    for damage, text in BASELINES.items():
        yield case(f"a baseline: {damage}", write(BASELINE, text), REFUSED, BASELINE, f"--baseline={BASELINE}")
    yield case("a baseline that is missing", None, REFUSED, BASELINE, f"--baseline={BASELINE}")
    for damage, fields in FIELDS.items():
        more = [f"--config.eval.retrieval.{name}={value}" for name, value in fields.items()]
        names = "named twice" if damage == "a folder twice" else "eval.retrieval"
        yield Case(KIND, "train", f"eval.retrieval: {damage}", [*TRAIN, *more], INPUTS, names=names)
    damaged = write(f"{FOLDER}/qrels/dev.tsv", HEAD + "q0\tx\t1\n")
    yield Case(KIND, "train", "no document that is known", TRAIN, INPUTS, damaged, names="dev.tsv: none")
    yield Case(KIND, "train", "none", TRAIN, INPUTS, end=DONE)
