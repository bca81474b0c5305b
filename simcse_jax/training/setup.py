"""Takes a config apart: the specs of what reads, trains and scores, and the parts of a run's program."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from simcse_jax.choices import REPEATED, SPANS
from simcse_jax.config.evaluation_fields import has_scores
from simcse_jax.config.fields import BY_LAYER, declared_fields, flatten, numbers_of_step
from simcse_jax.config.loss_fields import has_data_scores, matryoshka_sizes, matryoshka_weights
from simcse_jax.config.sections import Config, Section
from simcse_jax.config.source_fields import ONE_SOURCE, gap_reason, read_prompts, read_range, read_weights
from simcse_jax.data.batches import Corpus
from simcse_jax.data.corpora import AnyBatches, AnyCorpus
from simcse_jax.data.documents import Spans
from simcse_jax.data.scores import Scores
from simcse_jax.data.tokens import Lengths, Prompts
from simcse_jax.devices.mesh import (
    compile_by_rows,
    data_mesh,
    place,
    replicate,
    replicated_sharding,
    split_over_examples,
)
from simcse_jax.devices.parts import distribute, replicate_whole
from simcse_jax.encoding.embedder import Embedder
from simcse_jax.errors import UserError
from simcse_jax.evaluation.analysis.last_layer import EmbedWithLayers, LastLayer
from simcse_jax.evaluation.analysis.tokens import Protocol, survey
from simcse_jax.evaluation.evaluator import Encode, Evaluator
from simcse_jax.evaluation.retrieval import RetrievalSpec
from simcse_jax.field import read_milestones
from simcse_jax.models import partial
from simcse_jax.models.changes import Repeated, Retemplated
from simcse_jax.models.config import EncoderConfig, Template
from simcse_jax.models.masking import Masking
from simcse_jax.models.parameters import Arrays, Params, with_encoder
from simcse_jax.models.sentence_encoder import Graph, build
from simcse_jax.objectives.objective import Columns, Term
from simcse_jax.objectives.registry import find_pairing, find_temperature, load_loss, needing, trained_objectives
from simcse_jax.objectives.rows import Batch, StepSettings
from simcse_jax.objectives.views import Plan
from simcse_jax.runs.state import (
    ModelSpec,
    TrainState,
    add_parts,
    frozen_params,
    initial_kept,
    initial_params,
    model_spec,
)
from simcse_jax.training.columns import check_needs
from simcse_jax.training.data_spec import Augmentation, DataSpec
from simcse_jax.training.dropout_pairs import Pairs, make_dropout_pairs
from simcse_jax.training.evaluation import AnalysisSpec, EvaluationSpec
from simcse_jax.training.gathering import ByLayer, cast_to_product_dtype
from simcse_jax.training.generator import build_networks
from simcse_jax.training.held_out import FoldsSpec, HeldOutSpec
from simcse_jax.training.inputs import Inputs
from simcse_jax.training.learning_rate import warmup_steps
from simcse_jax.training.optimizer import Optimization
from simcse_jax.training.recipe import Networks, Recipe
from simcse_jax.training.schedule import Schedule
from simcse_jax.training.step import split_state
from simcse_jax.training.teacher import TeacherSpec

NOTHING = Corpus(np.zeros((0, 1, 1), np.int32), np.zeros((0, 1, 1), np.int8))  # of a run without steps
# Numbers of the step whose last part would not say what they are.
RENAMED = {"model.lora.dropout": "lora_dropout", "matryoshka.weights": "size_weights"}

# Fields of `config.data` that `DataSpec` has as they are.
AS_IN_DATA = "train", "max_length", "positives", "subsample", "mixed", "local_cache", "equal_texts"


@dataclasses.dataclass(frozen=True, eq=False)
class Setup:
    """The parts of a run's program, and its devices."""

    spec: ModelSpec
    inputs: Inputs
    mesh: Mesh
    graph: Graph  # of the encoder that is trained
    recipes: tuple[Recipe, ...]  # of each source, where a batch has rows of one alone; otherwise one
    embed: Embedder  # for scoring, without parameters; in float32, as users will encode
    schedule: Schedule
    measuring: list[Evaluator[EmbedWithLayers]]  # look at the model every `analysis.every` steps
    scoring: list[Evaluator[Encode]]  # every `eval.every`; the first number chooses the best checkpoint
    encoder: EncoderConfig  # with the part of it that trains
    numbers: StepSettings  # of the step
    batch_size: int
    unpad: bool  # leave padding out
    scores_both: bool  # of two encoders, during training
    shows_examples: bool = True  # in the run's report
    frozen: Params | None = None  # parameters of the step that are not trained, on the devices
    # From parameters to the measured sentences as both sides of the pairs that the run trains on, themselves; None:
    # it trains on others, or nothing is measured.
    pairs: Callable[[Arrays], Pairs] | None = None

    @property
    def judge(self) -> Embedder:
        """`embed` with the pooler by which checkpoints are chosen."""
        return dataclasses.replace(self.embed, pooler=self.spec.choosing_pooler)

    @property
    def recipe(self) -> Recipe:
        """The recipe of the first source."""
        return self.recipes[0]

    @property
    def replicated(self) -> NamedSharding:
        """The sharding of arrays that every device has whole."""
        return replicated_sharding(self.mesh)

    @functools.cached_property
    def by_example(self) -> NamedSharding:
        """The rows of a batch split over the devices."""
        return split_over_examples(self.mesh)

    @property
    def towers(self) -> range:
        """The encoders that are scored during training."""
        return range(2 if self.scores_both else 1)

    def settings(self) -> StepSettings:
        """The numbers of the step, on the devices."""
        return replicate(self.numbers, self.replicated)

    def state(self) -> TrainState:
        """The initial state, on the devices.

        Weights go from the host straight to their places, where the optimizer's part is made: no device ever has all of
        either.
        """
        all_params = initial_params(self.spec, self.inputs.model, self.inputs.adapter)
        params = partial.split(all_params, self.encoder)[0]
        params, kept = distribute((params, initial_kept(self.spec, self.encoder, params)), self.mesh)
        return split_state(params, self.numbers, self.recipe.optimization, kept, self.mesh)

    def gather_for_scoring(self, params: Params) -> Params:
        """The parameters as they are scored: whole on every device, or by layer in parts."""
        return params if self.recipe.by_layer else replicate_whole(params, self.mesh)

    def model(self, trained: Params, tower: int = 0) -> Params:
        """All parameters, for scoring: with the frozen ones, and with LoRA's products added to the weights.

        The first or the second encoder (`tower`) stands in the place of the first one.
        """
        frozen = self.frozen
        if self.recipe.by_layer:  # as it was read: what the step has may be rounded
            frozen = distribute(partial.in_step(frozen_params(self.spec, self.inputs.model)), self.mesh)
        return with_encoder(partial.merged(partial.of_step(trained, frozen), self.encoder), tower)

    def batches(self) -> AnyBatches:
        """The batches of all steps."""
        return (self.inputs.corpus or NOTHING).batches(self.batch_size, self.spec.seed)

    def fold_batches(self) -> list[AnyBatches]:
        """For each fold, the batches of the rows of all others."""
        return [corpus.batches(self.batch_size, self.spec.seed) for corpus in self.inputs.other_folds]

    def read(self, batches: AnyBatches, step: int) -> Batch:
        """The batch of an update, as the compiled step takes it; each process reads its own rows.

        Where one process has all devices, these are NumPy arrays: the step's dispatch places them, in a tenth of the
        time that `place` would take before it.
        """
        if self.by_example.is_fully_addressable:
            return {**batches[step]}
        return place(functools.partial(batches.rows, step), batches.batch_size, self.by_example)


def data_spec(config: Config) -> DataSpec:
    """The training data of a run, and how it reads them."""
    data, views, objectives = config.data, config.views, config.objective
    scored, taught = needing(objectives, "scores"), needing(objectives, "teacher")
    paired_by, pairing = find_pairing(objectives) or ("", None)
    return DataSpec(
        **{name: data[name] for name in AS_IN_DATA},
        batch_size=config.train.batch_size,
        seed=config.seed,
        columns=dict(data.columns),
        one_source=data.batching == ONE_SOURCE,
        weights=read_weights(data.weights),
        prompts=tuple(map(Prompts, *read_prompts(config))) if any(data.prompts.values()) else (),
        own_lengths=Lengths(**data.lengths),
        spans=Spans(**data.spans) if data.positives == SPANS else None,
        augment=Augmentation(**data.augment) if data.augment.name else None,
        positive_template=views.positive_template,
        repeated=repetition_spec(config),
        keeps_apart=data.no_duplicates and bool(needing(objectives, "contrasts")),
        contrasts=bool(needing(objectives, "contrasts")),
        labels=next((objective.labels for objective in needing(objectives, "labels")), ""),
        scores=score_spec(config),
        ranked_by=next((objective.name for objective in scored if objective.scores == "ranked"), ""),
        pairing=pairing,
        paired_by=paired_by,
        teacher=TeacherSpec(**config.teacher, objectives=tuple(taught)) if taught and config.teacher.model else None,
        no_gaps=gap_reason(config),
    )


def repetition_spec(config: Config) -> Repeated | None:
    """How positives repeat tokens; None: they do not."""
    views = config.views
    return Repeated(views.repetition, views.repetition_reading) if views.positive_change == REPEATED else None


def score_spec(config: Config) -> Scores | None:
    """How a run reads scores; None if no objective needs them."""
    objectives = needing(config.objective, "scores")
    if not objectives and has_data_scores(config):
        return Scores(f"objective.{needing(config.objective, 'teacher')[0].name}", of_candidates=True)
    if not objectives:
        return None
    bounds = read_range(config.data.score_range)
    unit = [objective.name for objective in objectives if objective.scores == "unit"]
    if bounds is None and unit:
        return Scores(f"objective.{unit[0]}", (0.0, 1.0))
    return Scores(f"objective.{objectives[0].name}", bounds, stated=bounds is not None)


def held_out_spec(config: Config) -> HeldOutSpec:
    """The rows of the training data that a run is scored on."""
    return HeldOutSpec(config.data.held_out, config.data.train, config.seed, chooses=config.eval.every > 0)


def folds_spec(config: Config) -> FoldsSpec:
    """The folds of the training data that judge whether training helps."""
    return FoldsSpec(config.data.folds, config.data.train, config.seed)


def evaluation_spec(config: Config) -> EvaluationSpec:
    """How a run is scored."""
    fields, halved = config.eval, config.eval.against_start and config.eval.every > 0
    same = {field.name: fields[field.name] for field in dataclasses.fields(EvaluationSpec) if field.name in fields}
    return EvaluationSpec(**same | {"retrieval": RetrievalSpec(**fields.retrieval)}, halved=halved, seed=config.seed)


def analysis_spec(config: Config) -> AnalysisSpec:
    """The sentences that a run's last layer is measured on."""
    return AnalysisSpec(*(config.analysis[name] for name in AnalysisSpec._fields))


def make_setup(config: Section, inputs: Inputs) -> Setup:
    """The setup of a run."""
    model, spec = inputs.model, model_spec(config)
    mesh = data_mesh(inputs.devices, config.parallel.parts)
    head = spec.head
    as_scored = dataclasses.replace(model.config, attention_kernels=spec.attention_kernels)
    scored = build(as_scored, head.trained)[0]
    embed = Embedder(
        graph=scored,
        params={},
        pooler=spec.scored_pooler,
        use_head=head.scored,
        tokenizer=inputs.tokenizer,
        max_length=model.max_length,
        sharding=split_over_examples(mesh),
        modules=model.config.modules,
        by_rows=ByLayer(scored, mesh) if config.parallel.gather == BY_LAYER else compile_by_rows,
    )
    sample, evaluation, generator = inputs.analysis, inputs.evaluation, inputs.generator
    networks: Networks = ()
    if generator:
        networks = build_networks(model.config, generator.model.config, spec.attention_kernels, config.train.dtype)
    masking = generator.masking if generator else inputs.language_model
    encoder = add_parts(model.config, spec)
    frozen = (generator.params if generator else {}) | partial.in_step(frozen_params(spec, model))
    if config.parallel.gather == BY_LAYER:
        on_devices = distribute(cast_to_product_dtype(frozen, jnp.dtype(config.train.dtype)), mesh)
    else:
        on_devices = replicate(frozen, replicated_sharding(mesh))
    measuring: list[Evaluator[EmbedWithLayers]] = []
    if sample:
        surveyed = survey(embed, sample.sentences, Protocol(), "config.analysis.data")
        measuring = [LastLayer(surveyed, sample, find_temperature(config.objective))]
    corpus = inputs.corpus
    parts = [(part.num_columns, part.lengths) for part in corpus.parts] if corpus is not None else [(1, ())]
    intervals = config.train.log_every, config.eval.every, config.analysis.every, config.checkpoint.keep_every
    schedule = Schedule(inputs.total_steps, *intervals, keep_start=keeps_start(config))
    recipes = tuple(
        make_recipe(config, columns, masking, networks, lengths, inputs.template, inputs.positive_template)
        for columns, lengths in parts
    )
    numbers = make_settings(config, max(schedule.total, 1))  # it divides the learning rate
    pairs = None
    if sample and trains_on_itself(recipes[0]) and find_temperature(config.objective):
        pairs = make_dropout_pairs(embed, recipes[0], numbers, sample.sentences, config.data.max_length)
    return Setup(
        spec,
        inputs,
        mesh,
        graph=build(encoder, head.trained, jnp.dtype(config.train.dtype))[0],
        recipes=recipes,
        embed=embed,
        schedule=schedule,
        measuring=measuring,
        scoring=[evaluation.development] if evaluation else [],
        shows_examples=bool(config.train.report_to),
        encoder=encoder,
        numbers=numbers,
        batch_size=config.train.batch_size,
        unpad=config.train.unpad,
        scores_both=spec.dual_encoder and config.eval.encoder == "better",
        frozen=on_devices if frozen else None,
        pairs=pairs,
    )


def keeps_start(config: Section) -> bool:
    """Whether the model that a run starts from is saved, since it may be the better one."""
    return bool(config.data.folds or (config.eval.against_start and has_scores(config)))


def trains_on_itself(recipe: Recipe) -> bool:
    """Whether a sentence is its own positive, encoded by one encoder, and objectives see its embeddings as they are."""
    return recipe.plan.columns == 1 and not recipe.plan.two_towers and recipe.projector is None


class AbstractStep(NamedTuple):
    """A run's step as far as it is known without weights and data, to be compiled from shapes alone."""

    spec: ModelSpec
    data: DataSpec
    encoder: EncoderConfig
    columns: int  # of the data
    generator: EncoderConfig | None
    recipe: Recipe
    numbers: StepSettings
    dtype: jnp.dtype
    parts: int  # of the state, see `config.parallel.parts`


def abstract_step(
    config: Config, encoder: EncoderConfig, columns: int, generator: EncoderConfig | None = None
) -> AbstractStep:
    """The step of a run on data with this many columns; `generator` is the shape of config.model.generator."""
    spec, data, dtype = model_spec(config), data_spec(config), config.train.dtype
    masking = Masking(mask_id=103, special_ids=(0, 100, 101, 102, 103))  # BERT's
    encoder = dataclasses.replace(encoder, convolutions=spec.convolutions, mask_token_id=masking.mask_id)
    networks = build_networks(encoder, generator, spec.attention_kernels, dtype) if generator else ()
    recipe = make_recipe(config, columns, masking, networks, data.column_lengths(columns))
    numbers, parts = make_settings(config, total_steps=1), config.parallel.parts
    return AbstractStep(spec, data, encoder, columns, generator, recipe, numbers, jnp.dtype(dtype), parts)


def make_settings(config: Section, total_steps: int) -> StepSettings:
    """The scalars that a compiled step takes. Runs that differ only in these share one compilation.

    They are `fields.numbers_of_step()`, by the last part of their names, and `total_steps`. Those of objectives that
    have a weight are grouped by objective. `warmup` is a number of steps, and `milestones` (M, 2) steps and factors.
    `attention_dropout` is among them only if attention has a rate of its own that is not 0 (see `Recipe`),
    `lora_dropout` only if LoRA has one, `ema_decay` only if it is not 0, and `size_weights` (S,) only with
    `matryoshka.dimensions`.
    """
    model, schedule, values = config.model, config.train.schedule, flatten(config)
    values["train.warmup"] = warmup_steps(schedule, config.train.warmup, total_steps)
    values["train.milestones"] = np.reshape(read_milestones(config.train.milestones), (-1, 2))
    values["matryoshka.weights"] = np.array(matryoshka_weights(config)) if config.matryoshka.dimensions else None
    values["train.ema_decay"] = config.train.ema_decay or None
    if model.attention_dropout <= 0:
        values["model.attention_dropout"] = None
    if not (model.lora.rank and model.lora.dropout):
        values["model.lora.dropout"] = None
    settings: StepSettings = {
        "total_steps": jnp.float32(total_steps),
        "objective": {name: {} for name in trained_objectives(config.objective)},
    }
    for name in numbers_of_step(declared_fields(config)):
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
    fields, spec, views = config.objective, model_spec(config), config.views
    positive_change: Any = repetition_spec(config) or views.positive_change
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
        positives=num_positives(config),
        lengths=tuple(lengths),
        template=template,
        positive_template=positive_template,
        denoising=views.denoising,
    )
    return Recipe(
        pooler=config.model.pooler,
        use_head=spec.head.trained,
        plan=plan,
        objectives=tuple(
            Term(
                load_loss(objective),
                tuple(
                    (field, config.objective[name][field])
                    for field, declared in objective.fields.items()
                    if not declared.of_step
                ),
                spec.projector is not None and name in spec.projected,
            )
            for name, objective in trained_objectives(fields).items()
        ),
        drops_attention=config.model.attention_dropout != 0,
        chunk_size=config.parallel.chunk_size,
        matmul_precision=config.train.matmul_precision,
        round_products=config.train.round_products,
        masking=masking if networks or needing(config.objective, "masks_tokens") else None,
        optimization=Optimization(*(config.train[name] for name in Optimization._fields)),
        projector=spec.projector,
        networks=networks,
        sizes=matryoshka_sizes(config),
        by_layer=config.parallel.gather == BY_LAYER,
    )


def num_positives(config: Section) -> int:
    """The columns whose mean embedding is an anchor's positive."""
    return int(config.data.spans.positives) if config.data.positives == SPANS else 1


def check_corpus(config: Section, corpus: AnyCorpus) -> None:
    """As `check_columns`, where a batch has rows of one source for each of the sources."""
    for name, part in zip(corpus.names, corpus.parts, strict=True):
        check_columns(config, part.num_columns, part.fewest_columns, data=name, most=corpus.num_columns)


def check_columns(config: Section, num_columns: int, fewest: int, *, data: str = "", most: int = 0) -> None:
    """Refuses objectives that need columns that the data lacks, and pairs of a sentence with itself without dropout.

    Args:
      config: the run's.
      num_columns: of the data.
      fewest: the sentences of a row that has the fewest: one that is its own positive, or fewer hard negatives.
      data: the source that they are of; empty: all of `data.train`.
      most: the columns of the source that has the most; 0: `num_columns`.
    """
    data, several = data or config.data.train, num_positives(config) - 1  # the mean of several is one
    if fewest == 1:
        _check_views_differ(config)
    if fewest < num_columns and config.projector.widths:
        raise UserError(
            f"config.projector.widths={config.projector.widths!r}: its batch norm would count what stands in for hard "
            f"negatives that some rows of {data} lack; leave it empty, or choose other columns with data.columns"
        )
    columns = Columns(data, num_columns - several, fewest - several, (most or num_columns) - several)
    for objective in trained_objectives(config.objective).values():
        check_needs(objective, columns)
        objective.check_columns(config.objective[objective.name], columns)


def _check_views_differ(config: Section) -> None:
    """Refuses masks that drop nothing where a sentence's two views differ in their masks alone."""
    views, model = config.views, config.model
    paired = needing(config.objective, "compares_views")
    rates = [model.dropout, model.attention_dropout, views.positive_dropout, model.lora.rank and model.lora.dropout]
    noise = views.positive == "noisy" and views.noise
    changed = {views.anchor_change, views.positive_change} - ({"none"} if views.cutoff else {"none", "cutoff"})
    if (
        paired
        and views.positive in ("independent", "mean", "noisy")
        and max(rates) <= 0  # -1: the same as another one
        and not noise
        and not changed
        and views.positive_template in ("", model.template)
        and not model.dual_encoder
    ):
        raise UserError(
            f"config.model.dropout={model.dropout}: all dropout rates are 0, so both views of a sentence would be the "
            "same; set views.positive=off if that is meant"
        )
