import dataclasses
import json
import shutil

import numpy as np
import pytest
from huggingface_hub import metadata_load
from support import WORDS, call, refused, write_model

from simcse_jax.errors import UserError
from simcse_jax.huggingface import write
from simcse_jax.runs import exporting
from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.runs.exporting import export
from simcse_jax.runs.loading import load_model
from simcse_jax.simcse import SimCSE

SENTENCES = ["the cat sat on the mat.", "", "a dog", " ".join(WORDS * 4), "unknown words", "The BIRD sings"]


def test_an_earlier_export_is_replaced_and_a_run_without_a_checkpoint_refused(trained, exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "model")
    (folder / "leftover").write_text("old")
    export(trained, folder)
    assert not (folder / "leftover").exists() and (folder / "model.safetensors").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert {oct(path.stat().st_mode)[-3:] for path in folder.iterdir() if path.is_file()} == {"644"}
    (tmp_path / "link").symlink_to(folder)
    export(trained, tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (folder / "model.safetensors").exists()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    for workdir, output, message in (
        (trained, tmp_path / "mine", "is not an earlier export"),
        (trained, trained / "model", "is a part of a run; choose another"),
        (trained, tmp_path / "loop", "is a link to itself; choose another"),
        (tmp_path / "mine", tmp_path / "new", "not a run's folder"),
    ):
        with pytest.raises(UserError, match=message):
            export(workdir, output)
    workdir = shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    with pytest.raises(UserError, match="no checkpoint has been saved yet"):
        export(workdir, tmp_path / "model")


def test_any_checkpoint_can_be_exported_and_is_the_model_of_the_workdir_and_says_what_it_is(
    trained, tmp_path, exported
):
    checkpoints = Checkpoints(trained, read_only=True)
    other = next(step for step in checkpoints.steps if step != checkpoints.best)
    for step, parts in (
        (other, [f"This is its checkpoint of step {other}.", "another checkpoint than this one"]),
        (checkpoints.best, ["Spearman × 100 |"]),
    ):
        done = call("export", "--workdir", f"{trained}@step={step}", "--output", tmp_path / str(step))
        assert done.returncode == 0, done.stderr
        card = (tmp_path / str(step) / "README.md").read_text()
        assert [part for part in parts if part not in card] == []
        expected = SimCSE(f"{trained}@step={step}").encode(SENTENCES)
        np.testing.assert_allclose(SimCSE(tmp_path / str(step)).encode(SENTENCES), expected, atol=1e-6)
    assert "Spearman × 100 |" not in (tmp_path / str(other) / "README.md").read_text()
    given = ["--license", "mit", "--base-model", "ann/base", "--language", "en,de"]
    done = call("export", "--workdir", trained, "--output", tmp_path / "model", *given)
    assert done.returncode == 0, done.stderr
    fields = metadata_load(tmp_path / "model" / "README.md")
    assert (fields["license"], fields["base_model"], fields["language"]) == ("mit", "ann/base", ["en", "de"])
    for more in (["--truncate-dim", 8, "--adapter"],):
        refused(call("export", "--workdir", trained, "--output", tmp_path / "other", *more), more[0])
    assert not (tmp_path / "other").exists()
    from_workdir, from_export = SimCSE(str(trained)), SimCSE(str(exported))
    assert (from_export.pooler, from_export.use_head) == (from_workdir.pooler, from_workdir.use_head) == ("cls", True)
    np.testing.assert_allclose(from_export.encode(SENTENCES), from_workdir.encode(SENTENCES), atol=1e-6)
    without = SimCSE(str(exported), pooler="cls_before_pooler")
    assert np.abs(without.encode(SENTENCES) - from_export.encode(SENTENCES)).max() > 1e-2
    config = json.loads((exported / "config.json").read_text())
    assert (config["architectures"], config["num_hidden_layers"], config["dtype"]) == (["BertModel"], 2, "float32")
    assert json.loads((exported / "simcse_jax.json").read_text()).items() >= {"pooler": "cls", "head": True}.items()
    kinds = [module["type"].rpartition(".")[2] for module in json.loads((exported / "modules.json").read_text())]
    assert kinds == ["Transformer", "Pooling", "Dense"]


def test_an_export_that_fails_or_is_not_finite_leaves_nothing(trained, tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(UserError, match="No space left on device"):
        patch.setattr(write, "write_safetensors", full)
        export(trained, tmp_path / "model")

    def load(workdir, step=None, load=exporting.load_workdir):
        model = load(workdir, step=step)
        name = next(iter(model.params))
        return dataclasses.replace(model, params=model.params | {name: model.params[name] * np.nan})

    monkeypatch.setattr(exporting, "load_workdir", load)
    with pytest.raises(UserError, match=r": .* is not finite"):
        export(trained, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


CASES = [  # every kind of encoder and every pooler, some with a head
    ("bert", "avg_sqrt", False),
    ("bert", "last", True),
    ("roberta", "cls", True),
    ("roberta", "avg_weighted", False),
    ("mpnet", "avg", False),
    ("distilbert", "avg_first_last", False),
    ("xlm-roberta", "max", True),
    ("camembert", "cls_before_pooler", False),
    ("ernie", "avg_static_last", False),
    ("electra", "avg_top2", False),
    ("albert", "cls", True),
    ("modernbert", "avg_first_last", False),
    ("nomic_bert", "avg", False),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model_type", "pooler", "head"), CASES)
def test_transformers_and_sentence_transformers_open_it(model_type, pooler, head, tmp_path):
    pytest.importorskip("torch")
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModel, AutoTokenizer

    # A source stored in float16 must not make the export one.
    model = load_model(str(write_model(tmp_path / model_type, model_type, torch_dtype="float16")))
    kernel, bias = np.split(np.random.default_rng(0).normal(0, 0.2, (33, 32)).astype(np.float32), [32])
    params = model.params | ({"head.kernel": kernel, "head.bias": bias[0]} if head else {})
    exporting.save(dataclasses.replace(model, pooler=pooler, params=params), tmp_path / "export")
    found = SimCSE(str(tmp_path / "export"))
    assert found.use_head == head
    ours = found.encode(SENTENCES)
    theirs = SentenceTransformer(str(tmp_path / "export"), device="cpu").encode(SENTENCES)
    np.testing.assert_allclose(theirs, ours, atol=1e-5)

    if head and pooler == "cls":  # transformers alone has it, too
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "export")
        batch = tokenizer(SENTENCES, padding=True, truncation=True, max_length=64, return_tensors="pt")
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        pooled = AutoModel.from_pretrained(tmp_path / "export").eval()(**inputs).pooler_output
        np.testing.assert_allclose(pooled.detach().numpy(), ours, atol=1e-5)


@pytest.mark.slow
def test_a_real_tokenizer_goes_out_as_it_came_in(minilm, tmp_path):
    theirs = pytest.importorskip("sentence_transformers")
    model = SimCSE(minilm, num_layers=1)
    model.save_pretrained(tmp_path / "export")
    texts = ["Grüße aus Köln 🎸", "don't-stop, McDonald's?", "", "漢字かな", "a " * 600, "ÉCOLE normale"]
    found = theirs.SentenceTransformer(str(tmp_path / "export"), device="cpu").encode(texts)
    np.testing.assert_allclose(found, model.encode(texts), atol=1e-5)
