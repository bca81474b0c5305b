"""Hard negatives: pairs and corpora that `mine` cannot use, numbers out of range, and what an earlier call left."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from hostile.case import DONE, EITHER, REFUSED, Case, Reader
from hostile.damages import Make, both, change, change_tensors, cut, instead, remove, write
from hostile.json_damages import WHOLE, update_json
from hostile.line_damages import LINES, cells, of_lines
from hostile.seeds import MINE, MINED
from support.cross_encoders import write_cross_encoder

KIND = "hard negatives"
INPUTS = ["model", "text.txt", "train.csv"]
PAIRS, PARTIAL, STATE = "x.csv", "mined/.out.jsonl.partial", "mined/.out.jsonl.state.json"
EMBEDDED = "embeddings/emb.parquet"
HEAD = "sent0,sent1\na cat,the cat sat\n"
ROWS = "sent0,sent1,positive_row\na cat,the cat sat,0\n"
MINING = Reader("mine", MINE, INPUTS, "mined.jsonl")
ON_PAIRS = MINING._replace(arguments=[*MINE, f"--pairs={PAIRS}"])
# What an earlier call left when it was stopped after half of the rows.
ON_ROWS = MINING._replace(arguments=[*MINE, f"--pairs={PAIRS}", "--corpus=rows.npy"])
STOPPED = Reader("mine", MINED, [*INPUTS, "mined"], "mined/out.jsonl", ("mined/.out.jsonl.lock",))
GOES_ON = STOPPED._replace(leaves=("mined/*",))

FILES: dict[str, tuple[str, str]] = {  # of pairs: the file, and what the error names
    "blank rows alone": ("sent0,sent1\n,\n ,a\n", "holds no pairs"),
    "columns of other names": ("w,x,y,z\n1,2,3,4\n", "--columns anchor=NAME"),
    "scores in place of positives": ("sent0,score\na cat,0.5\n", "one column of sentences"),
}
FILES_READ = {"a blank row among others": HEAD + ",\n", "one pair many times": HEAD + "a cat,the cat sat\n" * 50}


def write_judge(folder: Path) -> None:
    write_cross_encoder(folder / "judge")


OPTIONS: dict[str, tuple[str, str]] = {
    "no negatives": ("--num-negatives=0", "for --num-negatives"),
    "more negatives than ranks": ("--num-negatives=5 --range-max=4", "--num-negatives 5"),
    "a range beyond the corpus": ("--range-min=1000", "--range-min 1000"),
    "a margin that is NaN": ("--relative-margin=nan", "--relative-margin"),
    "a score that nothing has": ("--min-score=5", "relax them"),
    "blocks of no rows": ("--block-rows=0", "for --block-rows"),
    "a judge that is missing": ("--judge=none-such --max-score=0.9", "none-such"),
    "a judge of a corpus without text": ("--judge=model --max-score=0.9 --corpus=rows.npy", "--judge"),
    "a column that is not there": ("--columns anchor=sent0 positive=answer", "answer"),
    "more elements than there are": ("--truncate-dim=99", "99"),
    "an output of another kind": ("--output=mined.csv", "--output"),
    "the output is the pairs": ("--pairs=more.jsonl --output=more.jsonl", "more.jsonl"),
    "the corpus is an empty folder": ("--corpus=empty", "empty"),
    "a column that the corpus lacks": ("--corpus=train.csv --corpus-column=answer", "answer"),
    "a corpus of blank lines": ("--corpus=blank.txt", "blank.txt"),
    "embeddings with NaN": ("--corpus=nan.npy", "nan.npy"),
    "embeddings in bytes": ("--corpus=bytes.npy", "bytes.npy"),
}
CONFIG, WEIGHTS, SETTINGS = "judge/config.json", "judge/model.safetensors", "judge/config_sentence_transformers.json"
NUMBERED_PROMPT = '{"model_type": "CrossEncoder", "prompts": {"query": 3}}'
JUDGES: dict[str, tuple[Make, str]] = {  # a cross-encoder in the folder `judge`, and what the error names
    "without its head": (
        both(write_judge, change_tensors(WEIGHTS, lambda found: found.pop("classifier.weight"))),
        "classifier.w",
    ),
    "with NaN": (
        both(write_judge, change_tensors(WEIGHTS, lambda found: found["classifier.bias"].fill(np.nan))),
        "not finite",
    ),
    "of another type": (
        both(write_judge, update_json(CONFIG, model_type="nomic_bert", hidden_act="silu")),
        "nomic_bert",
    ),
    "with a prompt that is a number": (both(write_judge, write(SETTINGS, NUMBERED_PROMPT)), "prompts"),
}
INTERRUPTED: dict[str, tuple[Make, str]] = {  # what is refused then, and what the error names
    **{
        f"the state is {damage}": (change(STATE, WHOLE[damage]), "out.jsonl.")
        for damage in ("empty", "truncated", "a list", "binary", "nested deeply")
    },
    "records cut": (cut(PARTIAL, 0.5), PARTIAL),
    "records that are a folder": (instead(PARTIAL, Path.mkdir), "mined/out.jsonl"),
    "other pairs": (write("train.csv", HEAD), "another --pairs"),
    "another corpus": (write("text.txt", "a cat\na dog\n"), "another --corpus"),
}


def prepare(folder: Path) -> None:
    """What the wrong options name."""
    (folder / "more.jsonl").write_text('{"anchor": "a cat", "positive": "the cat sat"}\n')
    (folder / "blank.txt").write_text("\n \n")
    (folder / "empty").mkdir()
    ones = np.ones((5, 33), np.float32)
    arrays = {"rows": ones[:, :32], "wide": ones, "nan": ones[:, :32] * np.nan, "bytes": ones[:, :32].astype(np.int8)}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def cases() -> Iterator[Case]:
    yield MINING.case(KIND, "none", None, DONE)
    for damage, (content, names) in FILES.items():
        yield ON_PAIRS.case(KIND, f"pairs: {damage}", write(PAIRS, content), names=names)
    for damage, content in FILES_READ.items():
        yield ON_PAIRS.case(KIND, f"pairs: {damage}", write(PAIRS, content), DONE)
    yield from of_lines(KIND, [ON_PAIRS], PAIRS, LINES | cells(",", numbers=False), write(PAIRS, HEAD))
    # Rows of a corpus that has no text.
    yield ON_ROWS.case(KIND, "pairs: no numbers of rows", both(prepare, write(PAIRS, HEAD)), names="positive_row")
    yield ON_ROWS.case(KIND, "pairs: a row too far", both(prepare, write(PAIRS, ROWS + "a,b,9\n")), names="names row 9")
    for damage, changed in cells(",").items():
        make = both(prepare, write(PAIRS, ROWS), change(PAIRS, changed))
        yield ON_ROWS.case(KIND, f"rows of a corpus: {damage}", make, EITHER)
    for damage, (options, names) in OPTIONS.items():
        yield MINING.case(KIND, damage, prepare, REFUSED, names, *options.split())
    for damage, (make, names) in JUDGES.items():
        yield MINING.case(KIND, f"a cross-encoder {damage}", make, REFUSED, names, "--judge=judge")
    yield MINING.case(KIND, "a cross-encoder", write_judge, DONE, "", "--judge=judge")
    for damage, (make, names) in INTERRUPTED.items():
        yield STOPPED.case(KIND, f"resuming: {damage}", make, names=names)
    for option in ("num-negatives=2", "block-rows=5", "sampling=random", "max-score=0.9", "pooler=avg"):
        name = "model" if option == "pooler=avg" else option.partition("=")[0]
        yield STOPPED.case(KIND, f"resuming: {option}", None, REFUSED, f"another --{name}", f"--{option}")
    makes = {"undamaged": None, "no records": remove(PARTIAL), "no state": remove(STATE)}
    for damage, make in makes.items():
        yield GOES_ON.case(KIND, f"resuming: {damage}", make, DONE)
    yield from indexes()


def half_index(folder: Path) -> None:
    """An index with half of its embeddings."""
    (file,) = (folder / "index").glob("*.npy")
    file.write_bytes(file.read_bytes()[:1000])


def indexes() -> Iterator[Case]:
    """Indexes and embeddings of another model, and damaged ones."""
    damages = {"index": half_index, "lance": remove("lance/rows.lance"), "embeddings": cut(EMBEDDED, 0.5)}
    for name, damage in (damages | {"corpus": cut("corpus/corpus.json", 0.5)}).items():
        reader = MINING._replace(arguments=[*MINE, f"--corpus={name}"], inputs=[*INPUTS, "roberta", name])
        yield reader.case(KIND, f"a damaged {name}", damage, names=name)
        if name in damages:
            yield reader.case(KIND, f"in {name}", None, DONE)
            yield reader.case(KIND, f"another model than that of {name}", None, REFUSED, "", "--model=roberta")
            yield reader.case(KIND, f"a column of {name}", None, REFUSED, "--corpus-column", "--corpus-column=text")
