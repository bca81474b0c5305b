"""The fields of a run and their defaults. Every recipe in `configs/` starts from `default_config()`."""

from ml_collections import config_dict

from simcse_jax.evaluation.tasks import TASKS

DTYPES = ("float32", "bfloat16")
PRECISIONS = ("highest", "high", "default")
POLICIES = ("independent", "shared", "off", "noisy", "mean")  # see views.py
READINGS = ("paper", "released")  # of objective.dimension_wise
POSTPROCESSING = ("whitening", "flow")  # see evaluation/postprocess.py
CONTRASTIVE = ("info_nce", "off_dropout", "dimension_wise", "barlow_twins")  # these take a pair for positive
MOST_ARTIFICIAL = 100_000  # rows of objective.barlow_twins
FEWEST_ANALYSED = 10  # sentences of analysis.sentences


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


def flatten(config: config_dict.ConfigDict, prefix: str = "") -> dict[str, object]:
    """All fields by dotted name."""
    fields = {}
    for name, value in config.items():
        if isinstance(value, config_dict.ConfigDict):
            fields |= flatten(value, f"{prefix}{name}.")
        else:
            fields[prefix + name] = value
    return fields


def trains(config: config_dict.ConfigDict) -> bool:
    """Whether there is an update to do; without one the model that it starts from is scored."""
    return bool(config.train.max_steps or config.train.epochs)
