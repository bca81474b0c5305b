import pytest
from huggingface_hub.utils import filter_repo_objects

from simcse_jax.errors import UserError
from simcse_jax.huggingface.resolve import HUB_FILES, resolve

LONG = [start + "x" * length for start in ("", "owner/", "package:", "owner/name@", "/") for length in (249, 256, 5000)]


def test_names_of_nothing_are_refused(minilm):
    for name in ("/no/such/folder", "./none", "../x/y/z", "someone/a-model-that-is-not-cached"):
        with pytest.raises(UserError, match="no such folder"):
            resolve(name)
    packages = ["package:no_such_package", "package:__main__", "package:not a name", "package:"]
    for name in (*packages, *LONG, "\udcff", "owner/\udcff", "a\0b", "~nobody-here/x"):
        with pytest.raises(UserError, match=r"no such (folder|package)|not a path|not UTF-8"):
            resolve(name)
    assert resolve(minilm).name == "model"


def test_a_name_without_its_owner_and_a_mistyped_package_have_the_name_that_is_meant_and_no_advice_to_install():
    for name, owner in (
        ("all-MiniLM-L6-v2", "sentence-transformers"),
        ("sup-simcse-bert-base-uncased", "princeton-nlp"),
    ):
        with pytest.raises(UserError, match=f"^{name}: no such folder; did you mean the hub's {owner}/{name}\\?$"):
            resolve(name)
    for name, hint in (("numpi", "; the nearest one is package:numpy"), ("none_such_at_all", "")):
        with pytest.raises(UserError, match=f"^package:{name}: no such package is installed{hint}$"):
            resolve(f"package:{name}")


def test_a_folder_with_a_link_to_nothing_is_refused_by_the_link(tmp_path):
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "latest-run").symlink_to("gone")  # no model's file
    assert resolve(str(tmp_path)) == tmp_path
    for name in ("modules.json", "1_Pooling/config.json"):
        (tmp_path / name).symlink_to("../../blobs/0123")
        with pytest.raises(UserError, match=rf"^{tmp_path / name}: a link to \.\./\.\./blobs/0123"):
            resolve(str(tmp_path))
        (tmp_path / name).unlink()


def test_the_weights_of_every_module_and_the_files_of_word_vectors_are_downloaded():
    names = ["modules.json", "0_Transformer/model.safetensors"]
    for module in ("1_CNN", "1_Pooling", "2_Dense", "3_LayerNorm", "1_WeightedLayerPooling"):
        names += [f"{module}/config.json", *[f"{module}/model.safetensors"] * (module != "1_Pooling")]
    names += ["0_WordEmbeddings/whitespacetokenizer_config.json", "0_WordEmbeddings/model.safetensors"]
    more = ["openvino/openvino_model.bin", "onnx/model.onnx"]
    assert list(filter_repo_objects([*names, *more], allow_patterns=HUB_FILES)) == names
