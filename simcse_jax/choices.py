"""The names that fields and options choose from, with what they mean. Imports nothing of the package."""

from typing import NamedTuple

TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICKRelatedness")  # of similarity
TRANSFER = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")  # the order of SimCSE's Table E.1

METRICS = {"spearman": "Spearman", "pearson": "Pearson"}  # of similarity, with their titles
AGGREGATIONS = ("all", "mean", "wmean")  # of the subsets of a similarity task; see sts.py
PROTOCOLS = {  # SentEval's classifiers of transfer tasks; see transfer.py
    "sklearn": "logistic regression, as with scikit-learn",
    "pytorch": "a softmax trained until held-out accuracy stops rising, SimCSE's protocol",
    "pytorch_fast": "the same with the settings that SimCSE's code has for development",
}
GRIDS = {  # the regularizations that they try
    "sklearn": tuple(2.0**power for power in range(-2, 4)),  # C
    "pytorch": tuple(10.0**power for power in range(-5, -1)),  # the L2 penalty
    "pytorch_fast": tuple(10.0**power for power in range(-5, -1)),
}
POSTPROCESSING = ("whitening", "flow")  # see postprocess.py
DEVELOPMENT = {"stsb": "STSBenchmark", "sickr": "SICKRelatedness"}  # sets of these tasks that choose a checkpoint
GEOMETRY = ("alignment", "uniformity")
EXTRA = {  # of a run, scored at the end where asked for; with the names of its numbers. See training/evaluation.py
    "stsb_dev": ("stsb_dev",),
    "sickr_dev": ("sickr_dev",),
    "geometry": GEOMETRY,
}
RETRIEVAL = "retrieval"  # tasks with data of their own: retrieval:FOLDER
MTEB = "mteb"  # tasks of the package mteb: mteb:NAME
RANKINGS = {"ndcg": "nDCG", "mrr": "MRR", "map": "MAP", "recall": "Recall"}  # its kinds of measure, with their titles
CUTOFFS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)  # ranks at which they end
MEASURES = {f"{name}@{cutoff}": f"{title}@{cutoff}" for name, title in RANKINGS.items() for cutoff in CUTOFFS}
USUAL = ("ndcg@10", "mrr@10", "map@100", "recall@100")  # the measures that are the default
STORAGES = ("float32", "float16", "bfloat16")  # types that the embeddings of documents may be rounded to

DTYPES = ("float32", "bfloat16")  # for the encoder's matrix products
WIDEST_CONVOLUTION, MOST_CHANNELS = 99, 1 << 16
CONVOLUTION_ACTIVATIONS = {"none": "as released, and in sentence-transformers", "relu": "as in the paper"}
POOLERS = {  # see pooling.py
    "cls": "the last layer's first token, then the head if the model has one",
    "cls_before_pooler": "the last layer's first token, without a head",
    "avg": "the mean of the last layer over the tokens",
    "avg_top2": "the mean of the last two layers over the tokens",
    "avg_first_last": "the mean of layer 1 and the last layer over the tokens",
    "avg_static_last": "the mean of the embedding layer, layer 0, and the last layer over the tokens",
    "max": "the maximum of the last layer over the tokens",
    "avg_sqrt": "the sum of the last layer over the tokens, divided by the square root of their number",
    "avg_weighted": "the mean of the last layer over the tokens, the n-th of them with weight n",
    "last": "the last layer's last token",
    "mask_token": "the last layer's mask token, that of model.template",
}
OTHER_NAMES = {"mean": "avg"}  # of poolers, where a name is given; what is written has ours
SEVERAL_LAYERS = ("avg_top2", "avg_first_last", "avg_static_last")  # those that read more than the last layer
MASK_TOKEN = "mask_token"  # the pooler that must know which tokens are mask tokens
NORMS = {  # batch norms after a projector's last layer
    "plain": "without scale and shift",
    "affine": "with scale and shift",
    "none": "no norm",
}
STATISTICS = {"together": "over the views of a pair together", "each": "over each view alone"}  # of a projector's norms
CHANGES = {  # of a sentence in the embedding layer (models/changes.py)
    "none": "the sentence as it is",
    "shuffled": "positions permuted among its tokens",
    "cutoff": "some columns zero in all of its tokens",
}
MASKED = "masked"  # a change of its token ids, which a language model then guesses in the same pass
REPEATED = "repeated"  # a change of a positive's token ids: some of them stand there twice
PLACE, MASK = "[X]", "[MASK]"  # in the text of a template: the place of the sentence, and the mask token
DENOISING = {  # what is taken from the embedding of a sentence in a template
    "none": "nothing",
    "paper": "that of the template alone, whose tokens keep the positions that they have around the sentence",
    "released": "the same, but positions count from the table's first row, which RoBERTa's do not otherwise",
}
REPETITIONS = {  # how many tokens of a sentence of N, [CLS] and [SEP] not counted; each number is as likely
    "paper": "0 to max(2, ⌊rate · N⌋)",
    "released": "0 to min(10, ⌊rate · (N + 2)⌋) - 1",
}

LABELS = ("entailment", "neutral", "contradiction")  # 0, 1 and 2, as Hugging Face's snli and mnli have them
SPANS = "spans"  # positives that are spans of documents
POSITIVES = (*LABELS, "all", "next_sentence", "next_3_sentences", SPANS)  # where they come from, if not from a column
AUGMENTATIONS = ("crop", "delete", "delete_one", "synonym", "mlm")  # kinds of changed copies; see data/augment.py
ROLES = ("anchor", "positive")  # of the first column of data, and of all others


class Head(NamedTuple):
    """The meaning of a value of `model.mlp`."""

    trained: bool  # the model has a head in training
    scored: bool  # the model has a head at test time


HEADS = {"train": Head(True, False), "always": Head(True, True), "none": Head(False, False)}  # by `model.mlp`


def pooler_of(name: str) -> str:
    """Our name for a pooler under another name; any other name unchanged."""
    return OTHER_NAMES.get(name, name)
