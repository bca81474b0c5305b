import dataclasses
import json
import shutil
import tracemalloc

import pytest
from support import write_model
from support.models import edit_json, edit_tensors

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import choose_pooler, choose_pooler_and_warn, load
from simcse_jax.huggingface.write import write_model as write_folder


def test_num_layers_keeps_the_first_and_a_checkpoint_s_own_pooler_is_not_a_head(tiny_folder):
    whole, first = load(str(tiny_folder)), load(str(tiny_folder), 1)
    assert first.config.num_layers == 1
    assert set(first.params) == {name for name in whole.params if not name.startswith("encoder.layers.1.")}
    with pytest.raises(UserError, match="has 2 layers"):
        load(str(tiny_folder), 3)
    assert "head.kernel" not in whole.params and choose_pooler(whole, None) == ("cls", False)


def test_a_model_is_never_in_memory_twice_nor_changes_with_its_file(tmp_path):
    folder = write_model(tmp_path / "wide", "bert", intermediate_size=20_000)  # 10 MB
    tracemalloc.start()
    params = load(str(folder)).params
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.2 * sum(array.nbytes for array in params.values())
    before = {name: array.copy() for name, array in params.items()}
    content = (folder / "model.safetensors").read_bytes()
    with open(folder / "model.safetensors", "r+b") as file:  # as another program writes, in its place
        file.write(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))
    assert all((params[name] == value).all() for name, value in before.items())


def test_a_promised_head_must_exist_and_a_name_alone_is_one_for_the_reference_s_converted_models_only(
    tiny_bert, tmp_path
):
    folder = shutil.copytree(tiny_bert, tmp_path / "sup-distilbert")
    (folder / "simcse_jax.json").write_text('{"pooler": "cls", "head": true}')
    assert "head.kernel" in load(str(folder)).params
    edit_tensors(folder, lambda tensors: {k: v for k, v in tensors.items() if not k.startswith("pooler")})
    with pytest.raises(UserError, match="has a head, but its tensor"):
        load(str(folder))
    (folder / "simcse_jax.json").unlink()
    model = load(str(folder))
    assert choose_pooler(model, None) == CLS and not model.guess
    for name, head in (("my-sup-simcse-bert-base-uncased", True), ("unsup-simcse-roberta-base", False)):
        folder = shutil.copytree(tiny_bert, tmp_path / name)
        assert ("head.kernel" in load(str(folder)).params) is head
        shutil.copytree(tiny_bert, folder / "plain")  # only the folder's own name counts, not its parent's
        assert "head.kernel" not in load(str(folder / "plain")).params


def test_the_reference_s_head_is_recognized_and_the_length_in_sentence_transformers_files(folder):
    edit_tensors(folder, lambda t: {k.replace("pooler.dense", "mlp.dense"): v for k, v in t.items()})
    model = load(str(folder))
    expected = {None: ("cls", True), "cls": ("cls", True), "avg": ("avg", False)}
    expected["cls_before_pooler"] = ("cls_before_pooler", False)
    assert {name: choose_pooler(model, name) for name in expected} == expected
    edit_json(folder / "tokenizer_config.json", model_max_length=20)
    assert load(str(folder)).max_length == 20
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 24}')
    assert load(str(folder)).max_length == 24


CLS, CLS_WITH_HEAD, BEFORE = ("cls", False), ("cls", True), ("cls_before_pooler", False)
NAMES = [  # the pooler and head of a folder with pooler.dense, and of one with mlp.dense
    ("sup_mydata", CLS_WITH_HEAD, CLS_WITH_HEAD),
    ("unsup_mydata/checkpoint-250", BEFORE, BEFORE),
    ("unsup_mydata/best", CLS, BEFORE),  # as the tool, which looks at the whole path
    ("models--me--sup-simcse-mine/snapshots/0123abc", CLS_WITH_HEAD, CLS_WITH_HEAD),
    ("KoSimCSE-roberta", CLS, CLS_WITH_HEAD),  # by another code, so only a layer of the reference's counts
    ("my-Unsup-2024", BEFORE, BEFORE),
    ("unsupervised-SimCSE", CLS, BEFORE),
    ("supcon-support", CLS, CLS_WITH_HEAD),
]


@pytest.mark.parametrize(("name", "converted", "trained"), NAMES)
def test_a_model_of_the_reference_s_code_is_pooled_as_its_tool_does(tiny_bert, tmp_path, name, converted, trained):
    folder = shutil.copytree(tiny_bert, tmp_path / name)
    for expected in (converted, trained):
        model = load(str(folder))
        assert choose_pooler(model, None) == expected
        assert choose_pooler(model, "cls") == ("cls", expected != CLS)  # the tool's pooler="cls" has the layer, too
        assert model.has_head is (expected == CLS_WITH_HEAD)
        if expected == CLS:
            assert choose_pooler_and_warn(model, None, stacklevel=1) == CLS and not model.guess
        else:
            said = "cls with its dense layer" if expected == CLS_WITH_HEAD else "cls_before_pooler; cls"
            with pytest.warns(UserWarning, match=f"{name}: its files do not say how to pool.*: pooler {said}"):
                choose_pooler_and_warn(model, None, stacklevel=1)
            choose_pooler_and_warn(model, "cls", stacklevel=1)
        edit_tensors(folder, lambda t: {k.replace("pooler.dense", "mlp.dense"): v for k, v in t.items()})


def test_files_that_say_how_to_pool_win_over_the_name_and_modules_over_our_marker_which_must_be_whole(
    prompted, tmp_path
):
    model = load(str(shutil.copytree(prompted, tmp_path / "sup_mydata")))
    assert model.pooler == "avg" and not model.guess and not model.has_head
    (tmp_path / "unsup-simcse").mkdir()
    own = load(str(write_model(tmp_path / "own", "bert", architectures=["BertForCL"])))
    write_folder(dataclasses.replace(own, pooler="max"), tmp_path / "unsup-simcse")
    model = load(str(tmp_path / "unsup-simcse"))
    assert model.pooler == "max" and not model.guess and model.has_head
    folder = shutil.copytree(prompted, tmp_path / "model")
    (folder / "simcse_jax.json").write_text('{"pooler": "max", "head": false}')
    model = load(str(folder))
    assert (model.pooler, model.settings.truncate_dim, model.settings.similarity) == ("avg", 8, "euclidean")
    (folder / "simcse_jax.json").write_text('{"pooler": "min", "head": false}')
    with pytest.raises(UserError, match=r"simcse_jax\.json: damaged"):
        load(str(folder))


BREAKAGES = [
    (lambda f: (f / "model.safetensors").unlink(), "no weights"),
    (lambda f: (f / "config.json").unlink(), r"no config\.json"),
    *((lambda f, x=x: (f / "config.json").write_text(x), r"config\.json") for x in ("{", "[1]")),
    (lambda f: edit_json(f / "config.json", intermediate_size=64), r"'.*intermediate\.dense\.bias' has shape"),
    (lambda f: edit_json(f / "config.json", num_hidden_layers=3), r"encoder\.layer\.2.* is missing"),
    (lambda f: (f / "simcse_jax.json").write_text("{}"), r"simcse_jax\.json"),
    (lambda f: (f / "modules.json").write_text('{"a": 1}'), r"modules\.json"),
]


@pytest.mark.parametrize(("change", "message"), BREAKAGES)
def test_broken_folders_are_named(bert, change, message):
    change(bert)
    with pytest.raises(UserError, match=message):
        load(str(bert))


def test_what_is_no_encoder_of_sentences_needs_a_pooler(tiny_bert, tmp_path):
    for place, (file, fields) in enumerate(
        (
            ("config.json", {"architectures": ["BertForSequenceClassification"]}),
            *(("config_sentence_transformers.json", fields) for fields in ({"model_type": "CrossEncoder"}, {})),
        )
    ):
        path = shutil.copytree(tiny_bert, tmp_path / str(place)) / file
        path.write_text(json.dumps((json.loads(path.read_text()) if path.is_file() else {}) | fields))
        model = load(str(path.parent))
        with pytest.raises(UserError, match=f"{file}|a classifier or cross-encoder|no modules.json"):
            choose_pooler(model, None)
        assert choose_pooler(model, "cls") == ("cls", False)
