"""Folders of several files: sentence-transformers' modules, runs, indexes and unfinished encodings."""

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hostile.case import EITHER, PAIRS, REFUSED, REFUSED_OR_SAME, SAME, TEXT, Case
from hostile.cases_json import ENCODE_RUN, EXPORT, INDEX, KEPT, RESUME, RUNS, STATE, Reader, readers_of_model
from hostile.damages import PLACES, Make, as_earlier, both, copy, cut, flip, instead, remove, write
from hostile.json_damages import change_json

MODULES, POOLING, DENSE = "foreign/modules.json", "foreign/1_Pooling/config.json", "foreign/2_Dense/config.json"
ABOUT = "foreign/config_sentence_transformers.json"
THEIRS = "sentence_transformers.models"


def listed(change: Callable[[list[dict[str, Any]]], Any]) -> Make:
    return change_json(MODULES, change)


def more(kind: str, path: str = "3_More") -> Make:
    """One more module at the end, with an empty folder."""
    entry = {"idx": 3, "name": "3", "path": path, "type": kind}
    return both(
        lambda folder: os.makedirs(folder / "foreign" / path, exist_ok=True), listed(lambda value: value.append(entry))
    )


def config(name: str, **values: Any) -> Make:
    return change_json(name, lambda value: value.update(values))


def dense(change: Callable[[dict[str, np.ndarray]], Any]) -> Make:
    """Changes the tensors of the dense module."""

    def make(folder: Path) -> None:
        from safetensors.numpy import load_file, save_file

        path = folder / "foreign/2_Dense/model.safetensors"
        found = load_file(path)
        change(found)
        save_file(found, path)

    return make


MODULE_DAMAGES: dict[str, tuple[Make, str]] = {
    **{
        f"the module {kind}": (more(f"{THEIRS}.{kind}"), REFUSED)
        for kind in (
            "CNN",
            "LSTM",
            "BoW",
            "WordEmbeddings",
            "WordWeights",
            "Router",
            "Asym",
            "CLIPModel",
            "WeightedLayerPooling",
            "StaticEmbedding",
            "NoneSuch",
        )
    },
    "another package's Pooling": (listed(lambda value: value[1].update(type="my.custom.Pooling")), REFUSED),
    "another package's Dense": (listed(lambda value: value[2].update(type="my.Dense")), REFUSED),
    "another package's Normalize": (more("torch.nn.Normalize"), REFUSED),
    "a type that is code": (more("os.system"), REFUSED),
    "a type of dots": (listed(lambda value: value[1].update(type="...")), REFUSED),
    "LayerNorm without weights": (more(f"{THEIRS}.LayerNorm"), REFUSED),
    "Dropout": (both(more(f"{THEIRS}.Dropout"), write("foreign/3_More/config.json", '{"dropout": 0.9}')), SAME),
    "Normalize twice": (both(more(f"{THEIRS}.Normalize"), more(f"{THEIRS}.Normalize", "4_More")), EITHER),
    "no Transformer": (listed(lambda value: value.pop(0) and None), EITHER),
    "two Transformers": (listed(lambda value: value.append(value[0])), REFUSED),
    "two poolings": (listed(lambda value: value.insert(1, value[1])), REFUSED),
    "pooling first": (listed(lambda value: value.reverse()), REFUSED),
    "no pooling": (listed(lambda value: value.pop(1) and None), REFUSED),
    "no modules": (listed(lambda value: value.clear()), REFUSED),
    "a module's folder above": (listed(lambda value: value[1].update(path="../..")), REFUSED),
    "a module's folder from the root": (listed(lambda value: value[1].update(path="/etc")), REFUSED),
    "a module's folder that is a file": (listed(lambda value: value[1].update(path="config.json")), REFUSED),
    "a module's folder with a long name": (listed(lambda value: value[1].update(path="n" * 300)), REFUSED),
    "a module's folder with a NUL": (listed(lambda value: value[1].update(path="a\0b")), REFUSED),
    "a module's folder that is missing": (remove("foreign/1_Pooling"), REFUSED),
    "a dense layer's folder that is missing": (remove("foreign/2_Dense"), REFUSED),
    "a dense layer without weights": (remove("foreign/2_Dense/model.safetensors"), REFUSED),
    "dense weights cut": (cut("foreign/2_Dense/model.safetensors", 0.5), REFUSED),
    "dense weights without the kernel": (dense(lambda found: found.pop("linear.weight")), REFUSED),
    "dense weights of another shape": (
        dense(lambda found: found.update({"linear.weight": np.ones((8, 32), "f4")})),
        REFUSED,
    ),
    "a dense bias of another shape": (dense(lambda found: found.update({"linear.bias": np.ones(7, "f4")})), REFUSED),
    "a dense bias that is not there": (dense(lambda found: found.pop("linear.bias")), EITHER),
    "dense weights of NaN": (dense(lambda found: found["linear.weight"].fill(np.nan)), REFUSED),
    "an activation that is unknown": (
        config(DENSE, activation_function="torch.nn.modules.activation.NoneSuch"),
        REFUSED,
    ),
    "an activation that is code": (config(DENSE, activation_function="os.system"), REFUSED),
    "an activation of another package": (config(DENSE, activation_function="my.Tanh"), REFUSED),
    "a dense layer of other sizes": (config(DENSE, in_features=16), REFUSED),
    "pooling of no mode": (config(POOLING, pooling_mode_cls_token=False), EITHER),
    "pooling of an unknown mode": (config(POOLING, pooling_mode="none-such"), REFUSED),
    "pooling of unknown modes": (config(POOLING, pooling_mode=["cls", "none-such"]), REFUSED),
    "pooling of another size": (config(POOLING, word_embedding_dimension=768), EITHER),
    "truncate_dim beyond the size": (config(ABOUT, truncate_dim=1000), EITHER),
    "truncate_dim of zero": (config(ABOUT, truncate_dim=0), REFUSED),
    "truncate_dim below zero": (config(ABOUT, truncate_dim=-3), REFUSED),
    "a similarity that is unknown": (config(ABOUT, similarity_fn_name="none-such"), REFUSED),
    "a default prompt that is not there": (config(ABOUT, prompts={}, default_prompt_name="none-such"), REFUSED),
    "a prompt that is a number": (config(ABOUT, prompts={"query": 3}, default_prompt_name="query"), REFUSED),
    "a prompt longer than the model takes": (
        config(ABOUT, prompts={"q": "a cat " * 100}, default_prompt_name="q"),
        EITHER,
    ),
}
CROSS = both(
    lambda folder: [remove(f"foreign/{name}")(folder) for name in ("modules.json", "1_Pooling", "2_Dense")],
    config(
        "foreign/config.json", architectures=["BertForSequenceClassification"], num_labels=1, id2label={"0": "LABEL_0"}
    ),
)


def npy(make: Callable[[np.ndarray], np.ndarray], pickled: bool = False) -> Make:
    """Changes the embeddings of the index."""

    def change(folder: Path) -> None:
        (path,) = (folder / "index").glob("*.npy")
        np.save(path, make(np.load(path)), allow_pickle=pickled)

    return change


def each(pattern: str, make: Callable[[str], Make]) -> Make:
    """A damage of the file that a pattern finds."""

    def change(folder: Path) -> None:
        (path,) = sorted(folder.glob(pattern))[:1]
        make(str(path.relative_to(folder)))(folder)

    return change


INDEX_DAMAGES: dict[str, tuple[Make, str]] = {
    "no embeddings": (each("index/*.npy", remove), REFUSED),
    "no sentences": (each("index/*.parquet", remove), REFUSED),
    "embeddings cut": (each("index/*.npy", lambda name: cut(name, 0.5)), REFUSED),
    "an empty file of embeddings": (each("index/*.npy", lambda name: write(name, b"")), REFUSED),
    "sentences cut": (each("index/*.parquet", lambda name: cut(name, 0.5)), REFUSED),
    "embeddings of objects": (npy(lambda array: array.astype(object), pickled=True), REFUSED),
    "embeddings of float64": (npy(np.float64), REFUSED),
    "fewer rows": (npy(lambda array: array[:-1]), REFUSED),
    "narrower rows": (npy(lambda array: array[:, :16]), REFUSED),
    "columns first": (npy(np.asfortranarray), EITHER),
    "NaN": (npy(lambda array: array * np.float32("nan")), REFUSED),
    "a header of a huge shape": (
        each(
            "index/*.npy",
            lambda name: both(
                lambda folder: (folder / name).write_bytes(
                    (folder / name).read_bytes().replace(b"(12, 32)", b"(10**9, 32)")
                )
            ),
        ),
        REFUSED,
    ),
    **{
        f"embeddings are {text}": (each("index/*.npy", lambda name, place=place: instead(name, place)), REFUSED)
        for text, place in PLACES.items()
    },
}
STATE_DAMAGES: dict[str, Make] = {
    "no unfinished file": remove("state/.out.npy.partial"),
    "no state": remove("state/.out.npy.state.json"),
    "an unfinished file that is cut": cut("state/.out.npy.partial", 0.3),
    "an unfinished file that is empty": write("state/.out.npy.partial", b""),
    "an unfinished file of another kind": write("state/.out.npy.partial", b"x" * 5000),
    "more rows done than there are": config("state/.out.npy.state.json", done=10**6),
    "fewer rows than none": config("state/.out.npy.state.json", done=-4),
    "more cut than there are": config("state/.out.npy.state.json", cut=-3),
    "another model": config("state/.out.npy.state.json", about={"--model": "0" * 64}),
    "begun by an earlier version": as_earlier("state"),
    "begun by an earlier version, and cut": both(cut("state/.out.npy.partial", 0.3), as_earlier("state")),
    "begun twice": copy("state/.out.npy.partial"),
    "another input": write(TEXT, "a cat\nthe dog\n" * 6),
    **{
        f"an unfinished file that is {text}": instead("state/.out.npy.partial", place) for text, place in PLACES.items()
    },
}


def metrics(change: Callable[[list[dict[str, Any]]], Any]) -> Make:
    def make(folder: Path) -> None:
        path = folder / "workdir/metrics.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows = change(rows) or rows
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    return make


def checkpoints(change: Callable[[Path], object]) -> Make:
    """Changes every file of every checkpoint."""

    def make(folder: Path) -> None:
        for path in sorted((folder / "workdir/checkpoints").rglob("*")):
            if path.is_file():
                change(path)

    return make


LISTED = Reader("runs", ["workdir"], ["workdir"], "")
RUN_DAMAGES: dict[str, tuple[Make, str]] = {
    "no checkpoints": (remove("workdir/checkpoints"), EITHER),
    "checkpoints that are a file": (instead("workdir/checkpoints", lambda path: path.write_text("x")), EITHER),
    "empty checkpoints": (checkpoints(lambda path: path.write_bytes(b"")), EITHER),
    "checkpoints cut": (
        checkpoints(lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])),
        EITHER,
    ),
    "checkpoints of other bytes": (checkpoints(lambda path: path.write_bytes(b"x" * path.stat().st_size)), EITHER),
    "checkpoints' JSON nested": (checkpoints(lambda path: path.suffix or path.write_bytes(b"[" * 10_000)), EITHER),
    "a checkpoint of another name": (lambda folder: os.makedirs(folder / "workdir/checkpoints/many"), EITHER),
    "a checkpoint of step -1": (lambda folder: os.makedirs(folder / "workdir/checkpoints/-1"), EITHER),
    "a checkpoint of step 10^30": (lambda folder: os.makedirs(folder / f"workdir/checkpoints/{10**30}"), EITHER),
    "an empty last checkpoint": (lambda folder: os.makedirs(folder / "workdir/checkpoints/9"), EITHER),
    "no run.json": (remove("workdir/run.json"), REFUSED),
    "no model": (remove("workdir/model"), EITHER),
    "no metrics": (remove("workdir/metrics.jsonl"), EITHER),
    "metrics that are words": (metrics(lambda rows: [row.update(step="one") for row in rows] and None), EITHER),
    "metrics that are null": (metrics(lambda rows: [dict.fromkeys(row) for row in rows]), EITHER),
    "metrics that are lists": (metrics(lambda rows: [{name: [1] for name in row} for row in rows]), EITHER),
    "metrics that are NaN": (metrics(lambda rows: [{name: float("nan") for name in row} for row in rows]), EITHER),
    "metrics in reverse": (metrics(lambda rows: rows[::-1]), EITHER),
    "metrics twice": (metrics(lambda rows: rows * 2), EITHER),
    "metrics of huge steps": (metrics(lambda rows: [row.update(step=10**30) for row in rows] and None), EITHER),
    "metrics without steps": (metrics(lambda rows: [row.pop("step", None) for row in rows] and None), EITHER),
    "metrics that are no objects": (write("workdir/metrics.jsonl", "3\n[]\nnull\n"), EITHER),
    "metrics cut": (cut("workdir/metrics.jsonl", 0.7), EITHER),
    "metrics of other bytes": (write("workdir/metrics.jsonl", b"\xff\xfe\0" * 30), EITHER),
    "a result that is a list": (write("workdir/result.json", "[1]"), EITHER),
}


def cases() -> Iterator[Case]:
    yield from sentence_transformers()
    yield from indexes_and_states()
    yield from runs()
    yield from mixed_up()


def sentence_transformers() -> Iterator[Case]:
    readers = itertools.cycle(readers_of_model("foreign")[:4])
    for damage, (make, end) in MODULE_DAMAGES.items():
        reader = readers_of_model("foreign")[0] if end != REFUSED else next(readers)
        yield case("sentence-transformers", reader, damage, make, end)
    for reader in readers_of_model("foreign")[:4]:
        yield case("sentence-transformers", reader, "a cross-encoder", CROSS, REFUSED)


def indexes_and_states() -> Iterator[Case]:
    for damage, (make, end) in INDEX_DAMAGES.items():
        yield case("indexes", INDEX, damage, make, end)
    for seed in range(6):
        for pattern in ("index/*.npy", "index/*.parquet"):
            flipped = each(pattern, lambda name, seed=seed: flip(name, seed))
            yield case("indexes", INDEX, f"{pattern} changed by seed {seed}", flipped, EITHER)
    for damage, make in STATE_DAMAGES.items():
        end = EITHER if damage == "another input" else REFUSED_OR_SAME
        yield case("unfinished encodings", STATE, damage, make, end)


def runs() -> Iterator[Case]:
    readers = itertools.cycle([RUNS, EXPORT, KEPT, ENCODE_RUN])
    for damage, (make, end) in RUN_DAMAGES.items():
        chosen = [RUNS, RESUME, EXPORT] if "metrics" in damage else [next(readers), next(readers)]
        for reader in [*chosen, *[LISTED] * ("checkpoint" not in damage)]:
            yield case("runs", reader, damage, make, end)


def mixed_up() -> Iterator[Case]:
    """Each folder and file in the place of another: a run as a model's tokenizer, an index as a run, and so on."""
    seeds = ("model", "foreign", "exported", "index", "state", "workdir", TEXT, "empty")
    places = {
        "encode": ("--model={}", f"--data={TEXT}", "--output=out.npy"),
        "evaluate": ("--model=model", "--data={}"),
        "export": ("--workdir={}", "--output=out"),
        "search": ("--model=model", f"--data={TEXT}", "--query=a", "--index={}"),
        "analyze": ("--runs", "{}", "--output=out"),
        "geometry": ("--runs", "{}", f"--data={PAIRS}", "--output=out"),
        "overlap": ("{}",),
        "runs": ("{}",),
    }
    right = {("encode", seed) for seed in ("model", "foreign", "exported", "workdir")}
    right |= {
        ("export", "workdir"),
        ("search", "index"),
        ("search", "empty"),
        ("analyze", "workdir"),
        ("geometry", "workdir"),
        ("runs", "workdir"),
    }
    for (command, arguments), seed in itertools.product(places.items(), seeds):
        if (command, seed) in right:
            continue
        inputs = tuple(dict.fromkeys(name for name in ("model", TEXT, PAIRS, seed) if name != "empty"))
        make = (lambda folder: (folder / "empty").mkdir()) if seed == "empty" else None
        line = [argument.replace("{}", seed) for argument in arguments]
        yield Case(
            "folders mixed up",
            command,
            f"{seed} as {arguments[-1] if len(arguments) < 3 else ' '.join(arguments)}",
            line,
            inputs,
            make,
            REFUSED,
        )


def case(kind: str, reader: Reader, damage: str, make: Make, end: str) -> Case:
    output = reader.output if end != REFUSED and reader.command != "train" else ""
    return Case(
        kind,
        reader.command,
        f"{damage} [{reader.output}]" if reader in (RUNS, KEPT) else damage,
        reader.arguments,
        reader.inputs,
        make,
        end,
        output=output,
        leaves=reader.leaves,
    )
