"""Post-processing: maps frozen embeddings to more isotropic ones, fit on sentences without labels.

It turns one `encode` into another, which all evaluators accept: whitening (Su et al. 2021) and a flow (Li et al. 2020).
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Float64

from simcse_jax.data.examples import prefix_of, read_examples
from simcse_jax.data.files import files_of as files_of_source
from simcse_jax.data.sts import SINGLE_FILES, SUBSETS, files_of, read_pairs
from simcse_jax.errors import UserError
from simcse_jax.evaluation.beir import Collection
from simcse_jax.evaluation.evaluator import Encode, check_finite
from simcse_jax.evaluation.sts import Pairs, read_task
from simcse_jax.evaluation.transfer_files import Task
from simcse_jax.host.names import split_sources
from simcse_jax.host.storage import local_path

Scored = Pairs | Task | Collection | Mapping[str, Pairs]  # a task: a test set, or all of its splits
Embeddings = Float[np.ndarray, "N D"]
Transform = Callable[[Float[np.ndarray, "B D"]], Float32[np.ndarray, "B K"]]
TARGET, TARGET_ALL = "target", "target_all"
ROUNDING = 1e-5  # a direction's standard deviation below this part of the embeddings' size is float32's rounding
ROWS = 65_536  # taken to float64 at a time


class Postprocess(NamedTuple):
    """A method, and the sentences to fit it on."""

    method: str  # whitening or flow
    sentences: list[str] | None  # None: those of each task
    dimensions: int = 0  # that whitening keeps; 0: all
    splits: Mapping[str, list[str]] = MappingProxyType({})  # by task: those of all splits, not of the scored one alone

    def of_task(self, name: str, task: Scored) -> list[str]:
        """The sentences to fit it on for a task, without a source of its own."""
        return self.splits.get(name) or sentences_of(task)


def read(method: str, data: str, dimensions: int = 0, scored: str = "") -> Postprocess:
    """Reads the sentences of `data`: a source, several with commas in between, `target` or `target_all`.

    `scored` is SentEval's folder, of whose tasks `target_all` reads all splits.
    """
    if data == TARGET:
        return Postprocess(method, None, dimensions)
    if data == TARGET_ALL:
        return Postprocess(method, None, dimensions, read_all_splits(scored))
    sentences: list[str] = []
    for source in split_sources(data):
        if not prefix_of(source) and not all(local_path(file).is_file() for file in files_of_source(source)):
            hint = f", nor is it {TARGET!r} or {TARGET_ALL!r}" if source == data else ""
            raise UserError(f"{source}: no such file{hint}")
        sentences += itertools.chain(*read_examples(source, pairs=False).columns)
    return Postprocess(method, sentences, dimensions)


def check(postprocess: Postprocess, size: int, tasks: Iterable[tuple[str, Scored]]) -> None:
    """Refuses, before anything is encoded, too many dimensions or too few sentences for embeddings of a size."""
    if postprocess.dimensions > size:
        raise UserError(f"{postprocess.dimensions} dimensions cannot be kept of the {size} that embeddings have")
    kept = postprocess.dimensions or size
    if postprocess.sentences is None:
        fit_on = [(name, postprocess.of_task(name, task)) for name, task in tasks]
    else:
        fit_on = [("the source", postprocess.sentences)]
    for name, sentences in fit_on:
        if (count := len(set(sentences))) <= kept:
            fewer = ", or fewer dimensions" if postprocess.method == "whitening" else ""
            raise UserError(
                f"{name} has {count} different sentences; {postprocess.method} of {kept} dimensions needs "
                f"{kept + 1} or more{fewer}"
            )


def sentences_of(task: Scored) -> list[str]:
    """The sentences of a task that is scored: of all of its splits, if it has several."""
    parts = task.values() if isinstance(task, Mapping) else [task]
    return [sentence for part in parts for side in (part.first, part.second) for sentence in side]


def transformed(embed: Encode, postprocess: Postprocess | None, seed: int = 0) -> Encode:
    """The model with the post-processing after it, fit on a source here, or on the target for each task separately."""
    if postprocess is None:
        return embed
    if postprocess.sentences is None:
        return FitOnTarget(embed, postprocess, seed)
    transform = fit(postprocess.method, embed(postprocess.sentences), dimensions=postprocess.dimensions, seed=seed)
    return lambda sentences: transform(embed(sentences))


@dataclasses.dataclass(frozen=True)
class FitOnTarget:
    """A model whose post-processing is fit for each task, on the sentences of the task."""

    embed: Encode
    postprocess: Postprocess
    seed: int

    def __call__(self, sentences: Sequence[str]) -> Float32[np.ndarray, "N K"]:
        """Embeddings after a post-processing that is fit on these very sentences."""
        return self._fit_on(sentences)(sentences)

    def for_task(self, name: str, task: Scored) -> Encode:
        """The model for one task."""
        return self._fit_on(self.postprocess.of_task(name, task))

    def _fit_on(self, sentences: Sequence[str]) -> Encode:
        row = {sentence: number for number, sentence in enumerate(dict.fromkeys(sentences))}
        embeddings = self.embed(list(row))  # all that will be asked for

        def rows(sentences: Sequence[str]) -> Embeddings:
            return embeddings[[row[sentence] for sentence in sentences]]

        method, _, dimensions, _ = self.postprocess
        transform = fit(method, rows(sentences), dimensions=dimensions, seed=self.seed)
        return lambda texts: transform(rows(texts))


def fit(method: str, embeddings: Embeddings, *, dimensions: int = 0, seed: int = 0) -> Transform:
    """Fits `whitening` or `flow` on embeddings (N, D).

    Returns:
      transform: (B, D) to (B, K) float32, with K = D or, of whitening, `dimensions`.
    """
    check_finite(embeddings)
    if method == "whitening":
        mean, kernel = whitening(embeddings, dimensions)
        return lambda rows: ((rows - mean) @ kernel).astype(np.float32)
    from simcse_jax.evaluation import flow  # imports JAX

    params = flow.fit(embeddings, seed)
    return lambda rows: flow.transform(params, rows)


def whitening(
    embeddings: Embeddings, dimensions: int = 0
) -> tuple[Float64[np.ndarray, " D"], Float64[np.ndarray, "D K"]]:
    """Mean μ and kernel W that whiten x: (x - μ) W has mean 0 and covariance I (Su et al. 2021, Algorithm 1).

    With Σ = U Λ Uᵀ the covariance, W = U Λ^(-1/2), its first `dimensions` columns, or all (0) in which the embeddings
    vary: LayerNorm leaves a direction in which they don't, and whitening would blow up its rounding.
    """
    size = embeddings.shape[1]
    blocks = [embeddings[start : start + ROWS] for start in range(0, len(embeddings), ROWS)]
    total = np.zeros(size)
    for block in blocks:
        total += np.sum(block, axis=0, dtype=np.float64)
    mean = total / len(embeddings)
    square = sum(np.sum(np.square(block, dtype=np.float64)) for block in blocks) / len(embeddings) / size
    covariance = np.zeros((size, size))
    for block in blocks:
        centred = block - mean
        covariance += centred.T @ centred / len(embeddings)
    directions, variances, _ = np.linalg.svd(covariance, hermitian=True)  # the largest first
    varying = int(np.sum(variances > ROUNDING**2 * square))
    if dimensions > varying or not varying:
        raise UserError(
            f"the embeddings that whitening is fit on vary in {varying} directions only; keep so many dimensions, "
            "or fit it on more sentences"
        )
    kept = slice(dimensions or varying)
    return mean, directions[:, kept] / np.sqrt(variances[kept])


def read_all_splits(data: str) -> dict[str, list[str]]:
    """The sentences of all splits by task, for all tasks that a SentEval folder has.

    As in BERT-flow's code (`use_full_for_training` in its run_siamese.py), which reads the test set of STS12 to STS16
    as each of the three splits: three passes. Its file has no scores, so all pairs of a year are taken.
    """
    folder = local_path(data)
    if not data or not folder.is_dir():
        raise UserError(
            f"target_all: {data or 'nothing'} is not SentEval's folder, whose tasks have several sets; use target"
        )
    sentences = {}
    for task in SUBSETS:
        if inputs := files_of(folder, task):
            rows = itertools.chain.from_iterable(read_pairs(file, task) for file in inputs)
            sentences[task] = 3 * [" ".join(str(row.fields[0]).split()) for row in rows]  # as they are scored
    for task, files in SINGLE_FILES.items():
        if (folder / files["test"]).is_file():
            splits = {name: read_task(folder, task, name) for name in files}
            if missing := [name for name, pairs in splits.items() if pairs is None]:
                raise UserError(f"target_all: {folder / files[missing[0]]} is missing; use target")
            sentences[task] = sentences_of({name: pairs for name, pairs in splits.items() if pairs})
    return sentences
