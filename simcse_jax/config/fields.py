"""The fields of a run, each with its default, meaning and bounds. Every recipe starts from these defaults."""

from collections.abc import Collection, Mapping
from typing import Any

from ml_collections import config_dict

from simcse_jax.choices import (
    AUGMENTATIONS,
    CONVOLUTION_ACTIVATIONS,
    DTYPES,
    HEADS,
    MASK,
    MOST_CHANNELS,
    PLACE,
    POOLERS,
    POSITIVES,
    WIDEST_CONVOLUTION,
)
from simcse_jax.config.evaluation_fields import EVALUATION_FIELDS, EVALUATION_SECTIONS
from simcse_jax.config.loss_fields import LOSS_FIELDS, LOSS_SECTIONS, TEMPLATE, fields_of_objectives
from simcse_jax.config.sections import Config, is_section
from simcse_jax.config.source_fields import SOURCE_FIELDS, SOURCE_SECTIONS, read_range
from simcse_jax.field import (
    BELOW_ONE,
    Field,
    above,
    at_least,
    at_most,
    each_once,
    empty_or_one_of,
    explain,
    field,
    list_of,
    milestones,
    nonempty,
    number,
    one_of,
    rule,
)
from simcse_jax.objectives.objective import Objective
from simcse_jax.objectives.registry import BUILT_IN, OBJECTIVES, add, check_known

OPTIMIZERS = {"adamw": "decay rates 0.9 and 0.999", "rmsprop": "decay rate 0.9, no momentum"}
SCHEDULES = {  # see training/learning_rate.py
    "linear": "falls to zero over the steps",
    "constant": "stays",
    "steps": "changes at train.milestones",
    "slanted_triangular": "rises from 1/32, and falls back to it",
}
TRACKERS = {  # see runs/reporters
    "tensorboard": "files in the workdir",
    "wandb": "Weights & Biases, in the project of WANDB_PROJECT",
    "mlflow": "at MLFLOW_TRACKING_URI, in the experiment of MLFLOW_EXPERIMENT_NAME",
}
MOST_POSITIVES = 15  # of an anchor: each has masks of its own (objectives/views.py)
GATHERED = ("step", BY_LAYER := "layer")  # see training/gathering.py
PRECISIONS = ("highest", "high", "default")  # JAX's names
LARGEST = 2**31 - 1  # whole number: steps and rows are counted in int32 on devices
ODD = tuple(map(str, range(1, WIDEST_CONVOLUTION + 1, 2)))


SECTIONS = {
    "model": "The encoder.",
    "model.convolutions": "Convolutions between the encoder and the pooler (IS-BERT).",
    "model.lora": "Products of low rank that train in the place of the encoder (LoRA; docs/guides/recipes.md).",
    "model.freeze": "Parts of the encoder that stay as they are.",
    "data": "The training data.",
    **SOURCE_SECTIONS,
    "data.columns": "Names of columns, if they are not the usual ones. Once one is set, only those set are read.",
    "data.spans": "Spans of documents as anchors and positives (DeCLUTR).",
    "data.augment": "A changed copy of a sentence as its positive (SimCSE, Table 1).",
    **LOSS_SECTIONS,
    "train": "The optimization.",
    **EVALUATION_SECTIONS,
    "checkpoint": "The checkpoints that a run keeps, besides the two latest and the best one.",
    "parallel": "Devices and processes.",
}


FIELDS = {
    "seed": number(42, "The seed of all random draws.", rule("from 0 to 2³² - 1", lambda seed: 0 <= seed < 2**32)),
    "model.init_from": field(
        "bert-base-uncased",
        "The model to start from: a folder, a hub id, package:NAME, a workdir (WORKDIR@step=200: that checkpoint), or "
        "glove:FILE, the average of word vectors, which cannot be trained.",
        nonempty("a folder, a hub id or package:NAME"),
    ),
    "model.num_layers": field(0, "Keep the first n layers; 0: all.", at_least(0)),
    "model.bidirectional": field(False, "A decoder reads a text in both directions; the trained model keeps that."),
    "model.pooler": field("cls", f"From tokens to an embedding. {explain(POOLERS)}.", one_of(POOLERS)),
    "model.template": field(
        "",
        f"A text around every sentence, which the model keeps: {PLACE} is the sentence's place, {MASK} a mask token. "
        "data.max_length counts its tokens too, and a long sentence is cut, never the template; empty: none.",
        TEMPLATE,
    ),
    "model.mlp": field(
        "train",
        "The head after the pooler. train: in training only; always: at test time too; none: never.",
        one_of(HEADS),
    ),
    "model.convolutions.widths": field(
        (),
        "Convolutions over the last layer, of which the pooler then takes tokens: their widths in tokens (IS-BERT: "
        "1,3,5); empty: none.",
        rule(f"odd whole numbers up to {WIDEST_CONVOLUTION}", lambda widths: all(width in ODD for width in widths)),
    ),
    "model.convolutions.channels": field(
        256, "The features of each.", at_least(1), at_most(MOST_CHANNELS), only="model.convolutions.widths"
    ),
    "model.convolutions.activation": field(
        "none",
        f"What follows them. {explain(CONVOLUTION_ACTIVATIONS)}.",
        one_of(CONVOLUTION_ACTIVATIONS),
        only="model.convolutions.widths",
    ),
    "model.dropout": number(0.1, "The dropout rate in training.", BELOW_ONE),
    "model.attention_dropout": number(
        -1.0,
        "The dropout rate of attention's probabilities in training; -1: the same as in the rest of the encoder.",
        rule("at least 0 and below 1, or -1", lambda x: x == -1 or 0 <= x < 1),
    ),
    "model.attention_kernels": field(
        False, "Attention of more than 512 tokens by kernels of NVIDIA GPUs, where nothing of it is dropped."
    ),
    "model.keep_settings": field(
        False,
        "The trained model keeps the prompts, the similarity, the truncation and the module Normalize of the model it "
        "starts from.",
    ),
    "model.keep_modules": field(
        True, "Modules after the base model's own pooler and head, such as Dense, are trained and kept."
    ),
    "model.dual_encoder": field(False, "A second encoder for positives and negatives; that of the anchors is kept."),
    "model.generator": field(
        "",
        "For objective.replaced_token_detection: a model with its language-model head, which is not trained.",
        only="objective.replaced_token_detection.weight",
    ),
    "model.lora.rank": field(0, "The rank of the products; 0: no LoRA, the encoder itself trains.", at_least(0)),
    "model.lora.alpha": field(16.0, "The products are multiplied by alpha / rank.", above(0), only="model.lora.rank"),
    "model.lora.targets": field(
        (),
        "The linear maps of each layer that have them, as PEFT names them: query,value (DistilBERT: q_lin,v_lin; "
        "ModernBERT: Wqkv); or all-linear; empty: those of queries and values.",
        only="model.lora.rank",
    ),
    "model.lora.dropout": number(
        0.0, "The dropout rate of their inputs in training.", BELOW_ONE, only="model.lora.rank"
    ),
    "model.lora.init_from": field(
        "",
        "A folder in PEFT's format with the products to start from; empty: new ones, which change nothing at first.",
        only="model.lora.rank",
    ),
    "model.freeze.embeddings": field(False, "The tables of the embedding layer, with their norm."),
    "model.freeze.layers": field(0, "The first n layers; with LoRA, they have none.", at_least(0)),
    "data.train": field(
        "data/wiki1m_for_simcse.txt",
        "A .txt, .csv, .tsv, .jsonl or .parquet file, a folder of them, a pattern, "
        "hf:NAME[:CONFIG[:SPLIT]], tfds:NAME[:SPLIT], sts:FOLDER (the "
        "sentences of SentEval's similarity sets) or sts:FOLDER:TASK[:SPLIT] (the graded pairs of one of them); or "
        "several of them, with commas in between; or the folder of a prepared corpus (docs/guides/corpora.md), or "
        "several of them, also gs://BUCKET/FOLDER.",
        nonempty("a file, hf:NAME, tfds:NAME or sts:FOLDER"),
    ),
    "data.local_cache": field(
        "",
        "A folder on this host's disk, for copies of prepared corpora in buckets.",
    ),
    **SOURCE_FIELDS,
    "data.max_length": field(
        32,
        "Tokens per sentence; longer sentences are cut.",
        at_least(3, "two of them are special tokens"),
    ),
    "data.positives": field(
        "",
        "The source of positives, if not a column: the pairs with one label, or with any label (all); or the next "
        "sentences of documents (next_sentence, next_3_sentences), or spans of them (spans), one sentence a line with "
        "a blank line between documents.",
        empty_or_one_of(POSITIVES),
    ),
    "data.spans.anchors": field(
        2, "The anchors of a document.", at_least(1), at_most(1000), only="data.positives=spans"
    ),
    "data.spans.positives": field(
        2,
        "The positives of an anchor; the mean of their embeddings is one.",
        at_least(1),
        at_most(MOST_POSITIVES),
        only="data.positives=spans",
    ),
    "data.spans.shortest": field(32, "The least word pieces of a span.", at_least(1), only="data.positives=spans"),
    "data.spans.longest": field(512, "The most word pieces of a span.", at_least(1), only="data.positives=spans"),
    "data.spans.tokens": field(
        2048, "The word pieces that each document must have.", at_least(1), only="data.positives=spans"
    ),
    "data.held_out": field(
        0,
        "Hold out so many rows to score on, with eval.data empty: half of them choose the best checkpoint and "
        "half are the test set, or all are it where eval.every=0. Rows that share an anchor or a positive stay "
        "together. 0: none.",
        at_least(0),
    ),
    "data.folds": field(
        0,
        "Folds of the rows. For each a model is first trained on all others, and compared with the base model on the "
        "fold. If the 95% interval of the mean gain lies above 0, a model is trained on all rows; otherwise the base "
        "model is kept. 0: none.",
        rule("0, or 2 or more", lambda n: n == 0 or n >= 2),
    ),
    "data.subsample": field(0, "Train on this number of examples, drawn with the seed; 0: on all.", at_least(0)),
    "data.columns.anchor": field("", "The column of the sentences."),
    "data.columns.positive": field("", "The column of their positives."),
    "data.columns.negative": field("", "The column of hard negatives: of one, or a list; or NAME of NAME_1, NAME_2, …"),
    "data.columns.neutral": field("", "The column of further negatives, read only if this is set."),
    "data.columns.label": field(
        "", "The column of labels, of pairs or sentences, read if this is set or labels are needed."
    ),
    "data.columns.score": field("", "The column of scores, of pairs or of a row's candidates."),
    "data.score_range": field(
        (),
        "The lowest and the highest score of the data, LOWEST,HIGHEST, e.g. 0,5: scores are scaled to 0 … 1; empty: "
        "they are taken as they are.",
        list_of("empty, or the lowest and the highest score, e.g. 0,5", read_range),
    ),
    "data.augment.name": field("", "The kind of change; empty: none.", empty_or_one_of(AUGMENTATIONS)),
    "data.augment.percent": field(
        10.0,
        "The percentage of words that crop and delete remove, or of tokens that mlm replaces.",
        rule("above 0 and below 100", lambda percent: 0 < percent < 100),
        only="data.augment.name",
    ),
    "data.augment.both": field(False, "Change the anchor too, in another way.", only="data.augment.name"),
    "data.augment.lexicon": field("", "For synonym: a WordNet file in WN-LMF.", only="data.augment.name=synonym"),
    "data.augment.mlm_model": field("", "For mlm: a model with its language-model head.", only="data.augment.name=mlm"),
    **LOSS_FIELDS,
    "train.batch_size": field(
        64, "Examples per step, on all devices together.", at_least(2, "the others of a batch are the negatives")
    ),
    "train.optimizer": field("adamw", f"How gradients become updates. {explain(OPTIMIZERS)}.", one_of(OPTIMIZERS)),
    "train.learning_rate": number(3e-5, "The learning rate, the largest of the schedule.", above(0)),
    "train.schedule": field("linear", f"How the learning rate changes. {explain(SCHEDULES)}.", one_of(SCHEDULES)),
    "train.warmup": number(
        0.0,
        "The share of the steps over which the learning rate rises from zero, rounded up to whole steps; for "
        "slanted_triangular it is rounded down.",
        at_least(0.0),
        at_most(1.0),
    ),
    "train.milestones": number(
        "",
        "For the schedule steps, STEP:FACTOR,…: from that step on (the first step is 0) the learning rate is this "
        "multiple of train.learning_rate.",
        milestones(LARGEST),
        only="train.schedule=steps",
    ),
    "train.epsilon": number(1e-8, "Added to the root of the mean square of gradients: ε.", above(0)),
    "train.bias_correction": field(
        True,
        "Correct AdamW's means for their start at zero. BERT's own optimizer does not: False.",
        only="train.optimizer=adamw",
    ),
    "train.mu_dtype": field(
        "float32",
        "The type in which AdamW keeps the mean of gradients; bfloat16: in half the memory, rounded each step.",
        one_of(DTYPES),
        only="train.optimizer=adamw",
    ),
    "train.weight_decay": number(0.0, "The decay of matrices; biases and norms have none.", at_least(0.0)),
    "train.ema_decay": number(
        0.0,
        "Scores, keeps and exports a moving average of the weights: after each step d times itself, and 1 - d times "
        "the weights; 0: the weights themselves.",
        BELOW_ONE,
    ),
    "train.max_grad_norm": number(1.0, "Clips the gradient's global norm; 0.0: off.", at_least(0.0)),
    "train.epochs": field(
        1, "Passes over the data; if this and max_steps are 0, the model is only scored.", at_least(0)
    ),
    "train.max_steps": field(0, "Above 0 it replaces the epochs; train.schedule is over these steps.", at_least(0)),
    "train.patience": field(
        0, "End the run after this number of evaluations without a better development score; 0: never.", at_least(0)
    ),
    "train.log_every": field(25, "Steps between lines of metrics.jsonl.", at_least(1)),
    "train.report_to": field(
        ("tensorboard",),
        f"Where metrics go besides metrics.jsonl and report.html. {explain(TRACKERS)}. Several with commas; none: "
        "nowhere, and without report.html.",
        each_once("tracker", TRACKERS),
    ),
    "train.dtype": field(
        "float32",
        "The type of the encoder's products; parameters, optimizer, softmax, norms and losses stay float32.",
        one_of(DTYPES),
    ),
    "train.unpad": field(True, "Leave padding out: faster, and the same up to the rounding of sums."),
    "train.matmul_precision": field(
        "highest", "The precision of float32 products on TPUs and GPUs; highest is float32.", one_of(PRECISIONS)
    ),
    "train.round_products": field(
        False,
        "Write products of bfloat16 factors as bfloat16 on TPUs and GPUs: less memory traffic, more rounding.",
        only="train.dtype=bfloat16",
    ),
    **EVALUATION_FIELDS,
    "checkpoint.keep_every": field(0, "Also keep the checkpoint of every n-th step; 0: none of them.", at_least(0)),
    "parallel.devices": field(0, "The number of devices of each process; 0: all.", at_least(0)),
    "parallel.chunk_size": field(
        0, "Examples encoded at a time on each device: less memory for more time; 0: all.", at_least(0)
    ),
    "parallel.parts": field(
        0,
        "The number of devices that share a copy of the parameters and of the optimizer's state; 0: all.",
        at_least(0),
    ),
    "parallel.gather": field(
        "step",
        "Parameters are whole on each device for a step (step), or those of a layer while it computes (layer): less "
        "memory, and each layer is computed again in the backward pass.",
        one_of(GATHERED),
    ),
    "parallel.processes": field(
        1,
        "1: this process alone; 0: as Slurm, Open MPI, Kubernetes or the TPU reports; n: set the two fields below.",
        at_least(0),
    ),
    "parallel.process_id": field(
        0,
        "The number of this process, from 0 to n - 1.",
        at_least(0),
    ),
    "parallel.coordinator": field("", "The HOST:PORT of process 0."),
}


def declared_fields(config: Config) -> Mapping[str, Field]:
    """The fields of a config: the package's, and those of objectives from outside that it names."""
    objectives = config.get("objective", {})
    if not is_section(objectives):  # the checks refuse it
        return FIELDS
    user_objectives = [name for name in objectives if name not in BUILT_IN and is_section(objectives[name])]
    check_known(user_objectives)
    return FIELDS | fields_of_objectives(OBJECTIVES[name] for name in user_objectives)


def numbers_of_step(fields: Mapping[str, Field] = FIELDS) -> tuple[str, ...]:
    """The names of the fields that the compiled step takes as numbers: runs that differ in them share a compilation."""
    return tuple(name for name, declared in fields.items() if declared.of_step)


def default_config(*objectives: type[Objective] | str) -> config_dict.ConfigDict:
    """The defaults: unsupervised SimCSE of BERT-base with the paper's hyper-parameters (Table A.1).

    `*objectives`: from outside: classes, or names of entry points of other packages (docs/background/architecture.md).
    """
    return make_defaults(FIELDS | fields_of_objectives([add(objective) for objective in objectives]))


def make_defaults(fields: Mapping[str, Field]) -> config_dict.ConfigDict:
    """A config with the fields' defaults, nested by their dotted names."""
    config = config_dict.ConfigDict()
    for name, declared in fields.items():
        *path, last = name.split(".")
        section = config
        for part in path:
            if part not in section:
                section[part] = config_dict.ConfigDict()
            section = section[part]
        section[last] = declared.default
    return config


def flatten(config: Config | Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """All fields by dotted name."""
    fields: dict[str, Any] = {}
    for name, value in config.items():
        if is_section(value):
            fields |= flatten(value, f"{prefix}{name}.")
        else:
            fields[prefix + name] = value
    return fields


def short_names(names: Collection[str]) -> list[str]:
    """The last parts of fields' names where they differ, otherwise the whole names."""
    last = [name.rpartition(".")[2] for name in names]
    return last if len(set(last)) == len(last) else list(names)


def scoring_pooler(config: Mapping[str, Any]) -> str:
    """The pooler of a run's scores and of its model; `config` is the run's, or that of its `run.json`."""
    return config["eval"]["pooler"] or config["model"]["pooler"]


def trains(config: Config) -> bool:
    """Whether the run trains at all; without a step the initial model is scored."""
    return bool(config.train.max_steps or config.train.epochs)
