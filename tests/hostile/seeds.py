"""The undamaged inputs of the cases: tiny models, data, a run's folder, an export, an index, an unfinished encoding."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from hostile.case import Seeds
from hostile.zygote import Zygote
from support import sentences, write_model
from support.beir import write_beir
from support.layouts import as_pytorch

SENTENCES = sentences(12)
GRADED = [("a cat", "the cat sat", 5.0), ("the dog ran", "she ran home", 2.5), ("a bird", "a bird", 4.5)]
GRADED += [("home", "tree", 0.0), ("she sings", "he sings", 3.5), ("red", "small old tree", 1.0)]
SMALL_RUN = {"model.init_from": "model", "data.train": "text.txt", "data.max_length": 16, "train.batch_size": 8}
SMALL_RUN |= {"train.max_steps": 2, "eval.data": "pairs.tsv", "parallel.devices": 1}


def train_arguments(workdir: str, **changes: object) -> list[str]:
    """A run of two steps; a dot in a field's name is written as two underscores."""
    fields = SMALL_RUN | {name.replace("__", "."): value for name, value in changes.items()}
    given = (f"--config.{name}={value}" for name, value in fields.items())
    return ["--config=unsup_bert", f"--workdir={workdir}", *given]


def write_text(path: Path) -> None:
    path.write_text("\n".join(SENTENCES) + "\n")


def write_pairs(path: Path) -> None:
    path.write_text("\n".join(["sentence1\tsentence2\tscore", *("\t".join(map(str, row)) for row in GRADED)]) + "\n")


def write_triplets(path: Path) -> None:
    rows = [",".join(row) for row in zip(SENTENCES, SENTENCES[1:] + SENTENCES, sentences(12, 1), strict=False)]
    path.write_text("\n".join(["sent0,sent1,hard_neg", *rows]) + "\n")


def write_torch_model(folder: Path) -> None:
    """A model whose weights are a pickle of PyTorch's."""
    from safetensors.numpy import load_file

    write_model(folder, "bert")
    (folder / "pytorch_model.bin").write_bytes(as_pytorch(load_file(folder / "model.safetensors")))
    (folder / "model.safetensors").unlink()


def write_sharded_model(folder: Path) -> None:
    """A model whose weights are in two files and their index."""
    from safetensors.numpy import load_file, save_file

    write_model(folder, "bert")
    tensors = load_file(folder / "model.safetensors")
    names, places = sorted(tensors), {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-{number:05}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file, metadata={"format": "pt"})
        places |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": sum(array.nbytes for array in tensors.values())}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()


def write_small_adapter() -> None:
    """A random adapter of the model `model`."""
    import dataclasses

    from simcse_jax.huggingface.load import load
    from simcse_jax.huggingface.peft import base_fingerprint, sites, write_adapter
    from simcse_jax.models import lora
    from simcse_jax.models.config import Lora, Partial

    model, folder = load("model"), Path("adapter")
    own = Lora(2, 4.0, sites(model.config, (), ""))
    encoder = dataclasses.replace(model.config, partial=Partial(lora=own))
    draw, params = np.random.default_rng(0), {}
    for (_, site), (down, up) in lora.names(encoder).items():
        inner, outer = lora.features(encoder, site)
        for name, shape in ((down, (inner, 2)), (up, (2, outer))):
            params[name] = draw.normal(0, 0.1, shape).astype(np.float32)
    folder.mkdir()
    write_adapter(params, encoder, folder, base="model", sha=base_fingerprint(model.params), dropout=0.0)


# By the name in a case's folder.
SIMPLE: dict[str, Callable[[Path], object]] = {"model": lambda folder: write_model(folder, "bert")}
SIMPLE |= {"roberta": lambda folder: write_model(folder, "roberta"), "torch": write_torch_model}
SIMPLE |= {"sharded": write_sharded_model, "text.txt": write_text, "pairs.tsv": write_pairs}
SIMPLE |= {"train.csv": write_triplets, "beir": write_beir}
EACH_STEP = dict.fromkeys(("eval__every", "checkpoint__keep_every", "analysis__every"), 1)
ANALYSIS = {"analysis__data": "train.csv", "analysis__sentences": 10}
RUN = train_arguments("workdir", data__train="train.csv", model__mlp="always", **ANALYSIS, **EACH_STEP)
GIST = {"objective__info_nce__weight": 0, "objective__gist__weight": 1, "teacher__model": "model"}
TAUGHT_RUN = train_arguments("run", data__train="train.csv", teacher__kept="kept", **GIST)
PREPARE = ["--data=text.txt", "--model=model", "--max-length=16", "--output=corpus"]
ENCODE = ["--model=model", "--data=text.txt", "--output=embeddings/emb.parquet"]
HALF = [*ENCODE[:2], "--output=state/out.npy", "--save-every=4"]
MINE = ["--model=model", "--pairs=train.csv", "--corpus=text.txt", "--output=mined.jsonl"]
MINED = [*MINE[:3], "--output=mined/out.jsonl", "--block-rows=6"]
BLOCKS = ["--model=model", "--data=text.txt", "--output=blocks/", "--block-rows=6", "--keep-text"]
# Made by commands from the above: the inputs, the command line, and what it writes.
MADE: dict[str, tuple[list[str], str, list[str]]] = {
    "adapter": (["model"], "hostile.seeds:write_small_adapter", []),
    "workdir": (["model", "train.csv", "pairs.tsv"], "train", RUN),
    "exported": (["workdir"], "export", ["--workdir=workdir", "--output=exported"]),
    "foreign": (["exported"], "hostile.seeds:write_sentence_transformer", []),
    "index": (["model", "text.txt"], "search", ["--model=model", "--data=text.txt", "--index=index", "--query=a"]),
    "corpus": (["model", "text.txt"], "prepare", PREPARE),
    "embeddings": (["model", "text.txt"], "hostile.seeds:encode_into_folder", ENCODE),
    "blocks": (["model", "text.txt"], "encode", BLOCKS),
    "bytes": (["embeddings"], "search", ["build", "--embeddings=embeddings", "--output=bytes", "--precision=int8"]),
    "lance": (["embeddings"], "search", ["build", "--embeddings=embeddings", "--output=lance"]),
    "kept": (["model", "train.csv", "pairs.tsv"], "train", TAUGHT_RUN),
    "mined": (["model", "text.txt", "train.csv"], "hostile.seeds:mine_half", MINED),
    "state": (["model", "text.txt"], "hostile.seeds:encode_half", HALF),
}


def write_sentence_transformer() -> None:
    """An export as another program would have written it: without our own file."""
    shutil.copytree("exported", "foreign", ignore=shutil.ignore_patterns("simcse_jax.json"))


def encode_into_folder() -> None:
    """`encode`, into a folder that does not exist yet."""
    from simcse_jax.commands.verbs import make_main

    os.mkdir("embeddings")
    make_main("encode")()


def encode_half() -> None:
    """`encode`, stopped after the first part."""
    end_after_a_part("state", "encode", "PartialEmbeddings")


def mine_half() -> None:
    """`mine`, stopped after the first block."""
    end_after_a_part("mined", "mine", "PartialPairs")


def end_after_a_part(folder: str, command: str, name: str) -> None:
    """A command that writes to a new folder, whose process ends as if by a kill."""
    from simcse_jax.bulk import resumable
    from simcse_jax.commands.verbs import make_main

    os.mkdir(folder)
    kind = getattr(resumable, name)
    append = kind.append

    def append_and_end(self: object, *part: object) -> None:
        append(self, *part)
        os._exit(0)

    kind.append = append_and_end
    make_main(command)()


def make_seed(name: str, folder: Path, seeds: Seeds, zygote: Zygote) -> None:
    """One of them, in a new folder."""
    folder.mkdir()
    if name in SIMPLE:
        SIMPLE[name](folder / name)
        return
    inputs, command, arguments = MADE[name]
    for part in inputs:
        seeds.copy(part, folder / part)
    done = zygote.run(command, arguments, folder)
    assert done.code == 0 and (folder / name).exists(), (name, done)
