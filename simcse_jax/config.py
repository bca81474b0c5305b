"""The fields of a run, their defaults, how they are read from the command line, and what they may be.

Every recipe in `configs/` starts from `default_config()`. The field names are public.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import config_dict, config_flags

from simcse_jax.data.augment import AUGMENTATIONS
from simcse_jax.data.sources import POSITIVES
from simcse_jax.errors import UserError
from simcse_jax.models.config import POOLERS

MLP = ("train", "always", "none")
DTYPES = ("float32", "bfloat16")
PRECISIONS = ("highest", "high", "default")
POLICIES = ("independent", "shared", "off", "noisy", "mean")  # see views.py
READINGS = ("paper", "released")  # of objective.dimension_wise
POSTPROCESSING = ("whitening", "flow")  # see evaluation/postprocess.py
CONTRASTIVE = ("info_nce", "off_dropout", "dimension_wise", "barlow_twins")  # these take a pair for positive
MOST_ARTIFICIAL = 100_000  # rows of objective.barlow_twins
FEWEST_ANALYSED = 10  # sentences of analysis.sentences
TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICKRelatedness")


def default_config() -> config_dict.ConfigDict:
    """The defaults: unsupervised SimCSE of BERT-base with the paper's hyper-parameters (Table A.1)."""
    config = config_dict.ConfigDict()
    config.seed = 42

    config.model = config_dict.ConfigDict()
    config.model.init_from = "bert-base-uncased"  # a folder, a hub id, or package:NAME
    config.model.num_layers = 0  # keep the first n layers; 0: all
    config.model.pooler = "cls"  # cls, cls_before_pooler, avg, avg_top2, avg_first_last, max
    config.model.mlp = "train"  # the head: train (only there), always (at test time too), none
    config.model.dropout = 0.1
    config.model.dual_encoder = False  # a second encoder for positives and negatives; the anchors' is kept

    config.data = config_dict.ConfigDict()
    config.data.train = "data/wiki1m_for_simcse.txt"  # txt, csv, tsv, jsonl, parquet, hf:NAME…, tfds:NAME…
    config.data.max_length = 32  # tokens
    # Column names where they are not the usual ones. Once one is set, only those set are used.
    # `neutral` (further negatives) and `label` count only where they are set, or asked for.
    config.data.columns = config_dict.ConfigDict(dict(anchor="", positive="", negative="", neutral="", label=""))
    # Where the positives come from, if not from a column: the pairs of one label (entailment, neutral, contradiction)
    # or of any (all); or what follows in documents, sentences one a line with a blank line between documents
    # (next_sentence, next_3_sentences).
    config.data.positives = ""
    config.data.subsample = 0  # train on so many examples, drawn with the seed; 0: on all
    # A changed copy of the sentence as its positive (SimCSE, Table 1): crop, delete, delete_one, synonym, mlm.
    config.data.augment = config_dict.ConfigDict()
    config.data.augment.name = ""
    config.data.augment.percent = 10.0  # of the words that crop and delete take away, of the tokens that mlm replaces
    config.data.augment.both = False  # change the anchor too, in another way
    config.data.augment.lexicon = ""  # of synonym: a WordNet in WN-LMF
    config.data.augment.mlm_model = ""  # of mlm: a model with its language-model head

    # Masks of sentences: independent, shared, off, noisy, mean (see views.py).
    config.views = config_dict.ConfigDict()
    config.views.positive = "independent"  # of positive pairs
    config.views.negative = "off"  # of the negative pairs of objective.off_dropout
    config.views.noise = 0.1  # variance of the Gaussian noise of `noisy`
    config.views.samples = 10  # masks that `mean` averages over

    # The loss is the weighted sum of these; a weight 0.0 turns a term off.
    config.objective = config_dict.ConfigDict()
    config.objective.info_nce = config_dict.ConfigDict()
    config.objective.info_nce.weight = 1.0
    config.objective.info_nce.temperature = 0.05
    config.objective.info_nce.hard_negative_weight = 1.0  # α of SimCSE's equation 8
    config.objective.info_nce.similarity = "cosine"  # or dot
    config.objective.info_nce.symmetric = False  # positives look for their anchors, too
    config.objective.off_dropout = config_dict.ConfigDict()  # SimCSE++, eq. 3
    config.objective.off_dropout.weight = 0.0
    config.objective.off_dropout.temperature = 0.05
    config.objective.off_dropout.m = 0.9
    config.objective.dimension_wise = config_dict.ConfigDict()  # SimCSE++, eq. 5
    config.objective.dimension_wise.weight = 0.0
    config.objective.dimension_wise.temperature = 5.0
    config.objective.dimension_wise.reading = "paper"  # or released: what the authors' code computes
    config.objective.barlow_twins = config_dict.ConfigDict()  # SimCSE++, eq. 4
    config.objective.barlow_twins.weight = 0.0
    config.objective.barlow_twins.off_diagonal_weight = 0.005
    config.objective.barlow_twins.artificial = 0  # rows of N(0, 1) beside the batch
    config.objective.mlm = config_dict.ConfigDict(dict(weight=0.0))  # masked language model, 15% of the tokens
    config.objective.softmax_nli = config_dict.ConfigDict(dict(weight=0.0))  # SBERT's classifier of labelled pairs

    config.train = config_dict.ConfigDict()
    config.train.batch_size = 64  # over all devices
    config.train.learning_rate = 3e-5  # falls linearly to zero
    config.train.weight_decay = 0.0  # of matrices, not of biases and norms
    config.train.max_grad_norm = 1.0  # clips the gradient's global norm; 0.0: off
    config.train.epochs = 1  # 0, with max_steps 0: nothing is trained, the model is scored as it is
    config.train.max_steps = 0  # above 0 it replaces the epochs and is the horizon of the decay
    config.train.log_every = 25
    # Of the encoder's products, float32 or bfloat16; parameters, optimizer, softmax, norms and losses stay float32.
    config.train.dtype = "float32"
    config.train.unpad = True  # compute nothing of padding: faster, the same up to the rounding of sums
    config.train.matmul_precision = "highest"  # of float32 products on TPUs and GPUs: highest is float32; high, default

    config.eval = config_dict.ConfigDict()
    config.eval.data = "data/SentEval/data/downstream"  # or a file of graded pairs; empty: no evaluation
    config.eval.every = 250  # steps between evaluations; each one also saves a checkpoint
    config.eval.tasks = TASKS  # scored with the best checkpoint at the end
    config.eval.transfer = False  # score the transfer tasks at the end too
    # Of the embeddings that are scored at the end: whitening or flow, fit on a source of sentences (whatever data.train
    # may be; all of its columns) or on the target: for each task the sentences that it is scored on.
    config.eval.postprocess = ""
    config.eval.postprocess_data = ""
    config.eval.postprocess_dimensions = 0  # that whitening keeps; 0: all

    # How the space changes while it is trained: eight numbers of the last layer (docs/dynamics.md).
    config.analysis = config_dict.ConfigDict()
    config.analysis.every = 0  # steps between measurements, the start and the end are measured too; 0: none
    config.analysis.data = ""  # a file of sentences; empty: the first ones of eval.data's development pairs
    config.analysis.sentences = 256  # that are measured, evenly spread over the data

    config.checkpoint = config_dict.ConfigDict()
    config.checkpoint.keep_every = 0  # keep the checkpoints of every n-th step too; 0: the two latest and the best

    config.parallel = config_dict.ConfigDict()
    config.parallel.devices = 0  # how many of the devices of each process; 0: all
    config.parallel.chunk_size = 0  # examples encoded at a time on each device, less memory for more time; 0: all
    # 1: this process alone; 0: as Slurm, Open MPI, Kubernetes or the TPU tell JAX; n: with the two fields below.
    config.parallel.processes = 1
    config.parallel.process_id = 0  # from 0 to n - 1
    config.parallel.coordinator = ""  # host:port of process 0
    return config


def choose_variant(variant: str, variants: Mapping[str, Any]) -> Any:
    """The entry of `variants` that a config's argument (`configs/unsup_bert.py:large`) names.

    Raises:
      UserError: naming the ones there are.
    """
    if variant not in variants:
        raise UserError(f"no variant {variant!r} of this config; it has {', '.join(variants)}")
    return variants[variant]


def flatten(config: config_dict.ConfigDict, prefix: str = "") -> dict[str, object]:
    """All fields by dotted name."""
    fields = {}
    for name, value in config.items():
        if isinstance(value, config_dict.ConfigDict):
            fields |= flatten(value, f"{prefix}{name}.")
        else:
            fields[prefix + name] = value
    return fields


FOLDERS = {
    "workdir": "where checkpoints, metrics and results go",
    "profile": "where a trace of a few steps goes",
}


def parse(argv: Sequence[str], needs_workdir: bool = True) -> tuple[config_dict.ConfigDict, str]:
    """Reads `--config FILE --workdir DIR [--config.FIELD=VALUE …]`.

    Returns:
      The config, and the workdir (empty where none is needed).

    Raises:
      UserError: for whatever is wrong with flags, file or values; an unknown field's nearest known one is named.
    """
    config, folders = _parse(argv, ("workdir",) if needs_workdir else ())
    return config, folders.get("workdir", "")


def parse_run(argv: Sequence[str]) -> tuple[config_dict.ConfigDict, str, str | None]:
    """As `parse`; the third is what `--profile DIR` names, which is no part of the config: it changes nothing."""
    config, folders = _parse(argv, tuple(FOLDERS))
    return config, folders["workdir"], folders["profile"]


def _parse(argv: Sequence[str], folders: Sequence[str]) -> tuple[config_dict.ConfigDict, dict[str, str | None]]:
    """The config and the named flags of `FOLDERS`."""
    values = flags.FlagValues()
    args = ["simcse_jax.main", *argv]
    help_text = "a recipe, e.g. configs/unsup_bert.py or configs/unsup_bert.py:large"
    path = config_path(argv)
    if not path:
        raise UserError("--config FILE is missing, e.g. --config configs/unsup_bert.py")
    known = flatten(_get_config(path))
    try:
        config_flags.DEFINE_config_file("config", None, help_text, flag_values=values, sys_argv=args)
        for name in folders:
            flags.DEFINE_string(name, None, FOLDERS[name], flag_values=values)
        rest = values(args)[1:]
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, flags.Error) as error:
        raise UserError(_unknown_field(argv, known) or str(error)) from None
    if "workdir" in folders and not values.workdir:
        raise UserError(f"--workdir DIR is missing: {FOLDERS['workdir']}")
    if "profile" in folders and values.profile == "":
        raise UserError("--profile: name a folder")
    if rest:
        raise UserError(f"unknown argument {rest[0]!r}; a field is set with --config.FIELD=VALUE")
    config = values.config.unlock()
    _split_tuples(config)
    return config, {name: values[name].value for name in folders}


def config_path(argv: Sequence[str]) -> str:
    """What `--config` names, empty where there is none."""
    for position, arg in enumerate(argv):
        name, equals, value = arg.partition("=")
        if name in ("--config", "-config"):
            return value if equals else (argv[position + 1] if position + 1 < len(argv) else "")
    return ""


def _get_config(path: str) -> config_dict.ConfigDict:
    """Loads a config file alone, to tell its mistakes from those of the command line."""
    values = flags.FlagValues()
    args = ["simcse_jax.main", f"--config={path}"]
    file = path.partition(":")[0]
    if not Path(file).is_file():
        raise UserError(f"--config {file}: no such config file")
    try:
        config_flags.DEFINE_config_file("config", None, flag_values=values, sys_argv=args)
        values(args)
    except UserError:
        raise
    except Exception as error:  # the file is a program: anything can go wrong in it
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        kind = "" if isinstance(error, flags.Error) else f"{type(error).__name__}: "
        raise UserError(f"--config {path}: {kind}{reason}") from None
    if not isinstance(values.config, config_dict.ConfigDict):
        raise UserError(f"--config {path}: get_config must return a ConfigDict (see simcse_jax.config.default_config)")
    return values.config


def _unknown_field(argv: Sequence[str], known: Mapping[str, Any]) -> str | None:
    for arg in argv:
        name = arg.lstrip("-").partition("=")[0]
        if name.startswith("config.") and name.removeprefix("config.") not in known:
            name = name.removeprefix("config.")
            return f"--config.{name}: no such field; the nearest one is --config.{nearest(name, known)}"
    return None


def nearest(name: str, known: Iterable[str]) -> str:
    """The most similar of the known names."""
    return difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)[0]


def _split_tuples(config: config_dict.ConfigDict) -> None:
    # `--config.eval.tasks=STS12,STS13` reaches us as the tuple ("STS12,STS13",).
    for name, value in config.items():
        if isinstance(value, config_dict.ConfigDict):
            _split_tuples(value)
        elif isinstance(value, tuple):
            config[name] = tuple(part.strip() for item in value for part in str(item).split(",") if part.strip())


def validate(config: config_dict.ConfigDict) -> None:
    """Checks every field that can be checked without reading anything.

    Raises:
      UserError: naming the field, its value and what it may be.
    """
    default, given = flatten(default_config()), flatten(config)
    if "sweep" in config:
        raise UserError("config.sweep: this config is a sweep; run it with python -m simcse_jax.sweep")
    for name in given:
        if name not in default:
            raise UserError(f"config.{name}: no such field; the nearest one is config.{nearest(name, default)}")
    if missing := [name for name in default if name not in given]:
        raise UserError(f"config.{missing[0]} is missing; start a config from simcse_jax.config.default_config()")

    for name, value in given.items():
        expected = type(default[name])
        if type(value) is not expected and not (expected is float and type(value) is int):
            raise UserError(f"config.{name}={value!r}: must be of type {expected.__name__}")

    def check(field: str, holds: bool, expected: str) -> None:
        if not holds:
            raise UserError(f"config.{field}={given[field]!r}: must be {expected}")

    for field in ("model.num_layers", "train.max_steps", "checkpoint.keep_every", "analysis.every"):
        check(field, given[field] >= 0, "0 or more")
    for field in ("parallel.devices", "parallel.chunk_size", "parallel.processes", "parallel.process_id"):
        check(field, given[field] >= 0, "0 or more")
    for field in ("train.epochs", "eval.postprocess_dimensions"):
        check(field, given[field] >= 0, "0 or more")
    for field in ("train.log_every", "eval.every"):
        check(field, given[field] >= 1, "1 or more")
    for field in ("train.weight_decay", "train.max_grad_norm"):
        check(field, 0 <= given[field] < float("inf"), "0.0 or more")
    check("seed", 0 <= config.seed < 2**32, "from 0 to 2³² - 1")
    check("model.init_from", bool(config.model.init_from), "a folder, a hub id or package:NAME")
    check("model.pooler", config.model.pooler in POOLERS, f"one of {', '.join(POOLERS)}")
    check("model.mlp", config.model.mlp in MLP, f"one of {', '.join(MLP)}")
    check("model.dropout", 0 <= config.model.dropout < 1, "at least 0 and below 1")
    if config.model.pooler == "cls_before_pooler" and config.model.mlp != "none":
        raise UserError(
            f"config.model.mlp={config.model.mlp!r}: the pooler cls_before_pooler never has a head; "
            "set model.mlp=none, or model.pooler=cls"
        )
    check("train.batch_size", config.train.batch_size >= 2, "2 or more (the others of a batch are the negatives)")
    check("train.dtype", config.train.dtype in DTYPES, f"one of {', '.join(DTYPES)}")
    check("train.matmul_precision", config.train.matmul_precision in PRECISIONS, f"one of {', '.join(PRECISIONS)}")
    parallel = config.parallel
    if parallel.processes > 1:
        check("parallel.process_id", parallel.process_id < parallel.processes, f"below {parallel.processes}")
        port = parallel.coordinator.rpartition(":")[2]
        check("parallel.coordinator", port.isdigit() and ":" in parallel.coordinator, "HOST:PORT of process 0")
    check("train.learning_rate", 0 < config.train.learning_rate < float("inf"), "above 0")
    _check_data(config, check)
    _check_objectives(config, check)
    for task in config.eval.tasks:
        if task not in TASKS:
            raise UserError(f"config.eval.tasks: no task {task!r}; the nearest one is {nearest(task, TASKS)}")
        if config.eval.tasks.count(task) > 1:
            raise UserError(f"config.eval.tasks: {task} comes twice; name each task once, in one list with commas")
    check_postprocess(*(config.eval[name] for name in _POSTPROCESS), "config.eval.postprocess", "_")
    least = FEWEST_ANALYSED
    check("analysis.sentences", config.analysis.sentences >= least, f"{least} or more (tokens must occur in several)")
    if config.analysis.every and not config.analysis.data and not config.eval.data:
        raise UserError("config.analysis.data: must be set, a file of sentences, since eval.data is empty")


Check = Callable[[str, bool, str], None]


def trains(config: config_dict.ConfigDict) -> bool:
    """Whether there is an update to do; without one the model that it starts from is scored."""
    return bool(config.train.max_steps or config.train.epochs)


_POSTPROCESS = ("postprocess", "postprocess_data", "postprocess_dimensions")


def check_postprocess(method: str, data: str, dimensions: int, field: str, joint: str) -> None:
    """Checks what can be checked of a post-processing without reading anything.

    `field` is what the user has set `method` by, `field + joint + "data"` and `… "dimensions"` the others.

    Raises:
      UserError: naming the field.
    """
    if method and method not in POSTPROCESSING:
        raise UserError(f"{field}: no method {method!r}; the nearest one is {nearest(method, POSTPROCESSING)}")
    data_field, dimensions_field = f"{field}{joint}data", f"{field}{joint}dimensions"
    if method and not data:
        raise UserError(f"{data_field}: must be set for {method}: a file of sentences, or target")
    if data and not method:
        raise UserError(f"{data_field}={data}: has no use without {field}={' or '.join(POSTPROCESSING)}")
    if dimensions < 0 or (dimensions and method != "whitening"):
        raise UserError(f"{dimensions_field}={dimensions}: must be 0, or above it for {field}=whitening")


def _check_data(config: config_dict.ConfigDict, check: Check) -> None:
    data, augment = config.data, config.data.augment
    check("data.train", bool(data.train), "a file, hf:NAME or tfds:NAME")
    check("data.max_length", data.max_length >= 3, "3 or more (two of them are special tokens)")
    check("data.subsample", data.subsample >= 0, "0 or more")
    columns = data.columns
    if (columns.positive or columns.negative or columns.neutral) and not columns.anchor:
        raise UserError("config.data.columns.anchor: must be set too once another column is")
    for earlier, later in (("positive", "negative"), ("negative", "neutral")):
        if columns[later] and not columns[earlier]:
            raise UserError(f"config.data.columns.{earlier}: must be set too, since data.columns.{later} is")
    check("data.positives", data.positives in ("", *POSITIVES), f"empty or one of {', '.join(POSITIVES)}")
    check("data.augment.name", augment.name in ("", *AUGMENTATIONS), f"empty or one of {', '.join(AUGMENTATIONS)}")
    check("data.augment.percent", 0 < augment.percent < 100, "above 0 and below 100")
    if augment.name and data.positives:
        raise UserError(
            f"config.data.augment.name={augment.name!r} makes the positives, and so does "
            f"data.positives={data.positives!r}; set one of them"
        )
    for name, field in (("synonym", "lexicon"), ("mlm", "mlm_model")):
        if augment.name == name and not augment[field]:
            raise UserError(f"config.data.augment.{field}: must be set for data.augment.name={name}")


def _check_objectives(config: config_dict.ConfigDict, check: Check) -> None:
    objective = config.objective
    for name, term in objective.items():
        for field, value in term.items():
            if field == "temperature":
                check(f"objective.{name}.{field}", 0 < value < float("inf"), "above 0")
            elif isinstance(value, float | int) and not isinstance(value, bool):
                check(f"objective.{name}.{field}", 0 <= value < float("inf"), "0 or more")
    check("objective.off_dropout.m", objective.off_dropout.m > 0, "above 0 (at 0 there is nothing to learn)")
    artificial = objective.barlow_twins.artificial
    check("objective.barlow_twins.artificial", artificial <= MOST_ARTIFICIAL, f"at most {MOST_ARTIFICIAL}")
    check("objective.info_nce.similarity", objective.info_nce.similarity in ("cosine", "dot"), "cosine or dot")
    check("objective.dimension_wise.reading", objective.dimension_wise.reading in READINGS, " or ".join(READINGS))
    if not any(term.weight for term in objective.values()):
        raise UserError("config.objective: every term has weight 0.0, so there is nothing to train")
    for field in ("positive", "negative"):
        check(f"views.{field}", config.views[field] in POLICIES, f"one of {', '.join(POLICIES)}")
    check("views.noise", 0 <= config.views.noise < float("inf"), "0.0 or more")
    check("views.samples", config.views.samples >= 1, "1 or more")
    if not objective.softmax_nli.weight:
        return
    positives = config.data.positives
    if config.data.augment.name:
        raise UserError("config.objective.softmax_nli.weight: needs labelled pairs, so data.augment.name must be empty")
    if positives not in ("", "all"):
        raise UserError(f"config.data.positives={positives!r}: must be all, for objective.softmax_nli")
    beside = [name for name in CONTRASTIVE if objective[name].weight]
    if beside and positives != "all":
        raise UserError(
            f"config.objective.{beside[0]}.weight: beside softmax_nli it would take all labelled pairs for positives, "
            f"contradictions too; set it to 0.0, or data.positives=all if that is meant"
        )


def ineffective(config: config_dict.ConfigDict) -> list[str]:
    """The fields that were set, `NAME=VALUE`, but count for nothing beside the other fields."""
    default, given = flatten(default_config()), flatten(config)
    objective, augment = config.objective, config.data.augment
    off = {f"objective.{name}.{field}" for name, term in objective.items() if not term.weight for field in term}
    policies = {config.views.positive} | ({config.views.negative} if objective.off_dropout.weight else set())
    conditions = {
        "views.negative": objective.off_dropout.weight > 0,
        "views.noise": "noisy" in policies,
        "views.samples": "mean" in policies,
        "data.augment.percent": augment.name in ("crop", "delete", "mlm"),
        "data.augment.both": bool(augment.name),
        "data.augment.lexicon": augment.name == "synonym",
        "data.augment.mlm_model": augment.name == "mlm",
        "analysis.data": config.analysis.every > 0,
        "analysis.sentences": config.analysis.every > 0,
    }
    off |= {name for name, holds in conditions.items() if not holds}
    if not trains(config):
        off |= {name for name in given if name.startswith(("data.", "objective.", "views.", "train."))}
        off -= {"train.epochs", "train.dtype", "train.matmul_precision", "data.max_length"}
    return [f"{name}={given[name]}" for name in sorted(off) if given[name] != default[name]]
