"""The names of tasks, metrics and methods. Imports nothing."""

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
