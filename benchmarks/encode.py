"""`SimCSE.encode` and sentence-transformers' `encode`, in turn, on the same sentences and the same weights.

    python -m benchmarks.encode [--base] [--data FILE …] [--rows 2000] [--words 1 6] [--single] [--onnx-python PYTHON]
        [--openvino-python PYTHON] [--representax-python PYTHON] [--output FILE]

In float32 and in bfloat16, theirs with PyTorch and, in float32, with ONNX Runtime and OpenVINO; representax, the other
encoder in JAX, in both. These need other releases of transformers than ours (optimum-onnx 0.1 takes those below 4.58),
so each has an environment of its own, whose Python is given:

    make .venv/onnx/done .venv/openvino/done .venv/representax/done
    python -m benchmarks.encode --onnx-python .venv/onnx/bin/python --openvino-python .venv/openvino/bin/python \
        --representax-python .venv/representax/bin/python

A file of pairs in STS-B's layout (`sts-test.csv`) or a graded `.tsv` gives the sentences of both sides. Ours encodes
each distinct sentence once; all are counted on both sides. `--words 1 6` cuts the running text of a file into texts of
one to six words, as queries have, `--words 250 250` into long ones. `--single` encodes each text in a call of its own.
Below the table: a call's p50 and p99 of `--single` (medians over the rounds), the smallest cosine between bfloat16 and
float32, and the largest difference of an element between our embeddings and theirs.
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import side_by_side
from benchmarks.options import Parser
from benchmarks.random_models import folder_of_model
from benchmarks.side_by_side import Contender, Need, python_of
from benchmarks.step_options import SENTENCES, add_model, add_order
from benchmarks.work import encoder_flops
from simcse_jax.commands.command_line import run_command
from simcse_jax.data.sentences import SentenceFile
from simcse_jax.errors import UserError
from simcse_jax.evaluation import sts
from simcse_jax.host.outputs import output_file
from simcse_jax.host.storage import local_path

OURS = {"float32": "simcse_jax, float32", "bfloat16": "simcse_jax, bfloat16"}
THEIRS = {"float32": "sentence-transformers, float32", "bfloat16": "sentence-transformers, bfloat16"}
ONNX = "sentence-transformers, ONNX"
OPENVINO = "sentence-transformers, OpenVINO"
REPRESENTAX = {"float32": "representax, float32", "bfloat16": "representax, bfloat16"}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="benchmarks.encode", description=__doc__.splitlines()[0])
    add_model(parser)
    parser.add_argument("--data", action="append", help="a file of sentences or of pairs; may be given again")
    parser.add_argument("--column", help="of a table")
    parser.add_argument(
        "--rows", type=int, least=1, default=2000, help="so many sentences, evenly spread over the file"
    )
    parser.add_argument("--words", nargs=2, type=int, metavar=("LEAST", "MOST"), help="of a text: cuts the sentences")
    parser.add_argument("--dtype", nargs="+", choices=tuple(OURS), default=list(OURS))
    parser.add_argument("--rounds", type=int, least=1, default=3)
    parser.add_argument("--batch-size", type=int, least=1, default=64, help="ours")
    parser.add_argument("--peer-batch-size", type=int, least=1, default=32, help="theirs; 32 is its own default")
    parser.add_argument("--single", action="store_true", help="a call for each text")
    parser.add_argument(
        "--onnx-python", default=sys.executable, help="of the environment that has optimum-onnx; empty: without it"
    )
    parser.add_argument("--openvino-python", help="of the one that has optimum-intel (default: without OpenVINO)")
    parser.add_argument("--representax-python", help="of the one that has representax (default: without it)")
    parser.add_argument("--alone", action="store_true", help="without sentence-transformers")
    add_order(parser)
    parser.add_argument("--output", type=output_file, help="the figures as JSON")
    args = parser.parse_args()
    if args.words and not 0 < args.words[0] <= args.words[1]:
        raise UserError(f"--words {args.words[0]} {args.words[1]}: must be 1 or more, the lesser one first")
    return args


def main() -> None:
    """Prints a table a file."""
    args = parse()
    data = {name: sentences_of(name, args.column, args.rows, args.words) for name in args.data or [SENTENCES]}
    print(side_by_side.heading(), flush=True)
    with folder_of_model(args.base, args.model) as args.model:
        results = [measure(name, sentences, args) for name, sentences in data.items()]
    side_by_side.report("encode", results, args.output)


def sentences_of(name: str, column: str | None, rows: int, words: Sequence[int] | None = None) -> list[str]:
    """So many sentences of a file, evenly spread over it, or pieces of its running text with so many `words`.

    Raises:
      UserError: naming the file and the mistake.
    """
    if column is None and sts.is_graded(local_path(name)):
        if local_path(name).is_dir():
            raise UserError(f"--data {name}: is a folder; give a file of it")
        pairs = next(iter(sts.read(name, ())[0].values()))
        texts = [*pairs.first, *pairs.second]
    else:
        texts = list(SentenceFile(name, column))
    if words:
        texts = list(pieces(texts, *words))
    return [texts[row] for row in np.linspace(0, len(texts) - 1, min(rows, len(texts))).astype(int)]


def pieces(sentences: Iterable[str], least: int, most: int) -> Iterator[str]:
    """Texts of least, least + 1, … most, least, … of the sentences' words, without what is left at the end."""
    words, start = [word for sentence in sentences for word in sentence.split()], 0
    for size in itertools.cycle(range(least, most + 1)):
        if start + size > len(words):
            return
        yield " ".join(words[start : start + size])
        start += size


def measure(name: str, sentences: Sequence[str], args: argparse.Namespace) -> dict[str, Any]:
    """One table, printed, and its figures."""
    what = "texts of {} to {} words".format(*args.words) if args.words else "sentences"
    how = f"{', BERT-base' if args.base else ''}{', a call each' if args.single else ''}"
    title = f"{Path(name).name}, {len(sentences)} {what}{how}"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "sentences.json").write_text(json.dumps(sentences))
        contenders = contenders_of(args, folder)
        flops = flops_of(args.model, sentences)
        comparison = side_by_side.compare(
            title,
            "sentences",
            contenders,
            args.rounds,
            needs={one.name: Need(flops, one.options["dtype"]) for one in contenders},
            order=args.order,
        )
        embeddings = {
            one.name: np.load(one.options["save"]) for one in contenders if Path(one.options["save"]).is_file()
        }
    print(f"\n{side_by_side.table(comparison)}", flush=True)
    found = {"data": name, "distinct": len(set(sentences)), **comparison.to_json()}
    found["ratios"] = {
        f"{first} / {second}": side_by_side.spread(comparison.ratios(first, second))
        for first in OURS.values()
        for second in [*OURS.values(), *THEIRS.values(), ONNX, OPENVINO, *REPRESENTAX.values()]
        if first != second and comparison.ratios(first, second)
    }
    for pair, ratio in found["ratios"].items():
        print(f"  {pair}: {ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})")
    for contender, each in found["contenders"].items() if args.single else ():
        notes = [done["notes"] for done in comparison.rounds[contender]]
        each["notes"] = {key: statistics.median(note[key] for note in notes) for key in notes[0]}
        print(f"  {contender}: p50 {each['notes']['p50_ms']:.2f} ms, p99 {each['notes']['p99_ms']:.2f} ms")
    found["agreement"] = agreement(embeddings)
    for sentence, value in found["agreement"].items():
        print(f"  {sentence}: {value:.3g}" if value < 0.5 else f"  {sentence}: {value:.6f}", flush=True)
    return found


def contenders_of(args: argparse.Namespace, folder: Path) -> list[Contender]:
    """Ours and theirs of each dtype, and theirs with ONNX Runtime and OpenVINO."""
    from simcse_jax.huggingface.resolve import resolve

    model = str(resolve(args.model))
    contenders: list[Contender] = []

    def add(name: str, factory: str, python: str = sys.executable, **options: Any) -> None:
        files = {"sentences": str(folder / "sentences.json"), "save": str(folder / f"{len(contenders)}.npy")}
        options |= files | {"single": args.single}
        contenders.append(Contender(name, f"benchmarks.encoders:{factory}", options, python))

    pooler = "avg" if args.base else None  # as sentence-transformers takes for a folder that names none
    for dtype in args.dtype:
        add(OURS[dtype], "ours", model=args.model, dtype=dtype, batch_size=args.batch_size, pooler=pooler)
    if args.representax_python:
        python = python_of(args.representax_python)
        options = {"folder": model, "batch_size": 1 if args.single else args.peer_batch_size}
        for dtype in args.dtype:
            add(REPRESENTAX[dtype], "representax", python, **options, dtype=dtype)
    if args.alone:
        return contenders
    for dtype in args.dtype:
        add(THEIRS[dtype], "theirs", folder=model, dtype=dtype, batch_size=args.peer_batch_size)
    for name, python in ((ONNX, args.onnx_python), (OPENVINO, args.openvino_python)):
        if python:
            backend = {"batch_size": args.peer_batch_size, "backend": name.split()[-1].lower()}
            add(name, "theirs", python_of(python), folder=model, dtype="float32", **backend)
    return contenders


def flops_of(model: str, sentences: Sequence[str]) -> float:
    """The operations for a sentence, on average; see `benchmarks.work`."""
    from simcse_jax.huggingface.tokenizer import Tokenizer
    from simcse_jax.runs.loading import load_model

    loaded = load_model(model, 0)
    tokens = Tokenizer(loaded.folder, loaded.config)(sentences, loaded.max_length)
    return encoder_flops(loaded.config, map(len, tokens)) / len(sentences)


def agreement(embeddings: dict[str, np.ndarray]) -> dict[str, float]:
    """How far the embeddings of contenders, (N, D) by name, are from each other."""
    found = {}
    exact = embeddings.get(OURS["float32"])
    for who in (OURS, THEIRS):
        first, second = embeddings.get(who["float32"]), embeddings.get(who["bfloat16"])
        if first is not None and second is not None:
            found[f"least cosine of {who['bfloat16']} to its float32"] = float(sts.cosine(first, second).min())
    for name in (THEIRS["float32"], ONNX, OPENVINO, REPRESENTAX["float32"]):
        if exact is not None and name in embeddings:
            found[f"largest difference of {OURS['float32']} to {name}"] = float(np.abs(exact - embeddings[name]).max())
    return found


if __name__ == "__main__":
    run_command(main)
