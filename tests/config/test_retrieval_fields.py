import pytest

from simcse_jax.config.checks import ineffective, validate
from simcse_jax.config.fields import default_config
from simcse_jax.errors import UserError


def config_of(**fields):
    config = default_config()
    config.update_from_flattened_dict({f"eval.{name.replace('__', '.')}": value for name, value in fields.items()})
    return config


CHOSEN = {"development": "retrieval", "retrieval__data": "folder"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"development": "retrieval"}, "eval.retrieval.data: must be set for eval.development=retrieval"),
        ({"retrieval__data": "folder", "data": ""}, "eval.development='stsb': eval.data is empty, so nothing would"),
        ({**CHOSEN, "postprocess": "whitening", "postprocess_data": "target"}, "eval.postprocess='whitening': is for"),
        ({"retrieval__measures": ()}, r"eval.retrieval.measures=\(\): must be one or more measures"),
        ({"retrieval__measures": ("ndcg@7",)}, "eval.retrieval.measures: no measure 'ndcg@7'; the nearest one is"),
        ({"retrieval__measures": ("mrr@5", "mrr@5")}, "eval.retrieval.measures: mrr@5 is given twice"),
        ({"retrieval__split": "all"}, "eval.retrieval.split='all': must be one of train, dev, test"),
        ({"retrieval__documents": -1}, "eval.retrieval.documents=-1: must be 0 or more"),
        ({"retrieval__seed": -1}, "eval.retrieval.seed=-1: must be 0 or more"),
        ({"retrieval__storage": "int8"}, "eval.retrieval.storage='int8': must be one of float32, float16, bfloat16"),
    ],
)
def test_what_does_not_go_together_is_refused(fields, message):
    with pytest.raises(UserError, match=f"config.{message}"):
        validate(config_of(**fields))


def test_it_goes_with_and_without_other_data():
    validate(config_of(**CHOSEN))
    validate(config_of(**CHOSEN, data=""))
    validate(config_of(retrieval__data="folder"))
    config = config_of(**CHOSEN, data="")
    config.train.patience = 3
    validate(config)


def test_what_has_no_effect_is_said():
    fields = {"retrieval__storage": "float16", "retrieval__documents": 9, "retrieval__seed": 1}
    unused = ineffective(config_of(**fields, retrieval__development="test"))
    assert [line.partition("=")[0] for line in unused] == [
        f"eval.retrieval.{name}" for name in ("development", "documents", "seed", "storage")
    ]
    assert not ineffective(config_of(**fields, **CHOSEN, retrieval__development="test", data=""))
    assert ineffective(config_of(**CHOSEN, retrieval__seed=1)) == ["eval.retrieval.seed=1"]
