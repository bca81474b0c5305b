"""Folders of several files: sentence-transformers' modules, runs, indexes and unfinished encodings."""

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hostile.case import EITHER, PAIRS, REFUSED, REFUSED_OR_SAME, SAME, TEXT, Case, Reader
from hostile.damages import PLACES, Make, both, change, change_tensors, cut, each, flip, instead, remove, write
from hostile.json_damages import edit_json, update_json
from hostile.readers import ENCODE_RUN, EXPORT, INDEX, KEPT, LISTED, RESUME, RUNS, STATE, readers_of_model

MODULES, POOLING, DENSE = "foreign/modules.json", "foreign/1_Pooling/config.json", "foreign/2_Dense/config.json"
ABOUT, WEIGHTS = "foreign/config_sentence_transformers.json", "foreign/2_Dense/model.safetensors"
THEIRS = "sentence_transformers.models"


def listed(change: Callable[[list[dict[str, Any]]], Any]) -> Make:
    return edit_json(MODULES, change)


def module(place: int, **fields: str) -> Make:
    return listed(lambda value: value[place].update(fields))


def more(kind: str, path: str = "3_More") -> Make:
    """One more module at the end, with an empty folder."""
    entry = {"idx": 3, "name": "3", "path": path, "type": kind}
    return both(
        lambda folder: os.makedirs(folder / "foreign" / path, exist_ok=True), listed(lambda value: value.append(entry))
    )


REFUSED_MODULES: dict[str, Make] = {
    **{f"the module {kind}": more(f"{THEIRS}.{kind}") for kind in ("CNN", "BoW", "WordWeights", "Router", "NoneSuch")},
    "another package's Pooling": module(1, type="my.custom.Pooling"),
    "a type that is code": more("os.system"),
    "two poolings": listed(lambda value: value.insert(1, value[1])),
    "pooling first": listed(lambda value: value.reverse()),
    "a module's folder above": module(1, path="../.."),
    "a module's folder from the root": module(1, path="/etc"),
    "a module's folder with a long name": module(1, path="n" * 300),
    "a module's folder with a NUL": module(1, path="a\0b"),
    "a dense layer without weights": remove(WEIGHTS),
    "dense weights of another shape": change_tensors(
        WEIGHTS, lambda found: found.update({"linear.weight": np.ones((8, 32), "f4")})
    ),
    "dense weights of NaN": change_tensors(WEIGHTS, lambda found: found["linear.weight"].fill(np.nan)),
    "an activation that is code": update_json(DENSE, activation_function="os.system"),
    "pooling of unknown modes": update_json(POOLING, pooling_mode=["cls", "none-such"]),
    "truncate_dim below zero": update_json(ABOUT, truncate_dim=-3),
    "a default prompt that is not there": update_json(ABOUT, prompts={}, default_prompt_name="none-such"),
    "a cross-encoder": both(
        *(remove(f"foreign/{name}") for name in ("modules.json", "1_Pooling", "2_Dense")),
        update_json("foreign/config.json", architectures=["BertForSequenceClassification"], num_labels=1),
    ),
}
READ_MODULES: dict[str, Make] = {  # or refused
    "Normalize twice": both(more(f"{THEIRS}.Normalize"), more(f"{THEIRS}.Normalize", "4_More")),
    "a dense bias that is not there": change_tensors(WEIGHTS, lambda found: found.pop("linear.bias")),
    "pooling of another size": update_json(POOLING, word_embedding_dimension=768),
    "a prompt longer than the model takes": update_json(ABOUT, prompts={"q": "a cat " * 100}, default_prompt_name="q"),
}
DROPOUT = both(more(f"{THEIRS}.Dropout"), write("foreign/3_More/config.json", '{"dropout": 0.9}'))


def npy(make: Callable[[np.ndarray], np.ndarray], pickled: bool = False) -> Make:
    """Changes the embeddings of the index."""

    def change(folder: Path) -> None:
        (path,) = (folder / "index").glob("*.npy")
        np.save(path, make(np.load(path)), allow_pickle=pickled)

    return change


VECTORS, ROWS = "index/*.npy", "index/*.parquet"
LARGER = lambda name: change(name, lambda data: data.replace(b"(12, 32)", b"(10**9, 32)"))  # noqa: E731
INDEX_DAMAGES: dict[str, Make] = {"no sentences": each(ROWS, remove), "embeddings cut": each(VECTORS, cut, 0.5)}
INDEX_DAMAGES |= {"sentences cut": each(ROWS, cut, 0.5), "narrower rows": npy(lambda array: array[:, :16])}
INDEX_DAMAGES |= {"embeddings of objects": npy(lambda array: array.astype(object), pickled=True)}
INDEX_DAMAGES |= {
    "NaN": npy(lambda array: array * np.float32("nan")),
    "a header of a huge shape": each(VECTORS, LARGER),
}
INDEX_DAMAGES |= {f"embeddings are {text}": each(VECTORS, instead, place) for text, place in PLACES.items()}
PARTIAL, PROGRESS = "state/.out.npy.partial", "state/.out.npy.state.json"
STATE_DAMAGES: dict[str, Make] = {"no unfinished file": remove(PARTIAL), "no state": remove(PROGRESS)}
STATE_DAMAGES |= {"an unfinished file that is cut": cut(PARTIAL, 0.3)}
STATE_DAMAGES |= {"an unfinished file of another kind": write(PARTIAL, b"x" * 5000)}
STATE_DAMAGES |= {f"an unfinished file that is {text}": instead(PARTIAL, place) for text, place in PLACES.items()}


def metrics(change: Callable[[list[dict[str, Any]]], list[Any]]) -> Make:
    """Other lines of metrics."""

    def make(folder: Path) -> None:
        path = folder / "workdir/metrics.jsonl"
        rows = change([json.loads(line) for line in path.read_text().splitlines()])
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    return make


def each_line(change: Callable[[dict[str, Any]], Any]) -> Make:
    """Other metrics in every line."""
    return metrics(lambda rows: [change(row) for row in rows])


def checkpoints(change: Callable[[Path], object]) -> Make:
    """Changes every file of every checkpoint."""
    return lambda folder: [
        change(path) for path in sorted((folder / "workdir/checkpoints").rglob("*")) if path.is_file()
    ]


def a_folder(name: str) -> Make:
    return lambda folder: os.makedirs(folder / "workdir/checkpoints" / name)


RUN_DAMAGES: dict[str, Make] = {
    "no checkpoints": remove("workdir/checkpoints"),
    "checkpoints cut": checkpoints(lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])),
    "checkpoints of other bytes": checkpoints(lambda path: path.write_bytes(b"x" * path.stat().st_size)),
    "checkpoints' JSON nested": checkpoints(lambda path: path.suffix or path.write_bytes(b"[" * 10_000)),
    "a checkpoint of another name": a_folder("many"),
    "a checkpoint of step 10^30": a_folder(str(10**30)),
    "an empty last checkpoint": a_folder("9"),
    "no run.json": remove("workdir/run.json"),
    "no model": remove("workdir/model"),
    "no metrics": remove("workdir/metrics.jsonl"),
    "metrics that are words": each_line(lambda row: row | {"step": "one"}),
    "metrics that are lists": each_line(lambda row: {name: [1] for name in row}),
    "metrics that are NaN": each_line(lambda row: dict.fromkeys(row, float("nan"))),
    "metrics of huge steps": each_line(lambda row: row | {"step": 10**30}),
    "metrics that are no objects": write("workdir/metrics.jsonl", "3\n[]\nnull\n"),
    "metrics cut": cut("workdir/metrics.jsonl", 0.7),
    "a result that is a list": write("workdir/result.json", "[1]"),
}


def cases() -> Iterator[Case]:
    encode, *_ = readers = readers_of_model("foreign")[:4]
    for reader, (damage, make) in zip(itertools.cycle(readers), REFUSED_MODULES.items(), strict=False):
        yield reader.case("sentence-transformers", damage, make)
    for damage, make in READ_MODULES.items():
        yield encode.case("sentence-transformers", damage, make, EITHER)
    yield encode.case("sentence-transformers", "Dropout", DROPOUT, SAME)
    for damage, make in INDEX_DAMAGES.items():
        yield INDEX.case("indexes", damage, make)
    yield INDEX.case("indexes", "columns first", npy(np.asfortranarray), EITHER)
    for seed, pattern in itertools.product(range(3), (VECTORS, ROWS)):
        yield INDEX.case("indexes", f"{pattern} changed by seed {seed}", each(pattern, flip, seed), EITHER)
    for damage, make in STATE_DAMAGES.items():
        yield STATE.case("unfinished encodings", damage, make, REFUSED_OR_SAME)
    yield STATE.case("unfinished encodings", "another input", write(TEXT, "a cat\nthe dog\n" * 6), EITHER)
    turns = itertools.cycle([RUNS, EXPORT, KEPT, ENCODE_RUN])
    for damage, make in RUN_DAMAGES.items():
        chosen = [RUNS, RESUME, EXPORT] if "metrics" in damage else [next(turns), next(turns)]
        for reader in [*chosen, *[LISTED] * ("checkpoint" not in damage)]:
            of = f"{damage} [{reader.arguments[0]}]"
            yield reader.case("runs", of, make, REFUSED if damage == "no run.json" else EITHER)
    yield from mixed_up()


def mixed_up() -> Iterator[Case]:
    """Each folder and file in the place of another: a run as a model's tokenizer, an index as a run, and so on."""
    places = {
        "encode": ("--model={}", f"--data={TEXT}", "--output=out.npy"),
        "evaluate": ("--model=model", "--data={}"),
        "export": ("--workdir={}", "--output=out"),
        "search": ("--model=model", f"--data={TEXT}", "--query=a", "--index={}"),
        "merge": ("--models", "model", "{}", "--output=out"),
        "analyze": ("--runs", "{}", "--output=out"),
        "geometry": ("--runs", "{}", f"--data={PAIRS}", "--output=out"),
        "overlap": ("{}",),
        "runs": ("{}",),
    }
    right = {("encode", seed) for seed in ("model", "foreign", "exported", "workdir")}
    right |= {(command, "workdir") for command in ("export", "analyze", "geometry", "runs")}
    right |= {("merge", seed) for seed in ("model", "foreign")}
    right |= {("search", "index"), ("search", "empty")}
    seeds = ("model", "foreign", "exported", "index", "state", "workdir", TEXT, "empty")
    for (command, arguments), seed in itertools.product(places.items(), seeds):
        if (command, seed) not in right:
            inputs = [name for name in dict.fromkeys(["model", TEXT, PAIRS, seed]) if name != "empty"]
            make = (lambda folder: (folder / "empty").mkdir()) if seed == "empty" else None
            line = [argument.replace("{}", seed) for argument in arguments]
            yield Reader(command, line, inputs).case("folders mixed up", f"{seed} as {' '.join(arguments)}", make)
