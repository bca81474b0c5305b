import pytest
from support.configs import config_of, parse, refused

from simcse_jax.config.checks import check_type, ineffective, validate
from simcse_jax.config.fields import default_config
from simcse_jax.errors import UserError

OUT_OF_RANGE = """
    analysis.every=-1 analysis.sentences=9 data.augment.name=swap data.augment.percent=100 data.positives=entailed
    data.subsample=-1 data.train= eval.development=mrpc eval.every=-1 eval.pooler=min eval.postprocess=whitning
    eval.postprocess_dimensions=-1 eval.tasks=STS12,STS12
    eval.tasks=STS12,STSBench model.dropout=1.0 model.mlp=maybe model.num_layers=-1 model.pooler=min
    model.template=[X] model.template=none objective.barlow_twins.artificial=-1
    objective.barlow_twins.artificial=100000000 objective.barlow_twins.reading=mine
    objective.dimension_wise.reading=mine objective.dimension_wise.weight=-0.1
    objective.info_nce.hard_negative_weight=-1 objective.info_nce.negatives=every
    objective.info_nce.margin=-0.5 objective.info_nce.margin=nan objective.info_nce.hardness=-1
    objective.info_nce.weighted=hard objective.triplet.margin=-1 objective.triplet.distance=l1
    objective.replaced_token_detection.reduction=max objective.info_nce.similarity=euclidean
    objective.info_nce.temperature=-1 objective.info_nce.temperature=0
    objective.off_dropout.m=0 objective.off_dropout.reading=mine objective.off_dropout.temperature=0
    objective.replaced_token_detection.masking_rate=0 parallel.chunk_size=-1 projector.last_norm=batch
    projector.objectives=info_nc projector.objectives=jensen_shannon projector.objectives=mlm
    projector.statistics=all projector.widths=2D,E seed=-1 train.batch_size=1 train.dtype=float16 train.epochs=-1
    train.epsilon=0 train.learning_rate=0 train.learning_rate=nan train.matmul_precision=low train.milestones=0:0.8
    train.milestones=5:-1 train.milestones=5:nan train.milestones=500 train.milestones=500:0.8,500:0.6
    train.mu_dtype=float16 train.optimizer=adam train.patience=-1 train.schedule=cosine train.warmup=1.5
    views.anchor_change=cut views.cutoff=1 views.denoising=mine views.negative=none views.noise=-1
    views.positive=offf views.positive_change=order views.positive_dropout=-0.5 views.positive_template=[X]is[X]
    views.samples=0 model.lora.rank=-1 model.lora.alpha=0 model.lora.dropout=1 data.batching=alone data.lengths.anchor=2
    eval.retrieval.measures= eval.retrieval.measures=ndcg@7 eval.retrieval.measures=mrr@5,mrr@5 eval.retrieval.split=all
    eval.retrieval.documents=-1 eval.retrieval.seed=-1 eval.retrieval.storage=int8 matryoshka.dimensions=64,64
    matryoshka.dimensions=6_4 matryoshka.weights=1 objective.gist.margin_kind=both objective.gist.temperature=0
    objective.margin_mse.similarity=l2 objective.distill_kl.temperature=0 projector.objectives=embedding_mse
"""


@pytest.mark.parametrize("given", OUT_OF_RANGE.split())
def test_a_value_out_of_its_range_is_refused_in_a_line_that_names_its_field(given):
    assert refused(given) == given.partition("=")[0]


UNUSED = [  # values, those of them that have no effect
    ("seed=42", ""),
    ("objective.info_nce.temperature=1 objective.off_dropout.m=0.5 data.augment.percent=20",
     "data.augment.percent objective.off_dropout.m"),
    ("objective.off_dropout.weight=1 objective.off_dropout.m=0.5 data.augment.name=crop data.augment.percent=20", ""),
    ("eval.encoder=better objective.contrastive_tension.negatives=3",
     "eval.encoder objective.contrastive_tension.negatives"),
    ("eval.transfer_protocol=pytorch", "eval.transfer_protocol"),
    ("eval.transfer_protocol=pytorch eval.transfer=True", ""),
    ("eval.data= eval.transfer=True eval.extra=stsb_dev", "eval.extra eval.transfer"),
    ("model.generator=x projector.objectives=barlow_twins", "model.generator projector.objectives"),
    ("train.bias_correction=False train.milestones=5:0.5 train.mu_dtype=bfloat16 train.optimizer=rmsprop",
     "train.bias_correction train.milestones train.mu_dtype"),
    ("train.bias_correction=False train.milestones=5:0.5 train.mu_dtype=bfloat16 train.schedule=steps", ""),
    ("model.lora.alpha=8 model.lora.targets=query model.lora.dropout=0.1",
     "model.lora.alpha model.lora.dropout model.lora.targets"),
    ("eval.postprocess_data=target eval.postprocess_dimensions=8",
     "eval.postprocess_data eval.postprocess_dimensions"),
    ("train.epochs=0 train.learning_rate=1e-3 views.positive=shared", "train.learning_rate views.positive"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "unused"), UNUSED, ids=[given for given, _ in UNUSED])
def test_fields_without_effect_are_named(given, unused):
    before = set(ineffective(parse("train.epochs=0"))) if "train.epochs=0" in given else set()
    found = [line for line in ineffective(parse(*given.split())) if line not in before]
    assert [line.partition("=")[0] for line in found] == unused.split()


def test_a_field_without_effect_comes_with_its_value():
    assert ineffective(parse("data.augment.percent=5")) == ["data.augment.percent=5.0"]


def test_an_integer_is_as_good_as_a_float_and_nothing_else_is_and_no_number_is_larger_than_devices_hold():
    check_type("f", 1, 0.5)
    number, whole, text = "a number, e.g. 0.5", "a whole number, e.g. 8", "a text, e.g. a"
    wrong = ((True, 0.5, number), (1.0, 8, whole), (True, 8, whole), ("1", 8, whole), (1, "a", text), (1, "", "a text"))
    for value, default, right in (*wrong, (1, True, "true or false"), ("a", (), "a list, with commas")):
        with pytest.raises(UserError, match=f"^f=.*: must be {right}$"):
            check_type("f", value, default)
    large = {"train.max_steps": 3_000_000_000, "train.log_every": 2**63, "views.samples": 10**9, "seed": 2**64}
    small = {"train.weight_decay": 1e39, "objective.info_nce.temperature": 1e-46, "data.augment.lexicon": "a\udcff"}
    for field, value in [("train.max_steps", 10**20), *large.items(), *small.items()]:
        with pytest.raises(UserError, match=f"^config.{field}="):
            validate(config_of(**{field: value}))


def test_fields_that_are_too_many_or_missing_are_named():
    config = default_config()
    config.train.epoch = 1
    with pytest.raises(UserError, match=r"config.train.epoch: .* config.train.epochs$"):
        validate(config)
    del config.train["epoch"], config.train["epochs"]
    with pytest.raises(UserError, match=r"config.train.epochs is missing"):
        validate(config)
    config.sweep = {}
    with pytest.raises(UserError, match=r"config.sweep: .*simcse-jax sweep"):
        validate(config)
