"""What a step is compiled for."""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from simcse_jax.choices import MASK_TOKEN
from simcse_jax.models.masking import Masking
from simcse_jax.models.projector import Projector
from simcse_jax.models.sentence_encoder import Graph, SentenceEncoder
from simcse_jax.objectives.objective import Objective, SecondPassObjective, Term, TokenObjective
from simcse_jax.objectives.registry import BUILT_IN
from simcse_jax.objectives.rows import Towers
from simcse_jax.objectives.views import Plan, View, flatten_views
from simcse_jax.training.optimizer import ADAMW, Optimization

Networks = tuple[tuple[str, Graph], ...]  # by name


class Recipe(NamedTuple):
    """What a compiled step is specialized on; everything else is data or `settings`."""

    pooler: str
    use_head: bool
    plan: Plan  # what objectives make their views of
    objectives: tuple[Term, ...]
    drops_attention: bool = True  # False: attention has a rate of its own, 0, and draws no masks
    chunk_size: int = 0  # examples encoded at a time on each device; 0: all of its part of the batch
    matmul_precision: str = "highest"  # of float32 products: highest, high or default (`jax.default_matmul_precision`)
    round_products: bool = False  # whether TPUs and GPUs write those of bfloat16 factors as bfloat16
    masking: Masking | None = None  # where an objective masks tokens
    projector: Projector | None = None  # between the embeddings and some objectives
    # The networks that objectives need besides the encoder, by name: `generator`, whose parameters are frozen, and
    # others, whose parameters have the name as a prefix.
    networks: Networks = ()
    # Of each column, the most tokens that the examples have that are encoded at a time (`Batches.sizes`): nothing is
    # computed of padding then; (): it is computed too.
    most_tokens: tuple[int, ...] = ()
    optimization: Optimization = ADAMW
    sizes: tuple[int, ...] = ()  # of the truncated embeddings that objectives see; (): the embeddings as they are
    by_layer: bool = False  # whether one layer at a time is whole, and computed again in the backward pass

    @property
    def passes(self) -> bool:
        """Whether an objective has a pass over tokens."""
        return any(isinstance(term.objective, TokenObjective | SecondPassObjective) for term in self.objectives)

    @property
    def views(self) -> tuple[View, ...]:
        """The views of all objectives, each once: (V, B, D) embeddings have them in this order."""
        return _views(self.objectives, self.plan)

    @property
    def reads_words(self) -> bool:
        """Whether anything but the encoder reads token ids, which must then be those of the vocabulary.

        A language model's head scores all words, a generator, a change and a template may write words that are not in
        the batch, mask tokens are known by their id, and an objective from outside looks at what it likes.
        """
        changed = any(callable(view.change) for view in self.views)
        writes_ids = self.pooler == MASK_TOKEN or any(view.removed for view in self.views)  # ids that are written here
        return (
            self.masking is not None
            or changed
            or writes_ids
            or any(term.name not in BUILT_IN for term in self.objectives)
        )

    @property
    def ignores_shift(self) -> bool:
        """Whether a vector that is added to all hidden states of the last layer changes no loss of embeddings.

        The embedding of a template alone has it too, and is taken away before a head. Batch norm takes it away again,
        but not if a head comes in between, nor if two encoders have a vector each and share statistics. Neither is so
        with the pooler avg_sqrt, which adds it √T times, and where anchors with masked tokens share their pass with the
        loss of these tokens.
        """
        unread = self.pooler != "avg_sqrt" and not self.read_by_tokens
        if self.views and all(view.removed for view in self.views):
            return unread
        if self.projector is None or not self.projector.ignores_shift:
            return False
        projected = all(term.projected for term in self.objectives if term.objective.views(self.plan))
        together = self.projector.statistics == "together"
        differ = together and any(view.tower for view in self.views)
        return projected and unread and not (self.use_head or differ)

    def views_read_by(self, objective: Objective) -> dict[str, View]:
        """The views whose tokens' features the objective's pass over tokens reads, by its names."""
        names = objective.features if isinstance(objective, TokenObjective) else ()
        views = objective.views(self.plan)
        return {name: view for name, view in views.items() if name in names and isinstance(view, View)}

    @property
    def read_by_tokens(self) -> list[View]:
        """All views whose tokens' features an objective reads."""
        return [view for term in self.objectives for view in self.views_read_by(term.objective).values()]

    def map_views(self, objective: Objective, of: Callable[[View], Array]) -> dict[str, Array]:
        """Maps `of` over views, by the objective's names; results for several views under one name are stacked."""
        by_name: dict[str, Array] = {}
        for name, view in objective.views(self.plan).items():
            if isinstance(view, View):
                by_name[name] = of(view)
            elif view:
                by_name[name] = jnp.stack([of(member) for member in view])
        return by_name

    def towers(self, encoders: Mapping[int | str, SentenceEncoder]) -> Towers:
        """The encoders of views, which embed as the recipe says."""
        return Towers(encoders, self.pooler, self.use_head, self.plan.denoising)


@functools.lru_cache
def _views(objectives: tuple[Term, ...], plan: Plan) -> tuple[View, ...]:
    return tuple(dict.fromkeys(view for term in objectives for view in flatten_views(term.objective.views(plan))))
