"""Scores that are none, data without the columns that an objective needs, teachers that do not fit, and sizes."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from hostile.case import DONE, REFUSED, Case, Reader
from hostile.damages import Make, both, change_tensors, cut, write
from hostile.line_damages import DEEP, cells, of_lines, records
from hostile.seeds import TAUGHT_RUN, train_arguments
from support import write_model

KIND = "scores and teachers"
INPUTS = ["model", "text.txt", "train.csv", "pairs.tsv"]
SCORED, JUDGED, TEACHER = "scored.csv", "judged.jsonl", "teacher"
HEAD = "sentence1,sentence2,score\n"
ROWS = HEAD + "".join(f"a cat,the dog ran,{score}\n" for score in (0, 0.25, 0.5, 1) * 2)
TRAIN = Reader("train", train_arguments("run", data__train="train.csv"), INPUTS)
OF_SCORES = Reader("train", train_arguments("run", data__train=SCORED), INPUTS, leaves=("run", "run/*"))
OF_CANDIDATES = Reader("train", train_arguments("run", data__train=JUDGED), INPUTS, leaves=("run", "run/*"))
OF_TUNE = Reader(
    "tune",
    ["--model=model", "--workdir=run", "--data=tuned.csv", "--config.train.max_steps=1"],
    INPUTS,
    leaves=("run", "run/*"),
)
KEPT = Reader("train", TAUGHT_RUN, [*INPUTS, "kept"])
OFF = "objective.info_nce.weight=0"


def only(objective: str, more: str = "") -> str:
    """The fields of a run with one objective."""
    return f"{OFF} objective.{objective}.weight=1 {more}"


def wide(folder: Path) -> None:
    """A teacher of 48 elements, where the model has 32."""
    write_model(folder / TEACHER, "bert", hidden_size=48)


WEIGHTS, CONFIG = f"{TEACHER}/model.safetensors", f"{TEACHER}/config.json"
not_finite = change_tensors(WEIGHTS, lambda found: [array.fill(np.nan) for array in found.values()])
SCORES: dict[str, tuple[str, str]] = {  # the file, and what the error names
    "above the largest": (ROWS + "a,b,4.5\n", "data.score_range"),
    "none at all": (HEAD + "a cat,the dog ran,\n" * 8, SCORED),
    "all the same": (HEAD + "a cat,the dog ran,0.5\n" * 8, "scores are 0.5"),
}
SCORES_READ = {"next to negatives": HEAD.replace("\n", ",hard_neg\n") + "a,b,1,c\na,b,0,c\n" * 4}
SCORES_READ |= {"one pair without": ROWS + "a,b,\n"}
FLAG = {"query": "a cat", "pos": ["the dog ran"], "neg": ["a", "b"], "pos_scores": [1], "neg_scores": [0.5, 0.25]}
FIELDS: dict[str, tuple[str, str]] = {  # of a run on train.csv: fields, and what the error names
    "CoSENT of pairs without scores": (only("cosent"), "objective.cosent"),
    "scores next to in-batch negatives": ("objective.cosent.weight=1", "objective.info_nce"),
    "a range that falls": (only("cosent", "data.score_range=5,0"), "data.score_range"),
    "a column of scores that is not there": (only("cosent", "data.columns.score=none"), "none"),
    "no teacher": (only("gist"), "teacher.model"),
    "no soft negatives": ("objective.bidirectional_margin.weight=1 data.train=text.txt", "soft negatives"),
    "triplets of sentences alone": ("objective.triplet.weight=1 data.train=text.txt", "objective.triplet"),
    "a margin of InfoNCE between -1 and 0": ("objective.info_nce.margin=-0.5", "objective.info_nce.margin"),
    "sizes of no number": ("matryoshka.dimensions=16,many", "matryoshka.dimensions"),
    "a size beyond the embedding's": ("matryoshka.dimensions=64,16 model.mlp=none", "matryoshka.dimensions"),
    "weights that are NaN": ("matryoshka.dimensions=32,16 matryoshka.weights=1,nan", "matryoshka.weights"),
}
GIVEN = "data.folds=5"  # which tune would not choose
LABELLED, TWO = "text,label\n", "sentence1,sentence2,score\n"
JUDGING: dict[str, tuple[str, str, str]] = {  # data of tune that cannot judge: the file, fields, what the error names
    "one class": (LABELLED + "".join(f"a {row},cats\n" for row in range(60)), "data.columns.label=label", "one class"),
    "a number a sentence": (
        LABELLED + "".join(f"a {row},{row / 8}\n" for row in range(60)),
        "data.columns.label=label",
        "numbers such as",
    ),
    "classes of a few sentences": (
        LABELLED + "".join(f"a {row % 9},{row % 2}\n" for row in range(60)),
        GIVEN,
        "10 are",
    ),
    "fewer groups than folds": (
        TWO + "".join(f"a {row % 3},b {row},{row % 2}\n" for row in range(60)),
        GIVEN,
        "10 are",
    ),
    "rows of one group": (TWO + "".join(f"a,b {row},{row % 2}\n" for row in range(60)), GIVEN, "1 groups in all"),
    "scores that are equal": (
        TWO + "".join(f"a {row},b {row},1\n" for row in range(60)),
        GIVEN + " data.columns.score=score",
        "are 1",
    ),
}
JUDGED_WITHOUT = {  # of which tune says what it does instead
    "one class of a file": JUDGING["one class"][0],
    "a number a sentence in a file": JUDGING["a number a sentence"][0],
    "sentences with a name each": LABELLED + "".join(f"a {row},b {row}\n" for row in range(60)),
    "a class of one sentence": LABELLED + "".join(f"a {row},{row // 59}\n" for row in range(60)),
    "sentences in several classes": LABELLED + "".join(f"a {row % 20},{row % 7}\n" for row in range(60)),
}
# Fields that have no effect, which the run says.
UNUSED = {"a folder without a teacher": "teacher.kept=kept"}
ALONE = "sent0,sent1\n" + "a cat,the dog ran\n" * 12
TAUGHT: dict[str, tuple[Make | None, str, str]] = {  # the damage, the objective and fields, and what the error names
    "missing": (None, "gist", "config.teacher.model"),
    "that is text": (write(TEACHER, "a cat\n"), "gist", "config.teacher.model"),
    "with NaN": (both(wide, not_finite), "gist", "config.teacher.model"),
    "with a config nested deeply": (both(wide, write(CONFIG, DEEP)), "gist", "config.teacher.model"),
    "of pairs for MarginMSE": (both(wide, write("train.csv", ALONE)), "margin_mse", "hard negatives"),
    "whose second is text": (both(wide, write("second", "a")), "gist teacher.second=second", "config.teacher.second"),
}
FITTING: dict[str, tuple[str, str]] = {  # with a teacher that can be read: the objective and fields, and what is named
    "of another size": ("embedding_mse model.mlp=none", "48 elements"),
    "with a margin below zero": ("gist objective.gist.margin=-0.1", "objective.gist.margin"),
    "kept in a file": ("gist teacher.kept=text.txt", "config.teacher.kept"),
}


def kept(make: Make) -> Make:
    """Damages the file of a teacher's embeddings, whose name is its own."""

    def damage(folder: Path) -> None:
        (file,) = (folder / "kept").glob("*.npy")
        file.rename(folder / "kept" / "file")
        make(folder)
        (folder / "kept" / "file").rename(file)

    return damage


FILE = "kept/file"
OF_KEPT: dict[str, Make] = {"empty": write(FILE, b""), "cut": cut(FILE, 0.5)}
OF_KEPT |= {"text": write(FILE, b"a cat\n" * 99)}


def cases() -> Iterator[Case]:
    def case(reader: Reader, damage: str, fields: str, make: Make | None, end: str, names: str) -> Case:
        return reader.case(KIND, damage, make, end, names, *(f"--config.{field}" for field in fields.split()))

    fields = [f"--config.{field}" for field in only("cosent").split()]
    scored = OF_SCORES._replace(arguments=[*OF_SCORES.arguments, *fields])
    yield from of_lines(KIND, [scored], SCORED, cells(","), write(SCORED, ROWS))
    fields = [f"--config.{field}" for field in only("margin_mse").split()]
    judged = OF_CANDIDATES._replace(arguments=[*OF_CANDIDATES.arguments, *fields])
    rows = write(JUDGED, (json.dumps(FLAG) + "\n") * 9)
    yield from of_lines(KIND, [judged], JUDGED, records("pos_scores", "neg_scores", "neg"), rows)
    for damage, (content, names) in SCORES.items():
        fields = only("cosine_mse" if damage == "above the largest" else "cosent")  # the first has bounds
        yield case(OF_SCORES, f"scores: {damage}", fields, write(SCORED, content), REFUSED, names)
    for damage, content in SCORES_READ.items():
        yield case(OF_SCORES, f"scores: {damage}", only("cosent"), write(SCORED, content), DONE, "")
    for damage, (fields, names) in FIELDS.items():
        yield case(TRAIN, damage, fields, None, REFUSED, names)
    for damage, (content, fields, names) in JUDGING.items():
        yield case(OF_TUNE, f"rows that judge: {damage}", fields, write("tuned.csv", content), REFUSED, names)
    for damage, content in JUDGED_WITHOUT.items():
        yield case(OF_TUNE, f"rows that judge: {damage}", "seed=1", write("tuned.csv", content), DONE, "")
    for damage, field in UNUSED.items():
        yield case(TRAIN, damage, field, None, DONE, "")
    fitting = {damage: (wide, fields, names) for damage, (fields, names) in FITTING.items()}
    for damage, (make, fields, names) in (TAUGHT | fitting).items():
        objective, _, more = fields.partition(" ")
        fields = only(objective, f"teacher.model={TEACHER} {more}")
        yield case(TRAIN, f"a teacher {damage}", fields, make, REFUSED, names)
    yield KEPT.case(KIND, "embeddings that were kept", None, DONE)
    for damage, make in OF_KEPT.items():
        yield KEPT.case(KIND, f"embeddings that were kept: {damage}", kept(make), names="kept/")
