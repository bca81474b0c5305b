"""The parts of a run, or of several that are trained together, after their inputs were read."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from simcse_jax.config.fields import scoring_pooler
from simcse_jax.config.sections import Section
from simcse_jax.data.batches import Corpus
from simcse_jax.data.corpora import AnyBatches
from simcse_jax.devices.mesh import data_mesh, place, replicate, replicated, split_over_examples
from simcse_jax.encoding.embedder import Embedder
from simcse_jax.evaluation.analysis.last_layer import Embed, LastLayer
from simcse_jax.evaluation.analysis.tokens import Protocol, survey
from simcse_jax.evaluation.evaluator import Encode, Evaluator
from simcse_jax.models import partial
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.head import HEADS
from simcse_jax.models.parameters import Params, with_encoder
from simcse_jax.models.sentence_encoder import Graph, build
from simcse_jax.runs.state import TrainState, computed_as, frozen_params, initial_params, with_parts
from simcse_jax.training.inputs import Inputs
from simcse_jax.training.loss import Batch, Recipe, Settings
from simcse_jax.training.recipe import make_networks, make_recipe, make_settings
from simcse_jax.training.schedule import Schedule, make_schedule
from simcse_jax.training.step import init_state

NOTHING = Corpus(np.zeros((0, 1, 1), np.int32), np.zeros((0, 1, 1), np.int8))  # of a run without steps


@dataclasses.dataclass(frozen=True, eq=False)
class Setup:
    """The parts of a program, and its devices. Runs that differ only in numbers of the step share it."""

    config: Section
    inputs: Inputs
    mesh: Mesh
    graph: Graph  # of the encoder that is trained
    recipe: Recipe
    embed: Embedder  # for scoring, without parameters; in float32, as users will encode
    schedule: Schedule
    measuring: list[Evaluator[Embed]]  # look at the model every `analysis.every` steps
    scoring: list[Evaluator[Encode]]  # every `eval.every`; the first number chooses the best checkpoint
    encoder: EncoderConfig  # with the part of it that trains
    frozen: Params | None = None  # parameters of the step that are not trained, on the devices
    recipes: tuple[Recipe, ...] = ()  # of each source, where a batch has rows of one alone

    @property
    def replicated(self) -> NamedSharding:
        """The same array on every device."""
        return replicated(self.mesh)

    @functools.cached_property
    def by_example(self) -> NamedSharding:
        """The first axis split over the devices."""
        return split_over_examples(self.mesh)

    @property
    def towers(self) -> range:
        """The encoders that are scored during training."""
        return range(2 if self.config.model.dual_encoder and self.config.eval.encoder == "better" else 1)

    def settings(self, config: Section) -> Settings:
        """The numbers of one run's step. The total by which the learning rate is divided is above 0."""
        return make_settings(config, max(self.schedule.total, 1))

    def state(self, config: Section) -> TrainState:
        """The initial state of one run, on no particular device."""
        params = initial_params(config, self.inputs.model, self.inputs.adapter)
        trained, _ = partial.split(params, self.encoder)
        return init_state(trained, self.settings(config), self.recipe.optimization)

    def model(self, trained: Params, tower: int = 0) -> Params:
        """All parameters, for scoring: with those that are frozen and without LoRA, whose products are added.

        The first or the second encoder stands in the place of the first one.

        Args:
          trained: whole on every device (`devices.parts.whole`).
          tower: the encoder.
        """
        return with_encoder(partial.merged(partial.of_step(trained, self.frozen), self.encoder), tower)

    def read(self, batches: AnyBatches, step: int) -> Batch:
        """The batch of an update, as the compiled step takes it; each process reads its own rows.

        Where one process has all devices, these are NumPy arrays: the step's dispatch places them, in a tenth of the
        time that `place` would take before it.
        """
        if self.by_example.is_fully_addressable:
            return {**batches[step]}
        return place(functools.partial(batches.rows, step), batches.batch_size, self.by_example)

    def batches(self, seed: int) -> AnyBatches:
        """The batches of one run."""
        return (self.inputs.corpus or NOTHING).batches(self.config.train.batch_size, seed)


def make_setup(config: Section, inputs: Inputs) -> Setup:
    """The setup of a run, or of several that share `config`."""
    mesh, model, head = data_mesh(inputs.devices), inputs.model, HEADS[config.model.mlp]
    embed = Embedder(
        graph=build(computed_as(config.model, model.config), head.trained)[0],
        params={},
        pooler=scoring_pooler(config),
        use_head=head.scored,
        tokenizer=inputs.tokenizer,
        max_length=model.max_length,
        sharding=split_over_examples(mesh),
    )
    sample, evaluation, generator = inputs.analysis, inputs.evaluation, inputs.generator
    networks = make_networks(config, model.config, generator.model.config) if generator else ()
    masking = generator.masking if generator else inputs.language_model
    encoder = with_parts(model.config, config.model)
    frozen = (generator.params if generator else {}) | partial.in_step(frozen_params(config.model, model))
    where = "config.analysis.data"
    corpus = inputs.corpus
    parts = [(part.num_columns, part.lengths) for part in corpus.parts] if corpus is not None else [(1, ())]
    recipes = [make_recipe(config, columns, masking, networks, lengths=lengths) for columns, lengths in parts]
    return Setup(
        config,
        inputs,
        mesh,
        graph=build(encoder, head.trained, jnp.dtype(config.train.dtype))[0],
        recipe=recipes[0],
        recipes=tuple(recipes),
        embed=embed,
        schedule=make_schedule(config, inputs.total_steps),
        measuring=[LastLayer(survey(embed.tokens, sample.sentences, Protocol(), where), sample)] if sample else [],
        scoring=[evaluation.development] if evaluation else [],
        encoder=encoder,
        frozen=replicate(frozen, replicated(mesh)) if frozen else None,
    )
