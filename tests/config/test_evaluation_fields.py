import pytest
from support.configs import changed, config_of

from simcse_jax.config.checks import ineffective, validate
from simcse_jax.errors import UserError


def evaluated(**fields):
    return config_of(**{f"eval__{name}": value for name, value in fields.items()})


CHOSEN = {"development": "retrieval", "retrieval__data": "folder"}


def test_it_goes_with_and_without_other_data_and_what_it_does_not_go_with_is_refused_or_without_effect():
    processed = {**CHOSEN, "postprocess": "whitening", "postprocess_data": "target"}
    apart, alone = {"retrieval__data": "folder", "data": ""}, {"development": "retrieval"}
    for fields, named in ((alone, "retrieval.data"), (apart, "development"), (processed, "postprocess")):
        with pytest.raises(UserError, match=rf"^config\.eval\.{named}[=:]"):
            validate(evaluated(**fields))
    for fields in (CHOSEN, {**CHOSEN, "data": ""}, {"retrieval__data": "folder"}):
        validate(evaluated(**fields))
    validate(changed(evaluated(**CHOSEN, data=""), train__patience=3))
    # What has no effect is said.
    fields = {"retrieval__documents": 9, "retrieval__seed": 1}
    unused = [line.partition("=")[0] for line in ineffective(evaluated(**fields, retrieval__development="test"))]
    assert unused == [f"eval.retrieval.{name}" for name in ("development", "documents")]
    assert not ineffective(evaluated(**fields, **CHOSEN, retrieval__development="test", data=""))
    assert ineffective(evaluated(**CHOSEN, retrieval__seed=1)) == ["eval.retrieval.seed=1"]
