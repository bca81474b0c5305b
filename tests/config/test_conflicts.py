import pytest
from support.configs import parse, refused

TENSION = "objective.info_nce.weight=0 objective.contrastive_tension.weight=1"
TOGETHER = [  # the field that is named, values that do not go together
    ("model.mlp", "model.pooler=cls_before_pooler"),
    ("projector.objectives", "projector.widths=2D,D"),
    ("model.generator", "objective.replaced_token_detection.weight=1"),
    ("train.milestones", "train.schedule=steps"),
    ("parallel.coordinator", "parallel.processes=2"),
    ("parallel.process_id", "parallel.processes=2 parallel.coordinator=host:1 parallel.process_id=2"),
    ("objective", "objective.info_nce.weight=0"),
    ("data.augment.lexicon", "data.augment.name=synonym"),
    ("data.augment.mlm_model", "data.augment.name=mlm"),
    ("data.columns.anchor", "data.columns.neutral=c"),
    ("data.columns.anchor", "data.columns.positive=b"),
    ("eval.postprocess_data", "eval.postprocess=flow"),
    ("train.batch_size", f"{TENSION} train.batch_size=60"),
    ("data.positives", f"{TENSION} data.positives=all"),
    ("data.augment.name", f"{TENSION} data.augment.name=crop"),
    ("model.template", "model.template=A[X]. model.pooler=mask_token"),
    ("views.positive_template", "views.positive_template=A[X]. eval.pooler=mask_token model.mlp=none"),
    ("views.positive_template", "views.positive_template=A[X]. views.positive_change=cutoff"),
    ("views.positive_change", "model.template=A[X]. views.positive_change=repeated"),
    ("views.anchor_change", "views.anchor_change=masked model.pooler=mask_token objective.mlm.weight=1"),
    ("data.augment.name", "data.augment.name=crop data.positives=all"),
    ("objective.softmax_nli.weight", "objective.softmax_nli.weight=1 data.augment.name=crop"),
    ("data.positives", "objective.softmax_nli.weight=1 data.positives=neutral"),
    ("data.positives", "objective.supcon.weight=1 data.positives=all"),
    ("data.augment.name", "objective.supcon.weight=1 data.augment.name=crop"),
    ("data.columns.positive", "objective.supcon.weight=1 data.columns.anchor=a data.columns.positive=b"),
    ("data.folds", "eval.data= data.folds=5 objective.softmax_nli.weight=1 objective.info_nce.weight=0"),
    ("objective.info_nce.weight", "objective.softmax_nli.weight=1"),
    ("objective.info_nce.weight", "objective.contrastive_tension.weight=1"),
    ("data.mixed", "data.mixed=True projector.widths=D projector.objectives=info_nce"),
    ("data.mixed", "data.mixed=True objective.replaced_token_detection.weight=1 model.generator=x"),
    ("data.spans.positives", "data.positives=spans objective.replaced_token_detection.weight=1 model.generator=x"),
    ("analysis.data", "analysis.every=10 eval.data="),
    ("train.patience", "train.patience=2 eval.data="),
    ("model.lora.init_from", "model.lora.init_from=folder"),
    ("data.folds", "eval.data= data.folds=5 data.held_out=10"),
    ("data.folds", "data.folds=5"),  # eval.data is there
    ("data.folds", "eval.data= data.folds=5 data.weights=1,2"),
    ("data.folds", "eval.data= data.folds=5 data.mixed=True"),
    ("data.folds", "eval.data= data.folds=5 data.positives=all"),
    ("eval.pooler", "eval.pooler=avg model.mlp=always"),
    ("eval.development_pooler", "eval.development_pooler=avg model.mlp=always"),
    *(("matryoshka.weights", f"matryoshka.dimensions=64 matryoshka.weights={given}")
      for given in ("-1", "0", "1e39", "1e-46", "1,1")),
]  # fmt: skip


@pytest.mark.parametrize(("field", "given"), TOGETHER, ids=[given for _, given in TOGETHER])
def test_fields_that_do_not_go_together_are_refused_by_the_name_of_one(field, given):
    assert refused(*given.split()) == field


def test_fields_that_go_together():
    alone, whitened = "objective.info_nce.weight=0 objective.mlm.weight=1", "eval.postprocess=whitening"
    for given in (f"{alone} model.mlp=none", f"{alone} model.mlp=train", "objective.mlm.weight=1 model.mlp=always",
                  "eval.data= data.folds=5 objective.supcon.weight=1",
                  "eval.pooler=avg model.mlp=train", "eval.pooler=avg model.mlp=none",
                  "eval.pooler=cls model.mlp=always", "model.lora.init_from=folder model.lora.rank=4"):  # fmt: skip
        parse(*given.split())
    parse(whitened, "eval.postprocess_data=target", "eval.postprocess_dimensions=256", "train.epochs=0")
