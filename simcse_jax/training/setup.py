"""From a config, and what was read, to the parts of a run's program."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from simcse_jax.config.fields import choosing_pooler, fields_of, flatten, numbers_of_step, scoring_pooler
from simcse_jax.config.loss_fields import sizes_of, weights_of
from simcse_jax.config.parallel_fields import BY_LAYER
from simcse_jax.config.sections import Section
from simcse_jax.data.batches import Corpus
from simcse_jax.data.corpora import AnyBatches
from simcse_jax.data.documents import SPANS
from simcse_jax.devices.mesh import by_rows, data_mesh, place, replicate, replicated, split_over_examples
from simcse_jax.devices.parts import distribute, whole
from simcse_jax.encoding.embedder import Embedder
from simcse_jax.evaluation.analysis.last_layer import Embed, LastLayer, Sample
from simcse_jax.evaluation.analysis.tokens import Protocol, survey
from simcse_jax.evaluation.evaluator import Encode, Evaluator
from simcse_jax.field import read_milestones
from simcse_jax.models import partial
from simcse_jax.models.changes import Repeated, Retemplated
from simcse_jax.models.config import REPEATED, EncoderConfig, Template
from simcse_jax.models.head import HEADS
from simcse_jax.models.masking import Masking
from simcse_jax.models.parameters import Arrays, Params, with_encoder
from simcse_jax.models.projector import read_projector
from simcse_jax.models.sentence_encoder import Graph, build
from simcse_jax.objectives.objective import Term
from simcse_jax.objectives.registry import needing, temperature_of, trained, with_loss
from simcse_jax.objectives.rows import Batch, Settings
from simcse_jax.objectives.views import Plan
from simcse_jax.runs.state import TrainState, computed_as, frozen_params, initial_kept, initial_params, with_parts
from simcse_jax.training.gathering import ByLayer, as_multiplied
from simcse_jax.training.generator import networks_of
from simcse_jax.training.inputs import Inputs
from simcse_jax.training.learning_rate import warmup_steps
from simcse_jax.training.optimizer import Optimization
from simcse_jax.training.recipe import Networks, Recipe
from simcse_jax.training.schedule import Schedule, make_schedule
from simcse_jax.training.step import split_state

NOTHING = Corpus(np.zeros((0, 1, 1), np.int32), np.zeros((0, 1, 1), np.int8))  # of a run without steps
# Numbers of the step whose last part would not say what they are.
RENAMED = {"model.lora.dropout": "lora_dropout", "matryoshka.weights": "size_weights"}


@dataclasses.dataclass(frozen=True, eq=False)
class Setup:
    """The parts of a run's program, and its devices."""

    config: Section
    inputs: Inputs
    mesh: Mesh
    graph: Graph  # of the encoder that is trained
    recipes: tuple[Recipe, ...]  # of each source, where a batch has rows of one alone; otherwise one
    embed: Embedder  # for scoring, without parameters; in float32, as users will encode
    schedule: Schedule
    measuring: list[Evaluator[Embed]]  # look at the model every `analysis.every` steps
    scoring: list[Evaluator[Encode]]  # every `eval.every`; the first number chooses the best checkpoint
    encoder: EncoderConfig  # with the part of it that trains
    frozen: Params | None = None  # parameters of the step that are not trained, on the devices

    @property
    def judge(self) -> Embedder:
        """As `embed`, with the pooler of the scores that choose a checkpoint."""
        return dataclasses.replace(self.embed, pooler=choosing_pooler(self.config))

    @property
    def recipe(self) -> Recipe:
        """That of the first source."""
        return self.recipes[0]

    @property
    def replicated(self) -> NamedSharding:
        """The same array on every device."""
        return replicated(self.mesh)

    @functools.cached_property
    def by_example(self) -> NamedSharding:
        """The rows of a batch split over the devices."""
        return split_over_examples(self.mesh)

    @property
    def towers(self) -> range:
        """The encoders that are scored during training."""
        return range(2 if self.config.model.dual_encoder and self.config.eval.encoder == "better" else 1)

    def settings(self) -> Settings:
        """The numbers of the step, on the devices. The total by which the learning rate is divided is above 0."""
        return replicate(make_settings(self.config, max(self.schedule.total, 1)), self.replicated)

    def state(self) -> TrainState:
        """The initial state, on the devices.

        Weights go from the host straight to their places, where the optimizer's part is made: no device ever has all of
        either.
        """
        every = initial_params(self.config, self.inputs.model, self.inputs.adapter)
        params = partial.split(every, self.encoder)[0]
        params, kept = distribute((params, initial_kept(self.config, self.encoder, params)), self.mesh)
        numbers = make_settings(self.config, max(self.schedule.total, 1))
        return split_state(params, numbers, self.recipe.optimization, kept, self.mesh)

    def scored(self, params: Params) -> Params:
        """The parameters as they are scored: whole on every device, or by layer in parts."""
        return params if self.recipe.by_layer else whole(params, self.mesh)

    def model(self, trained: Params, tower: int = 0) -> Params:
        """All parameters, for scoring: with those that are frozen and without LoRA, whose products are added.

        The first or the second encoder stands in the place of the first one.

        Args:
          trained: of `scored`.
          tower: the encoder.
        """
        frozen = self.frozen
        if self.recipe.by_layer:  # as it was read: what the step has may be rounded
            frozen = distribute(partial.in_step(frozen_params(self.config.model, self.inputs.model)), self.mesh)
        return with_encoder(partial.merged(partial.of_step(trained, frozen), self.encoder), tower)

    def batches(self) -> AnyBatches:
        """The batches of all steps."""
        return (self.inputs.corpus or NOTHING).batches(self.config.train.batch_size, self.config.seed)

    def read(self, batches: AnyBatches, step: int) -> Batch:
        """The batch of an update, as the compiled step takes it; each process reads its own rows.

        Where one process has all devices, these are NumPy arrays: the step's dispatch places them, in a tenth of the
        time that `place` would take before it.
        """
        if self.by_example.is_fully_addressable:
            return {**batches[step]}
        return place(functools.partial(batches.rows, step), batches.batch_size, self.by_example)


def make_setup(config: Section, inputs: Inputs) -> Setup:
    """The setup of a run."""
    model = inputs.model
    mesh = data_mesh(inputs.devices, config.parallel.parts)
    head = HEADS[config.model.mlp]
    scored = build(computed_as(config.model, model.config), head.trained)[0]
    embed = Embedder(
        graph=scored,
        params={},
        pooler=scoring_pooler(config),
        use_head=head.scored,
        tokenizer=inputs.tokenizer,
        max_length=model.max_length,
        sharding=split_over_examples(mesh),
        modules=model.config.modules,
        by_rows=ByLayer(scored, mesh) if config.parallel.gather == BY_LAYER else by_rows,
    )
    sample, evaluation, generator = inputs.analysis, inputs.evaluation, inputs.generator
    networks = networks_of(config, model.config, generator.model.config) if generator else ()
    masking = generator.masking if generator else inputs.language_model
    encoder = with_parts(model.config, config.model)
    frozen = (generator.params if generator else {}) | partial.in_step(frozen_params(config.model, model))
    corpus = inputs.corpus
    parts = [(part.num_columns, part.lengths) for part in corpus.parts] if corpus is not None else [(1, ())]
    return Setup(
        config,
        inputs,
        mesh,
        graph=build(encoder, head.trained, jnp.dtype(config.train.dtype))[0],
        recipes=tuple(
            make_recipe(config, columns, masking, networks, lengths, inputs.template, inputs.positive_template)
            for columns, lengths in parts
        ),
        embed=embed,
        schedule=make_schedule(config, inputs.total_steps),
        measuring=[_measuring(embed, sample, config)] if sample else [],
        scoring=[evaluation.development] if evaluation else [],
        encoder=encoder,
        frozen=_placed(frozen, config, mesh) if frozen else None,
    )


def _placed(frozen: Arrays, config: Section, mesh: Mesh) -> Params:
    if config.parallel.gather == BY_LAYER:
        return distribute(as_multiplied(frozen, jnp.dtype(config.train.dtype)), mesh)
    return replicate(frozen, replicated(mesh))


def _measuring(embed: Embedder, sample: Sample, config: Section) -> LastLayer:
    surveyed = survey(embed.tokens, sample.sentences, Protocol(), "config.analysis.data")
    return LastLayer(surveyed, sample, temperature_of(config.objective))


def make_settings(config: Section, total_steps: int) -> Settings:
    """The scalars that a compiled step takes. Runs that differ only in these share one compilation.

    They are `fields.numbers_of_step()`, by the last part of their names, and `total_steps`. Those of objectives that
    have a weight are grouped by objective. `warmup` is a number of steps, and `milestones` (M, 2) steps and factors.
    `attention_dropout` is among them only if attention has a rate of its own that is not 0 (see `Recipe`),
    `lora_dropout` only if LoRA has one, and `size_weights` (S,) only with `matryoshka.dimensions`.
    """
    model, schedule, values = config.model, config.train.schedule, flatten(config)
    values["train.warmup"] = warmup_steps(schedule, config.train.warmup, total_steps)
    values["train.milestones"] = np.reshape(read_milestones(config.train.milestones), (-1, 2))
    values["matryoshka.weights"] = np.array(weights_of(config)) if config.matryoshka.dimensions else None
    if model.attention_dropout <= 0:
        values["model.attention_dropout"] = None
    if not (model.lora.rank and model.lora.dropout):
        values["model.lora.dropout"] = None
    settings: Settings = {
        "total_steps": jnp.float32(total_steps),
        "objective": {name: {} for name in trained(config.objective)},
    }
    for name in numbers_of_step(fields_of(config)):
        section, _, last = name.rpartition(".")
        kind, _, objective = section.partition(".")
        numbers = settings["objective"].get(objective) if kind == "objective" else settings
        if numbers is not None and values[name] is not None:
            numbers[RENAMED.get(name, last)] = (jnp.uint32 if name == "seed" else jnp.float32)(values[name])
    return settings


def make_recipe(
    config: Section,
    num_columns: int,
    masking: Masking | None = None,
    networks: Networks = (),
    lengths: Sequence[int] = (),
    template: Template | None = None,
    positive_template: Template | None = None,
) -> Recipe:
    """The recipe that the step is compiled for. A single column of data is encoded twice, several columns once each.

    `lengths` are the places for a sentence of each column; (): all have the same. `template` is around the sentences,
    and `positive_template` takes its place around all but anchors; None: there is none, or no other one.
    """
    fields, projector, views = config.objective, read_projector(config.projector), config.views
    positive_change: Any = views.positive_change
    if positive_change == REPEATED:
        positive_change = Repeated(views.repetition, views.repetition_reading)
    if template and positive_template:
        positive_change = Retemplated(template, positive_template)
    plan = Plan(
        num_columns,
        views.positive,
        views.negative if needing(fields, "separate_negatives") else "off",
        samples=views.samples,
        two_towers=config.model.dual_encoder,
        anchor_change=views.anchor_change,
        positive_change=positive_change,
        positive_rate=views.positive_dropout >= 0,
        positives=config.data.spans.positives if config.data.positives == SPANS else 1,
        lengths=tuple(lengths),
        template=template,
        positive_template=positive_template,
        denoising=views.denoising,
    )
    return Recipe(
        pooler=config.model.pooler,
        use_head=HEADS[config.model.mlp].trained,
        plan=plan,
        objectives=tuple(
            Term(
                with_loss(objective),
                tuple(
                    (field, config.objective[name][field]) for field, one in objective.fields.items() if not one.of_step
                ),
                projector is not None and name in config.projector.objectives,
            )
            for name, objective in trained(fields).items()
        ),
        drops_attention=config.model.attention_dropout != 0,
        chunk_size=config.parallel.chunk_size,
        matmul_precision=config.train.matmul_precision,
        round_products=config.train.round_products,
        masking=masking if networks or needing(config.objective, "masks_tokens") else None,
        optimization=Optimization(
            config.train.optimizer, config.train.bias_correction, config.train.schedule, config.train.mu_dtype
        ),
        projector=projector,
        networks=networks,
        sizes=sizes_of(config),
        by_layer=config.parallel.gather == BY_LAYER,
    )
