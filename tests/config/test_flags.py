import re

import pytest
from support import ROOT

from simcse_jax.config import flags
from simcse_jax.config.checks import ineffective, validate
from simcse_jax.config.fields import READINGS, default_config, flatten, trains
from simcse_jax.errors import UserError

CONFIG = f"--config={ROOT}/configs/unsup_bert.py"


def parse(*args):
    config, workdir = flags.parse([CONFIG, "--workdir=w", *args])
    validate(config)
    return config, workdir


def test_fields_are_overridden_with_their_types():
    config, workdir = parse(
        "--config.train.learning_rate=1", "--config.eval.tasks=STS12,STSBenchmark", "--config.seed", "7"
    )
    assert workdir == "w"
    assert (config.train.learning_rate, config.seed, config.eval.tasks) == (1.0, 7, ("STS12", "STSBenchmark"))
    assert isinstance(config.train.learning_rate, float)
    assert parse("--config.eval.data=")[0].eval.data == ""


RECIPES = {  # SimCSE, Table A.1, and section 6.3 for the head
    "unsup_bert": ("bert-base-uncased", 64, 3e-5, 1, "train"),
    "unsup_bert.py:large": ("bert-large-uncased", 64, 1e-5, 1, "train"),
    "unsup_roberta": ("roberta-base", 512, 1e-5, 1, "train"),
    "unsup_roberta.py:large": ("roberta-large", 512, 3e-5, 1, "train"),
    "sup_bert": ("bert-base-uncased", 512, 5e-5, 3, "always"),
    "sup_bert.py:large": ("bert-large-uncased", 512, 1e-5, 3, "always"),
    "sup_roberta": ("roberta-base", 512, 5e-5, 3, "always"),
    "sup_roberta.py:large": ("roberta-large", 512, 1e-5, 3, "always"),
}


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_have_the_paper_s_hyper_parameters(name):
    path = f"{ROOT}/configs/{name}" + ("" if ".py" in name else ".py")
    config, _ = flags.parse([f"--config={path}", "--workdir=w"])
    validate(config)
    train = config.train
    assert (config.model.init_from, train.batch_size, train.learning_rate, train.epochs, config.model.mlp) == RECIPES[
        name
    ]
    assert (config.objective.info_nce.temperature, config.data.max_length, config.eval.every) == (0.05, 32, 250)


def test_no_default_is_none():
    assert None not in flatten(default_config()).values()


MISTAKES = {
    "--config.analysis.every=-1": "config.analysis.every=-1: must be 0 or more",
    "--config.analysis.sentences=9": "config.analysis.sentences=9: must be 10 or more",
    "--config.analysis.evry=9": "nearest one is --config.analysis.every",
    "--config.seeed=1": "--config.seeed: no such field; the nearest one is --config.seed",
    "--config.model.pooller=cls": "nearest one is --config.model.pooler",
    "--config.modl.pooler=cls": "nearest one is --config.model.pooler",
    "--config.objective.infonce.weight=1": "nearest one is --config.objective.info_nce.weight",
    "--config.seed=abc": "--config.seed=abc",
    "--config.train.batch_size=1.5": "--config.train.batch_size=1.5",
    "--config.train.learning_rate=fast": "--config.train.learning_rate=fast",
    "--wrkdir=x": "wrkdir",
    "extra": "unknown argument 'extra'",
    "--config.model.pooler=min": "config.model.pooler='min': must be one of cls,",
    "--config.model.mlp=maybe": "must be one of train, always, none",
    "--config.model.pooler=cls_before_pooler": "never has a head",
    "--config.model.dropout=1.0": "below 1",
    "--config.model.num_layers=-1": "0 or more",
    "--config.train.batch_size=1": "2 or more",
    "--config.train.dtype=float16": "must be one of float32, bfloat16",
    "--config.train.matmul_precision=low": "must be one of highest, high, default",
    "--config.parallel.chunk_size=-1": "0 or more",
    "--config.parallel.processes=2": "config.parallel.coordinator='': must be HOST:PORT of process 0",
    "--config.train.learning_rate=0": "above 0",
    "--config.train.learning_rate=nan": "above 0",
    "--config.objective.info_nce.temperature=0": "above 0",
    "--config.objective.info_nce.temperature=-1": "above 0",
    "--config.objective.info_nce.weight=0": "nothing to train",
    "--config.objective.info_nce.hard_negative_weight=-1": "0 or more",
    "--config.objective.dimension_wise.weight=-0.1": "objective.dimension_wise.weight=-0.1: must be 0 or more",
    "--config.objective.off_dropout.temperature=0": "objective.off_dropout.temperature=0.0: must be above 0",
    "--config.objective.off_droput.weight=1": "nearest one is --config.objective.off_dropout.weight",
    "--config.objective.barlow_twins.artificial=-1": "0 or more",
    "--config.objective.barlow_twins.artificial=100000000": "at most 100000",
    "--config.objective.off_dropout.m=0": "above 0",
    "--config.eval.tasks=STS12,STS12": "STS12 comes twice",
    "--config.objective.info_nce.similarity=euclidean": "must be cosine or dot",
    "--config.objective.dimension_wise.reading=mine": "must be paper or released",
    "--config.views.positive=offf": "views.positive='offf': must be one of independent, shared, off, noisy, mean",
    "--config.views.negative=none": "config.views.negative='none': must be one of independent",
    "--config.views.samples=0": "1 or more",
    "--config.views.noise=-1": "0.0 or more",
    "--config.data.positives=entailed": "config.data.positives='entailed': must be empty or one of entailment,",
    "--config.data.subsample=-1": "0 or more",
    "--config.data.augment.name=swap": "must be empty or one of crop, delete, delete_one, synonym, mlm",
    "--config.data.augment.percent=100": "above 0 and below 100",
    "--config.data.augment.name=synonym": "config.data.augment.lexicon: must be set for data.augment.name=synonym",
    "--config.data.augment.name=mlm": "config.data.augment.mlm_model: must be set",
    "--config.data.columns.neutral=c": "columns.anchor: must be set too",
    "--config.eval.tasks=STS12,STSBench": "nearest one is STSBenchmark",
    "--config.eval.every=0": "1 or more",
    "--config.train.epochs=-1": "0 or more",
    "--config.eval.postprocess=whitning": "config.eval.postprocess: no method 'whitning'; the nearest one is whitening",
    "--config.eval.postprocess=flow": "config.eval.postprocess_data: must be set for flow: a file of",
    "--config.eval.postprocess_data=target": "config.eval.postprocess_data=target: has no use without config.eval.post",
    "--config.eval.postprocess_dimensions=8": "config.eval.postprocess_dimensions=8: must be 0, or above it for config",
    "--config.eval.postprocess_dimensions=-1": "0 or more",
    "--config.data.columns.positive=b": "columns.anchor: must be set too",
    "--config.seed=-1": "from 0",
    "--config.seed[0]=1": "no such field",
    "--config.data.train=": "data.train",
}


@pytest.mark.parametrize("argument", MISTAKES)
def test_mistakes_are_told_in_one_line(argument):
    with pytest.raises(UserError, match=re.escape(MISTAKES[argument])) as caught:
        parse(argument)
    assert "\n" not in str(caught.value)


def test_fields_that_do_not_go_together():
    for first, second, message in (
        ("data.augment.name=crop", "data.positives=all", "set one of them"),
        ("objective.softmax_nli.weight=1", "data.augment.name=crop", "needs labelled pairs"),
        ("objective.softmax_nli.weight=1", "data.positives=neutral", "must be all, for objective.softmax_nli"),
        ("objective.softmax_nli.weight=1", "seed=1", "config.objective.info_nce.weight: beside softmax_nli"),
        ("analysis.every=10", "eval.data=", "config.analysis.data: must be set, a file of sentences"),
    ):
        with pytest.raises(UserError, match=message):
            parse(f"--config.{first}", f"--config.{second}")


def test_post_processing_and_runs_that_train_nothing():
    whitening = ("--config.eval.postprocess=whitening", "--config.eval.postprocess_data=target")
    config, _ = parse(*whitening, "--config.eval.postprocess_dimensions=256", "--config.train.epochs=0")
    assert not trains(config)
    assert trains(parse("--config.train.epochs=0", "--config.train.max_steps=1")[0])
    flow = ("--config.eval.postprocess=flow", "--config.eval.postprocess_data=target")
    with pytest.raises(UserError, match="dimensions=2: must be 0"):
        parse(*flow, "--config.eval.postprocess_dimensions=2")


def test_what_counts_for_nothing_is_named():
    config, _ = parse()
    assert ineffective(config) == []
    config, _ = parse(
        "--config.views.negative=noisy", "--config.views.noise=5", "--config.objective.off_dropout.m=0.5",
        "--config.objective.dimension_wise.temperature=1", "--config.data.augment.percent=20",
        "--config.views.positive=mean", "--config.views.samples=3", "--config.objective.info_nce.temperature=1",
    )  # fmt: skip
    assert ineffective(config) == [
        "data.augment.percent=20.0",
        "objective.dimension_wise.temperature=1.0",
        "objective.off_dropout.m=0.5",
        "views.negative=noisy",
        "views.noise=5.0",
    ]
    config, _ = parse(
        "--config.objective.off_dropout.weight=1", "--config.views.negative=noisy", "--config.views.noise=5",
        "--config.data.augment.name=crop", "--config.data.augment.percent=20",
    )  # fmt: skip
    assert ineffective(config) == []


def test_names_are_those_of_the_code():
    from simcse_jax.objectives import dimension_wise
    from simcse_jax.objectives.registry import OBJECTIVES

    assert READINGS == dimension_wise.READINGS
    assert set(default_config().objective) == set(OBJECTIVES)


def test_mistakes_with_the_config_file_itself(tmp_path):
    (tmp_path / "broken.py").write_text("def get_config(:\n")
    (tmp_path / "nothing.py").write_text("def get_config():\n    pass\n")
    (tmp_path / "old.py").write_text(
        "from simcse_jax.config import default_config\n"
        "def get_config():\n    c = default_config()\n    c.sede = 1\n    return c\n"
    )
    (tmp_path / "none.py").write_text(
        "from simcse_jax.config import default_config\n"
        "def get_config():\n    c = default_config()\n"
        "    c.train = {**c.train.to_dict(), 'epochs': None}\n    return c\n"
    )
    cases = {
        (): "--config FILE is missing",
        ("--config=none.py",): "none.py: no such config file",
        ("--config", "none.py"): "none.py: no such config file",
        (f"{CONFIG}:huge",): "no variant 'huge'.*base, large",
        (f"--config={ROOT}/configs/quickstart.py:large",): "quickstart.py",
        (f"--config={tmp_path}/broken.py",): "broken.py",
        (f"--config={tmp_path}/nothing.py",): "must return a ConfigDict",
        (f"--config={tmp_path}/old.py",): "config.sede: no such field; the nearest one is config.seed",
        ("--config.seed=1",): "--config FILE is missing",
        (f"--config={tmp_path}/none.py",): "config.train.epochs=None: must be of type int",
    }
    for args, message in cases.items():
        with pytest.raises(UserError, match=message):
            config, _ = flags.parse([*args, "--workdir=w"])
            validate(config)
    with pytest.raises(UserError, match="--workdir DIR is missing"):
        flags.parse([CONFIG])


def test_what_trains_nothing_names_what_has_no_effect():
    config, _ = parse("--config.train.epochs=0", "--config.train.learning_rate=1e-3", "--config.views.positive=shared")
    assert {"train.learning_rate=0.001", "views.positive=shared"} <= set(ineffective(config))
    assert not [field for field in ineffective(config) if field.startswith("train.epochs")]
