import pytest
from support.configs import config_of

from simcse_jax.config.checks import ineffective, validate
from simcse_jax.errors import UserError


def evaluated(**fields):
    return config_of(**{f"eval__{name}": value for name, value in fields.items()})


CHOSEN = {"development": "retrieval", "retrieval__data": "folder"}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"development": "retrieval"}, "retrieval.data"),
        ({"retrieval__data": "folder", "data": ""}, "development"),
        ({**CHOSEN, "postprocess": "whitening", "postprocess_data": "target"}, "postprocess"),
        ({"retrieval__measures": ()}, "retrieval.measures"),
        ({"retrieval__measures": ("ndcg@7",)}, "retrieval.measures"),
        ({"retrieval__measures": ("mrr@5", "mrr@5")}, "retrieval.measures"),
        ({"retrieval__split": "all"}, "retrieval.split"),
        ({"retrieval__documents": -1}, "retrieval.documents"),
        ({"retrieval__seed": -1}, "retrieval.seed"),
        ({"retrieval__storage": "int8"}, "retrieval.storage"),
    ],
)
def test_what_does_not_go_together_is_refused(fields, named):
    with pytest.raises(UserError, match=rf"^config\.eval\.{named}[=:]"):
        validate(evaluated(**fields))


def test_it_goes_with_and_without_other_data():
    for fields in (CHOSEN, {**CHOSEN, "data": ""}, {"retrieval__data": "folder"}):
        validate(evaluated(**fields))
    config = evaluated(**CHOSEN, data="")
    config.train.patience = 3
    validate(config)


def test_what_has_no_effect_is_said():
    fields = {"retrieval__storage": "float16", "retrieval__documents": 9, "retrieval__seed": 1}
    unused = ineffective(evaluated(**fields, retrieval__development="test"))
    assert [line.partition("=")[0] for line in unused] == [
        f"eval.retrieval.{name}" for name in ("development", "documents", "seed", "storage")
    ]
    assert not ineffective(evaluated(**fields, **CHOSEN, retrieval__development="test", data=""))
    assert ineffective(evaluated(**CHOSEN, retrieval__seed=1)) == ["eval.retrieval.seed=1"]
