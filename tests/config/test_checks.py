import re

import pytest
from support import ROOT

from simcse_jax.config import flags
from simcse_jax.config.checks import check_type, ineffective, validate
from simcse_jax.config.fields import default_config, trains
from simcse_jax.errors import UserError

CONFIG = f"--config={ROOT}/configs/unsup_bert.py"


def parse(*args):
    config, workdir = flags.parse([CONFIG, "--workdir=w", *args])
    validate(config)
    return config, workdir


MISTAKES = {
    "--config.analysis.every=-1": "config.analysis.every=-1: must be 0 or more",
    "--config.analysis.sentences=9": "config.analysis.sentences=9: must be 10 or more",
    "--config.model.pooler=min": "config.model.pooler='min': must be one of cls,",
    "--config.model.mlp=maybe": "must be one of train, always, none",
    "--config.model.pooler=cls_before_pooler": "never has a head",
    "--config.model.dropout=1.0": "below 1",
    "--config.model.num_layers=-1": "0 or more",
    "--config.train.batch_size=1": "2 or more",
    "--config.projector.widths=2D,E": "config.projector.widths='2D,E': must be empty, or widths such as 2D,D",
    "--config.projector.widths=2D,D": "config.projector.objectives: must name the objectives",
    "--config.projector.objectives=info_nc": "config.projector.objectives: no objective 'info_nc'",
    "--config.projector.objectives=mlm": "config.projector.objectives: mlm sees no projected embeddings",
    "--config.projector.objectives=jensen_shannon": "config.projector.objectives: jensen_shannon sees no projected",
    "--config.projector.last_norm=batch": "must be one of plain, affine, none",
    "--config.projector.statistics=all": "must be together or each",
    "--config.objective.replaced_token_detection.weight=1": "config.model.generator: must be set for",
    "--config.objective.replaced_token_detection.masking_rate=0": "above 0 and at most 1",
    "--config.train.optimizer=adam": "must be adamw or rmsprop",
    "--config.train.schedule=cosine": "must be one of linear, constant, steps, slanted_triangular",
    "--config.train.schedule=steps": "config.train.milestones: must be set for train.schedule=steps",
    "--config.train.milestones=500": "config.train.milestones='500': must be empty, or STEP:FACTOR,STEP:FACTOR",
    "--config.train.milestones=500:0.8,500:0.6": "rising steps",
    "--config.train.milestones=0:0.8": "rising steps from 1",
    "--config.train.milestones=5:-1": "factors of 0 or more",
    "--config.train.milestones=5:nan": "factors of 0 or more",
    "--config.train.warmup=1.5": "at most 1.0",
    "--config.train.epsilon=0": "above 0",
    "--config.train.patience=-1": "0 or more",
    "--config.eval.pooler=min": "config.eval.pooler='min': must be empty or one of cls,",
    "--config.eval.development=mrpc": "config.eval.development='mrpc': must be one of stsb, sickr, retrieval",
    "--config.train.dtype=float16": "must be one of float32, bfloat16",
    "--config.train.mu_dtype=float16": "must be one of float32, bfloat16",
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
    "--config.objective.barlow_twins.artificial=-1": "0 or more",
    "--config.objective.barlow_twins.artificial=100000000": "at most 100000",
    "--config.objective.off_dropout.m=0": "above 0",
    "--config.eval.tasks=STS12,STS12": "STS12 is given twice",
    "--config.objective.info_nce.similarity=euclidean": "must be cosine or dot",
    "--config.objective.dimension_wise.reading=mine": "must be paper or released",
    "--config.objective.off_dropout.reading=mine": "must be paper or released",
    "--config.objective.barlow_twins.reading=mine": "must be paper or released",
    "--config.views.positive=offf": "views.positive='offf': must be one of independent, shared, off, noisy, mean",
    "--config.views.negative=none": "config.views.negative='none': must be one of independent",
    "--config.views.anchor_change=cut": "views.anchor_change='cut': must be one of none, shuffled, cutoff",
    "--config.views.positive_change=order": "must be one of none, shuffled, cutoff",
    "--config.views.cutoff=1": "config.views.cutoff=1.0: must be at least 0 and below 1",
    "--config.views.positive_dropout=-0.5": "config.views.positive_dropout=-0.5: must be at least 0 and below 1, or -1",
    "--config.objective.info_nce.negatives=all": "must be one of other, both, positives",
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
    "--config.eval.every=-1": "0 or more",
    "--config.train.epochs=-1": "0 or more",
    "--config.eval.postprocess=whitning": "config.eval.postprocess: no method 'whitning'; the nearest one is whitening",
    "--config.eval.postprocess=flow": "config.eval.postprocess_data: must be set for flow: a file of",
    "--config.eval.postprocess_data=target": "config.eval.postprocess_data=target: has no effect without config",
    "--config.eval.postprocess_dimensions=8": "config.eval.postprocess_dimensions=8: must be 0, or above it for config",
    "--config.eval.postprocess_dimensions=-1": "0 or more",
    "--config.data.columns.positive=b": "columns.anchor: must be set too",
    "--config.seed=-1": "from 0",
    "--config.data.train=": "data.train",
    "--config.model.template=no place": "config.model.template='no place': must be empty, or a text around [X]",
    "--config.model.template=[X]": "must be empty, or a text around [X]",
    "--config.views.positive_template=[X] is [X]": "must be empty, or a text around [X], which it has once",
    "--config.views.denoising=mine": "must be one of none, paper, released",
}


@pytest.mark.parametrize("argument", MISTAKES)
def test_mistakes_are_reported_in_one_line(argument):
    with pytest.raises(UserError, match=re.escape(MISTAKES[argument])) as caught:
        parse(argument)
    assert "\n" not in str(caught.value)


def test_fields_that_do_not_go_together():
    tension = ("--config.objective.info_nce.weight=0", "--config.objective.contrastive_tension.weight=1")
    for argument, message in (
        ("train.batch_size=60", "batch_size=60: must be divisible by 8, a positive pair and its negatives"),
        ("data.positives=all", "contrastive_tension makes its own pairs; it must be empty"),
        ("data.augment.name=crop", "contrastive_tension makes its own pairs; it must be empty"),
    ):
        with pytest.raises(UserError, match=message):
            parse(*tension, f"--config.{argument}")
    for arguments, message in (
        (
            ("model.template=A [X].", "model.pooler=mask_token"),
            r"config.model.template='A \[X\].': has no \[MASK\], which",
        ),
        (
            ("views.positive_template=A [X].", "eval.pooler=mask_token", "model.mlp=none"),
            "has no .MASK., which the pooler",
        ),
        (("views.positive_template=A [X].", "views.positive_change=cutoff"), "not with views.positive_change='cutoff'"),
        (("model.template=A [X].", "views.positive_change=repeated"), "repeats words of model.template too"),
        (
            ("views.anchor_change=masked", "model.pooler=mask_token", "objective.mlm.weight=1"),
            "config.views.anchor_change='masked': the pooler mask_token would read masked words",
        ),
    ):
        with pytest.raises(UserError, match=message):
            parse(*(f"--config.{argument}" for argument in arguments))
    twice = ("--config.model.dual_encoder=True", "--config.eval.encoder=better")
    with pytest.raises(UserError, match=r"objective\.mlm trains the language model of the anchors' encoder"):
        parse(*twice, "--config.objective.mlm.weight=0.1")
    for first, second, message in (
        ("data.augment.name=crop", "data.positives=all", "set one of them"),
        ("objective.softmax_nli.weight=1", "data.augment.name=crop", "needs labelled pairs"),
        ("objective.softmax_nli.weight=1", "data.positives=neutral", "must be empty or all, for objective.softmax_nli"),
        ("objective.softmax_nli.weight=1", "seed=1", "config.objective.info_nce.weight: next to softmax_nli"),
        (
            "objective.contrastive_tension.weight=1",
            "seed=1",
            "info_nce.weight: next to contrastive_tension",
        ),
        ("data.mixed=True", "projector.widths=D", "batch norm of the projector would count"),
        ("data.mixed=True", "objective.replaced_token_detection.weight=1", "reads both sentences of every example"),
        (
            "data.positives=spans",
            "objective.replaced_token_detection.weight=1",
            "the mean of several is none; set it to 1",
        ),
        ("analysis.every=10", "eval.data=", "config.analysis.data: must be set, a file of sentences"),
    ):
        others = ("--config.projector.objectives=info_nce", "--config.model.generator=x")  # alone they do nothing
        with pytest.raises(UserError, match=message):
            parse(*others, f"--config.{first}", f"--config.{second}")


def test_post_processing_and_runs_that_train_nothing():
    whitening = ("--config.eval.postprocess=whitening", "--config.eval.postprocess_data=target")
    config, _ = parse(*whitening, "--config.eval.postprocess_dimensions=256", "--config.train.epochs=0")
    assert not trains(config)
    assert trains(parse("--config.train.epochs=0", "--config.train.max_steps=1")[0])
    flow = ("--config.eval.postprocess=flow", "--config.eval.postprocess_data=target")
    with pytest.raises(UserError, match="dimensions=2: must be 0"):
        parse(*flow, "--config.eval.postprocess_dimensions=2")


def test_fields_without_effect_are_named():
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
    config, _ = parse("--config.views.positive=off", "--config.views.positive_dropout=0.3", "--config.views.cutoff=0.5")
    assert ineffective(config) == ["views.cutoff=0.5", "views.positive_dropout=0.3"]
    config, _ = parse("--config.eval.encoder=better", "--config.objective.contrastive_tension.negatives=3")
    assert ineffective(config) == ["eval.encoder=better", "objective.contrastive_tension.negatives=3"]
    config, _ = parse("--config.views.positive_change=cutoff", "--config.views.cutoff=0.5")
    assert ineffective(config) == []
    config, _ = parse(
        "--config.objective.off_dropout.weight=1", "--config.views.negative=noisy", "--config.views.noise=5",
        "--config.data.augment.name=crop", "--config.data.augment.percent=20",
        "--config.objective.info_nce.weight=0",
    )  # fmt: skip
    assert ineffective(config) == []


def test_more_fields_without_effect_are_named(tmp_path):
    (tmp_path / "dev.tsv").write_text("5\ta\tb\n")
    config, _ = parse("--config.eval.tasks=STS12", f"--config.eval.data={tmp_path / 'dev.tsv'}")
    assert ineffective(config) == [f"eval.tasks={('STS12',)}"]
    config, _ = parse(
        "--config.eval.transfer_protocol=pytorch",
        "--config.parallel.process_id=1",
        f"--config.analysis.data={tmp_path / 'dev.tsv'}",
        "--config.analysis.every=125",
        "--config.analysis.split=test",
    )
    found = ["analysis.split=test", "eval.transfer_protocol=pytorch", "parallel.process_id=1"]
    assert ineffective(config) == found
    config, _ = parse("--config.eval.transfer_protocol=pytorch", "--config.eval.transfer=True")
    assert ineffective(config) == []
    lengths = ["--config.data.max_length=20", "--config.data.lengths.anchor=10", "--config.data.lengths.positive=30"]
    assert ineffective(parse(*lengths[:2])[0]) == []
    assert ineffective(parse(*lengths)[0]) == ["data.max_length=20"]


def test_a_language_model_alone_trains_no_head_that_is_kept():
    alone = ("--config.objective.info_nce.weight=0", "--config.objective.mlm.weight=1")
    for mlp in ("none", "train"):
        parse(*alone, f"--config.model.mlp={mlp}")
    parse("--config.objective.mlm.weight=1", "--config.model.mlp=always")
    for fields, message in (
        (["--config.model.mlp=always"], "config.model.mlp='always': objective.mlm alone does not train what"),
        (
            ["--config.model.mlp=none", "--config.model.convolutions.widths=1,3"],
            "widths=1,3: objective.mlm alone",
        ),
    ):
        with pytest.raises(UserError, match=message):
            parse(*alone, *fields)


def test_fields_of_projectors_and_generators_that_do_not_count():
    config, _ = parse("--config.model.generator=x", "--config.projector.objectives=barlow_twins")
    assert ineffective(config) == ["model.generator=x", "projector.objectives=('barlow_twins',)"]
    used = ("--config.projector.objectives=info_nce", "--config.projector.widths=2D,D", "--config.projector.bias=True")
    config, _ = parse(*used)
    assert ineffective(config) == ["projector.bias=True"]  # the last norm takes it away
    assert ineffective(parse(*used, "--config.projector.last_norm=none")[0]) == []


def test_a_head_at_test_time_belongs_to_its_pooler():
    for head in ("train", "none"):
        parse("--config.eval.pooler=avg", f"--config.model.mlp={head}")
    parse("--config.eval.pooler=cls", "--config.model.mlp=always")
    with pytest.raises(
        UserError, match=r"config.eval.pooler='avg': the head of model.mlp='always' is trained on .*cls"
    ):
        parse("--config.eval.pooler=avg", "--config.model.mlp=always")
    with pytest.raises(
        UserError, match=r"config.eval.development_pooler='avg': the head .* eval.development_pooler empty"
    ):
        parse("--config.eval.development_pooler=avg", "--config.model.mlp=always")


def test_the_development_set_of_a_file_is_the_file(tmp_path):
    (tmp_path / "dev.tsv").touch()
    for data, expected in ((tmp_path, []), (tmp_path / "dev.tsv", ["eval.development=sickr"])):
        config, _ = parse(f"--config.eval.data={data}", "--config.eval.development=sickr")
        assert ineffective(config) == expected


def test_fields_of_optimizers_and_schedules_that_do_not_count():
    given = ("--config.train.bias_correction=False", "--config.train.milestones=5:0.5")
    given += ("--config.train.mu_dtype=bfloat16",)
    config, _ = parse(*given, "--config.train.optimizer=rmsprop")
    without_effect = ["train.bias_correction=False", "train.milestones=5:0.5", "train.mu_dtype=bfloat16"]
    assert ineffective(config) == without_effect
    assert ineffective(parse(*given, "--config.train.schedule=steps")[0]) == []


def test_a_run_that_trains_nothing_names_fields_without_effect():
    config, _ = parse("--config.train.epochs=0", "--config.train.learning_rate=1e-3", "--config.views.positive=shared")
    assert {"train.learning_rate=0.001", "views.positive=shared"} <= set(ineffective(config))
    assert not [field for field in ineffective(config) if field.startswith("train.epochs")]


def test_an_integer_is_as_good_as_a_float_and_nothing_else_is():
    check_type("f", 1, float)
    for value, expected in ((True, float), (1.0, int), (True, int), ("1", int), (1, str)):
        with pytest.raises(UserError, match=f"^f={value!r}: must be of type {expected.__name__}$"):
            check_type("f", value, expected)


def test_fields_that_are_too_many_or_missing_are_named():
    config = default_config()
    config.train.epoch = 1
    with pytest.raises(UserError, match=r"config.train.epoch: no such field; the nearest one is config.train.epochs"):
        validate(config)
    config = default_config()
    del config.train["epochs"]
    with pytest.raises(UserError, match=r"config.train.epochs is missing; start a config from"):
        validate(config)
    config = default_config()
    config.sweep = {}
    with pytest.raises(UserError, match=r"run it with simcse-jax sweep"):
        validate(config)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("train.max_steps", 3_000_000_000, "must be at most 2,147,483,647"),
        ("train.max_steps", 10**20, "must be at most 2,147,483,647"),
        ("train.batch_size", 10**12, "must be at most 2,147,483,647"),
        ("train.log_every", 2**63, "must be at most"),
        ("views.samples", 10**9, "must be at most 1000"),
        ("seed", -1, "from 0 to 2³² - 1"),
        ("seed", 2**64, "from 0 to 2³² - 1"),
        ("train.learning_rate", float("nan"), "above 0"),
        ("train.learning_rate", 1e39, "float32"),
        ("train.weight_decay", 1e39, "float32"),
        ("objective.info_nce.temperature", 1e-46, "float32"),
        ("data.augment.lexicon", "a\udcff", "is not UTF-8"),
    ],
)
def test_numbers_that_no_device_holds_and_texts_that_no_file_holds_are_refused(field, value, says):
    config = default_config()
    *path, last = field.split(".")
    section = config
    for part in path:
        section = section[part]
    section[last] = value
    with pytest.raises(UserError, match=f"config.{field}=.*{re.escape(says)}"):
        validate(config)


def partial_config(**fields):
    config = default_config()
    config.update_from_flattened_dict({f"model.{name.replace('__', '.')}": value for name, value in fields.items()})
    return config


def test_an_adapter_needs_a_rank():
    validate(partial_config(lora__init_from="folder", lora__rank=4))
    with pytest.raises(UserError, match=r"config\.model\.lora\.init_from=folder: model\.lora\.rank is 0"):
        validate(partial_config(lora__init_from="folder"))


@pytest.mark.parametrize(("name", "value"), [("lora.rank", -1), ("lora.alpha", 0.0), ("lora.dropout", 1.0)])
def test_bounds_of_lora(name, value):
    config = default_config()
    config.update_from_flattened_dict({f"model.{name}": value})
    with pytest.raises(UserError, match=f"config.model.{name}={value}: must be"):
        validate(config)


def test_what_has_no_effect_without_lora_is_said():
    without = ineffective(partial_config(lora__alpha=8.0, lora__targets=("query",), lora__dropout=0.1))
    assert {line.partition("=")[0] for line in without} == {f"model.lora.{x}" for x in ("alpha", "targets", "dropout")}
    assert not ineffective(partial_config(freeze__embeddings=True, freeze__layers=3))
    assert ineffective(partial_config(freeze__embeddings=True, lora__rank=4)) == ["model.freeze.embeddings=True"]
