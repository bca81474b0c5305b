"""Objectives that mean the elements of an embedding need the one that the model has in the end."""

from typing import Any

from simcse_jax.choices import HEADS
from simcse_jax.errors import UserError


def check_kept(config: Any, field: str, purpose: str) -> None:
    """Refuses a head, or a pooler, that embeddings have in training alone.

    Args:
      config: of a run.
      field: that asks for the check.
      purpose: what would be untrue of the model's embeddings.

    Raises:
      UserError: naming the fields.
    """
    model, pooler = config.model, config.eval.pooler
    if HEADS[model.mlp].trained != HEADS[model.mlp].scored:
        raise UserError(
            f"{field}: with model.mlp={model.mlp} {purpose} only after a head that the model does not keep; "
            "set model.mlp=none or always"
        )
    if pooler not in ("", model.pooler):
        raise UserError(
            f"{field}: {purpose} only with the pooler of training, {model.pooler}, and the model has "
            f"eval.pooler={pooler}; leave that empty"
        )
