"""The average of models that training took from one base model to different places ("model soups")."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float32

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import Pretrained
from simcse_jax.models.arrays import AnyArray

METHODS = {
    "mean": "Σ w_i θ_i of any number of models (Wortsman et al. 2022)",
    "slerp": "of two, along the arc between their directions, tensor by tensor (Shoemake 1985)",
}


def merge(models: Sequence[Pretrained], weights: Sequence[float] = (), method: str = "mean") -> Pretrained:
    """The models' weights averaged, with all else of the first one.

    Args:
      models: at least two, of one architecture and one tokenizer.
      weights: of each, in their order; scaled to a sum of 1. None: equal ones.
      method: of `METHODS`.

    Raises:
      UserError: naming the first model that differs from the first, and how; for weights that don't fit.
    """
    if len(models) < 2:
        raise UserError(f"models: {len(models)}; give at least two")
    first, *others = models
    if method == "slerp" and len(models) > 2:
        raise UserError(f"method slerp: is between two models, and {len(models)} are given; take mean")
    shares = np.array(weights or [1.0] * len(models), np.float64)
    if len(shares) != len(models):
        raise UserError(f"weights: {len(shares)} for {len(models)} models")
    if not (np.isfinite(shares).all() and (shares >= 0).all() and shares.sum() > 0):
        raise UserError("weights: must be at least 0, and one above 0")
    for model in others:
        if difference := _difference(first, model):
            raise UserError(f"{model.name}: has {difference} than {first.name}; models of one base model can be merged")
    shares /= shares.sum()
    average = _slerp if method == "slerp" else _mean

    def merged(arrays: Sequence[Mapping[str, AnyArray]]) -> dict[str, np.ndarray]:
        return {name: average([np.asarray(part[name]) for part in arrays], shares) for name in arrays[0]}

    heads = [model.language_model for model in models if model.language_model is not None]
    head = merged(heads) if len(heads) == len(models) else None
    return dataclasses.replace(first, params=merged([model.params for model in models]), language_model=head)


def _difference(first: Pretrained, other: Pretrained) -> str:
    """What of the other model cannot be averaged with the first; empty: nothing."""
    if other.config != first.config:
        return "another architecture"
    shapes, theirs = ({name: np.shape(value) for name, value in model.params.items()} for model in (first, other))
    if shapes != theirs:
        odd = sorted(shapes.items() ^ theirs.items())[0][0]
        return f"another tensor {odd}"
    if first.tokenizer.content() != other.tokenizer.content():
        return "another tokenizer"
    of_first, of_other = (
        (model.pooler, model.normalize, model.settings, model.include_prompt) for model in (first, other)
    )
    return "another pooler, Normalize, prompts or settings" if of_first != of_other else ""


def _mean(tensors: list[np.ndarray], shares: np.ndarray) -> Float32[np.ndarray, "..."]:
    return np.tensordot(shares, np.stack([np.float64(tensor) for tensor in tensors]), 1).astype(np.float32)


def _slerp(tensors: list[np.ndarray], shares: np.ndarray) -> Float32[np.ndarray, "..."]:
    """sin((1 − t) Ω) / sin Ω a + sin(t Ω) / sin Ω b, with Ω between a and b and t the share of b.

    The mean where Ω is too small to divide by, or a tensor is 0.
    """
    a, b = (np.float64(tensor) for tensor in tensors)
    lengths = np.linalg.norm(a) * np.linalg.norm(b)
    angle = np.arccos(np.clip(np.sum(a * b) / lengths, -1, 1)) if lengths else 0.0
    if np.sin(angle) < 1e-6:
        return _mean(tensors, shares)
    turned = (np.sin(shares[0] * angle) * a + np.sin(shares[1] * angle) * b) / np.sin(angle)
    return turned.astype(np.float32)
