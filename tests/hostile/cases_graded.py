"""Scores that are none, data without the columns that an objective needs, teachers that do not fit, and sizes."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hostile.case import DONE, REFUSED, Case
from hostile.cases_data import DEEP
from hostile.damages import PLACES, Make, both, cut, instead, write
from hostile.json_damages import change_json
from hostile.seeds import TAUGHT_RUN, train_arguments
from support import write_model

KIND = "scores and teachers"
INPUTS = ("model", "text.txt", "train.csv", "pairs.tsv")
SCORED, JUDGED, TEACHER = "scored.csv", "judged.jsonl", "teacher"
HEAD = "sentence1,sentence2,score\n"
ROWS = HEAD + "".join(f"a cat,the dog ran,{score}\n" for score in (0, 0.25, 0.5, 1) * 2)
ONLY = "objective.info_nce.weight=0"
COSENT, MSE = (ONLY, "objective.cosent.weight=1"), (ONLY, "objective.cosine_mse.weight=1")
MARGINS = (ONLY, "objective.margin_mse.weight=1")
TRAIN = train_arguments("run", data__train="train.csv")
OF_SCORES = train_arguments("run", data__train=SCORED)
OF_CANDIDATES = train_arguments("run", data__train=JUDGED)


def nothing(folder: Path) -> None:
    """No damage: the fields are wrong."""


def wide(folder: Path) -> None:
    """A teacher of 48 elements, where the model has 32."""
    write_model(folder / TEACHER, "bert", hidden_size=48)


def not_finite(folder: Path) -> None:
    """A teacher whose weights are not finite."""
    from safetensors.numpy import load_file, save_file

    wide(folder)
    file = folder / TEACHER / "model.safetensors"
    tensors = load_file(file)
    save_file({name: array * np.float32("nan") for name, array in tensors.items()}, file, metadata={"format": "pt"})


def kept(change: Callable[[bytes], bytes]) -> Make:
    """Changes the file of a teacher's embeddings."""

    def make(folder: Path) -> None:
        (file,) = (folder / "kept").glob("*.npy")
        file.write_bytes(change(file.read_bytes()))

    return make


KEPT: dict[str, Make] = {
    "empty": kept(lambda data: b""),
    "cut": kept(lambda data: data[: len(data) // 2]),
    "without its end": kept(lambda data: data[:-1]),
    "a byte changed": kept(lambda data: data[:-100] + bytes([data[-100] ^ 1]) + data[-99:]),
    "another end": kept(lambda data: data[:-1] + b"x"),
    "text": kept(lambda data: b"a cat\n" * 99),
}
SCORES: dict[str, tuple[str, str, str]] = {  # the file, how it ends, and what the error names
    "a word": (ROWS + "a,b,good\n", REFUSED, f"{SCORED}: line 10"),
    "NaN": (ROWS + "a,b,nan\n", REFUSED, f"{SCORED}: line 10"),
    "infinite": (ROWS + "a,b,inf\n", REFUSED, f"{SCORED}: line 10"),
    "1e400": (ROWS + "a,b,1e400\n", REFUSED, f"{SCORED}: line 10"),
    "with a comma": (ROWS + 'a,b,"0,5"\n', REFUSED, f"{SCORED}: line 10"),
    "with an underscore": (ROWS + "a,b,1_0\n", REFUSED, f"{SCORED}: line 10"),
    "hex": (ROWS + "a,b,0x1\n", REFUSED, f"{SCORED}: line 10"),
    "of 5,000 digits": (ROWS + f"a,b,{'9' * 5000}\n", REFUSED, f"{SCORED}: line 10"),
    "true": (ROWS + "a,b,true\n", REFUSED, f"{SCORED}: line 10"),
    "above the largest": (ROWS + "a,b,4.5\n", REFUSED, "data.score_range"),
    "below the smallest": (ROWS + "a,b,-0.5\n", REFUSED, "data.score_range"),
    "none at all": (HEAD + "a cat,the dog ran,\n" * 8, REFUSED, SCORED),
    "missing cells": (HEAD + "a cat,the dog ran\n" * 8, REFUSED, SCORED),
    "a header alone": (HEAD, REFUSED, SCORED),
    "all the same": (HEAD + "a cat,the dog ran,0.5\n" * 8, REFUSED, "scores are 0.5"),
    "in a column of another name": (ROWS.replace("score", "label"), REFUSED, "score"),
    "a column twice": (ROWS.replace("score", "score,score").replace("0.25", "0.25,1"), REFUSED, SCORED),
    "one column of sentences": ("sentence1,score\n" + "a cat,1\n" * 8, REFUSED, "data.columns.positive"),
    "next to negatives, which are not read": (HEAD.replace("\n", ",hard_neg\n") + "a,b,1,c\na,b,0,c\n" * 4, DONE, ""),
    "one pair without": (ROWS + "a,b,\n", DONE, ""),
}
FLAG = {"query": "a cat", "pos": ["the dog ran"], "neg": ["a", "b"], "pos_scores": [1], "neg_scores": [0.5, 0.25]}
CANDIDATES: dict[str, tuple[Any, str]] = {  # the last of the rows, and what the error names
    "too few": (FLAG | {"neg_scores": [1]}, "neg_scores"),
    "too many": (FLAG | {"pos_scores": [1, 1]}, "pos_scores"),
    "NaN": (FLAG | {"neg_scores": [1, float("nan")]}, "neg_scores"),
    "null": (FLAG | {"pos_scores": None}, "pos_scores"),
    "words": (FLAG | {"neg_scores": ["high", "low"]}, "neg_scores"),
    "an object": (FLAG | {"neg_scores": {"a": 1, "b": 2}}, "neg_scores"),
    "nested": (FLAG | {"neg_scores": [[1], [2]]}, "neg_scores"),
    "left out": ({name: value for name, value in FLAG.items() if name != "neg_scores"}, "neg_scores"),
    "of no negatives": (FLAG | {"neg": [], "neg_scores": []}, "in every row"),
}
FIELDS: dict[str, tuple[tuple[str, ...], str]] = {  # of a run on train.csv: fields, and what the error names
    "CoSENT of pairs without scores": (COSENT, "objective.cosent"),
    "AnglE of pairs without scores": ((ONLY, "objective.angle.weight=1"), "objective.angle"),
    "a cosine's error of pairs without scores": (MSE, "objective.cosine_mse"),
    "scores of sentences alone": ((*COSENT, "data.train=text.txt"), "objective.cosent"),
    "scores next to in-batch negatives": (("objective.cosent.weight=1",), "objective.info_nce"),
    "scores and labels": ((*COSENT, "objective.softmax_nli.weight=1"), "objective"),
    "a temperature of zero": ((*COSENT, "objective.cosent.temperature=0"), "objective.cosent.temperature"),
    "a range of one number": ((*COSENT, "data.score_range=5"), "data.score_range"),
    "a range that falls": ((*COSENT, "data.score_range=5,0"), "data.score_range"),
    "a range of words": ((*COSENT, "data.score_range=low,high"), "data.score_range"),
    "a column of scores that is not there": ((*COSENT, "data.columns.score=none"), "none"),
    "no teacher": ((ONLY, "objective.gist.weight=1"), "teacher.model"),
    "no teacher for a ranking": ((ONLY, "objective.ranking_distillation.weight=1"), "teacher.model"),
    "no soft negatives": (("objective.bidirectional_margin.weight=1", "data.train=text.txt"), "soft negatives"),
    "a margin's bounds in the wrong order": (
        ("objective.bidirectional_margin.weight=1", "objective.bidirectional_margin.upper=0.05"),
        "objective.bidirectional_margin.lower",
    ),
    "labels that are not there": ((ONLY, "objective.softmax_nli.weight=1"), "objective.softmax_nli"),
    "sizes of no number": (("matryoshka.dimensions=16,many",), "matryoshka.dimensions"),
    "a size of zero": (("matryoshka.dimensions=16,0",), "matryoshka.dimensions"),
    "a size twice": (("matryoshka.dimensions=16,16",), "matryoshka.dimensions"),
    "a size beyond the embedding's": (("matryoshka.dimensions=64,16", "model.mlp=none"), "matryoshka.dimensions"),
    "a weight for one of two sizes": (("matryoshka.dimensions=32,16", "matryoshka.weights=1"), "matryoshka.weights"),
    "weights without sizes": (("matryoshka.weights=1,1",), "matryoshka"),
    "weights below zero": (("matryoshka.dimensions=32,16", "matryoshka.weights=1,-1"), "matryoshka.weights"),
    "weights of zero": (("matryoshka.dimensions=32,16", "matryoshka.weights=0,0"), "matryoshka.weights"),
    "weights that are NaN": (("matryoshka.dimensions=32,16", "matryoshka.weights=1,nan"), "matryoshka.weights"),
    "sizes of labelled pairs": (
        (ONLY, "objective.softmax_nli.weight=1", "matryoshka.dimensions=16"),
        "matryoshka.dimensions",
    ),
}
UNUSED = {  # fields that have no effect, which the run says
    "a range without scores": "data.score_range=0,5",
    "a teacher that nothing needs": "teacher.model=none-such",
    "a folder without a teacher": "teacher.kept=kept",
}
TAUGHT: dict[str, tuple[Make, tuple[str, ...], str]] = {  # the damage, fields, and what the error names
    "of another size": (wide, ("objective.embedding_mse.weight=1", "model.mlp=none"), "48 elements"),
    "missing": (nothing, ("objective.gist.weight=1",), "config.teacher.model"),
    "that is empty": (instead(TEACHER, Path.mkdir), ("objective.gist.weight=1",), "config.teacher.model"),
    "that is text": (write(TEACHER, "a cat\n"), ("objective.gist.weight=1",), "config.teacher.model"),
    "with NaN": (not_finite, ("objective.gist.weight=1",), "config.teacher.model"),
    "with weights cut": (
        both(wide, cut(f"{TEACHER}/model.safetensors", 0.5)),
        ("objective.gist.weight=1",),
        "config.teacher.model",
    ),
    "of another kind": (
        both(wide, change_json(f"{TEACHER}/config.json", lambda value: value.update(model_type="t5"))),
        ("objective.gist.weight=1",),
        "config.teacher.model",
    ),
    "with a config nested deeply": (
        both(wide, write(f"{TEACHER}/config.json", DEEP)),
        ("objective.gist.weight=1",),
        "config.teacher.model",
    ),
    "of pairs for MarginMSE": (
        both(wide, write("train.csv", "sent0,sent1\n" + "a cat,the dog ran\n" * 12)),
        ("objective.margin_mse.weight=1",),
        "hard negatives",
    ),
    "of a row without a negative": (
        both(wide, write("train.csv", "sent0,sent1,neg_1,neg_2\na,b,c,d\n" + "a cat,the dog ran,,\n" * 12)),
        ("objective.distill_kl.weight=1",),
        "in every row",
    ),
    "with another similarity": (
        wide,
        ("objective.margin_mse.weight=1", "objective.margin_mse.similarity=manhattan"),
        "objective.margin_mse.similarity",
    ),
    "with a temperature of zero": (
        wide,
        ("objective.distill_kl.weight=1", "objective.distill_kl.temperature=0"),
        "objective.distill_kl.temperature",
    ),
    "of several files": (
        wide,
        ("objective.gist.weight=1", "data.train=train.csv,text.txt", "data.mixed=True"),
        "config.data.mixed",
    ),
    "with a margin below zero": (
        wide,
        ("objective.gist.weight=1", "objective.gist.margin=-0.1"),
        "objective.gist.margin",
    ),
    "with a margin of another kind": (
        wide,
        ("objective.gist.weight=1", "objective.gist.margin_kind=half"),
        "objective.gist.margin_kind",
    ),
    "whose second is missing": (
        wide,
        ("objective.ranking_distillation.weight=1", "teacher.second=none-such"),
        "config.teacher.second",
    ),
    "whose second is text": (
        both(wide, write("second", "a cat\n")),
        ("objective.gist.weight=1", "teacher.second=second"),
        "config.teacher.second",
    ),
    "whose second has no share": (
        wide,
        ("objective.ranking_distillation.weight=1", f"teacher.second={TEACHER}", "teacher.share=1"),
        "config.teacher.share",
    ),
    "and a second one, whose elements have no mean": (
        wide,
        ("objective.embedding_mse.weight=1", "model.mlp=none", f"teacher.second={TEACHER}"),
        "config.teacher.second",
    ),
    "kept in a file": (wide, ("objective.gist.weight=1", "teacher.kept=text.txt"), "config.teacher.kept"),
    "kept in a file's folder": (wide, ("objective.gist.weight=1", "teacher.kept=text.txt/x"), "config.teacher.kept"),
    "kept in a bucket": (wide, ("objective.gist.weight=1", "teacher.kept=gs://b/x"), "config.teacher.kept"),
}


def cases() -> Iterator[Case]:
    def case(damage: str, arguments: list[str], fields: tuple[str, ...], make: Make, end: str, names: str) -> Case:
        given = [*arguments, *(f"--config.{field}" for field in fields)]
        return Case(KIND, "train", damage, given, INPUTS, make, end, names)

    for damage, (content, end, names) in SCORES.items():
        fields = MSE if "est" in damage else COSENT
        yield case(f"scores: {damage}", OF_SCORES, fields, write(SCORED, content), end, names)
    for damage, (row, names) in CANDIDATES.items():
        content = "".join(json.dumps(each) + "\n" for each in [*[FLAG] * 8, row])
        yield case(f"scores of candidates: {damage}", OF_CANDIDATES, MARGINS, write(JUDGED, content), REFUSED, names)
    for damage, put in PLACES.items():
        yield case(f"scores: {damage}", OF_SCORES, COSENT, instead(SCORED, put), REFUSED, SCORED)
    for damage, (fields, names) in FIELDS.items():
        yield case(damage, TRAIN, fields, nothing, REFUSED, names)
    for damage, field in UNUSED.items():
        yield case(damage, TRAIN, (field,), nothing, DONE, "")
    for damage, (make, fields, names) in TAUGHT.items():
        yield case(f"a teacher {damage}", TRAIN, (ONLY, f"teacher.model={TEACHER}", *fields), make, REFUSED, names)
    inputs = (*INPUTS, "kept")
    yield Case(KIND, "train", "embeddings that were kept", TAUGHT_RUN, inputs, end=DONE)
    for damage, make in KEPT.items():
        yield Case(KIND, "train", f"embeddings that were kept: {damage}", TAUGHT_RUN, inputs, make, names="kept/")
