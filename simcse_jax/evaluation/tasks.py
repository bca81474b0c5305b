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
EXTRA = ("stsb_dev", "sickr_dev", "geometry")  # of a run, scored at the end where asked for; see training/evaluation.py
