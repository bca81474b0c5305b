import dataclasses
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import support
import yaml
from huggingface_hub import ModelCard, metadata_load
from support.layouts import write_byte_level
from support.listed import record
from support.models import add_mask_token

from simcse_jax.choices import POOLERS, TASKS
from simcse_jax.config.fields import default_config
from simcse_jax.host.storage import write_json
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.sentence_transformers import DEFAULTS, Settings
from simcse_jax.huggingface.write import write_model
from simcse_jax.runs import model_card
from simcse_jax.runs.exporting import export
from simcse_jax.runs.model_card import is_test
from simcse_jax.simcse import SimCSE

ENCODER = {"model_type": "bert", "sentence_size": 384, "num_layers": 6, "convolutions": None, "modules": ()}
HEADLESS = SimpleNamespace(
    **{"pooler": "avg", "has_head": False, "max_length": 128, "normalize": False, "settings": DEFAULTS},
    config=SimpleNamespace(**ENCODER, positions="from zero"),
    tokenizer=SimpleNamespace(lowers_first=False),
)
FOUND = {"ndcg@10": 31.25, "recall@100": 60.0, "queries": 300, "documents": 5183, "corpus": 5183, "sha256": "0"}


def a_run(**fields) -> dict:
    """A `run.json` with the default config but for these fields, `__` for a dot."""
    config = default_config()
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
    versions = {"python": "3.12.1", "simcse_jax": "0.1.0", "jax": "0.10.2"}
    device = {"kind": "TPU v5 lite", "platform": "tpu", "count": 8}
    return record(config, sha256={"data.train": "ab" * 32}, versions=versions, device=device, examples=0, hub=None)


def made(run, result=None, name="x", model=HEADLESS, **more) -> str:
    return model_card.model_card(model, run, result, name, **more)


def scores(run, result) -> str:
    """The card's section."""
    return made(run, result).partition("## Scores")[2].partition("## Training")[0].strip()


def scored(score: float) -> dict:
    return {task: {"spearman": score, "pairs": 100, "subsets": {}} for task in TASKS}


def front_matter(card: str) -> dict:
    return yaml.safe_load(re.match(r"---\n(.*?)\n---\n", card, re.DOTALL)[1])


def snippets(card: str) -> dict[str, str]:
    return dict(re.findall(r"With (\S+):\n\n```python\n(.*?)```", card, re.DOTALL))


def run_snippet(code: str, where: Path, monkeypatch) -> np.ndarray:
    monkeypatch.chdir(where)
    names: dict[str, object] = {}
    exec(code, names)
    return np.asarray(names["embeddings"])


def test_a_card_has_the_recipe(exported, trained, corpus):
    card = (exported / "README.md").read_text()
    described = front_matter(card)
    assert (described["library_name"], described["pipeline_tag"]) == ("sentence-transformers", "sentence-similarity")
    assert not {"base_model", "datasets", "license", "model-index"} & described.keys()  # from files of this machine
    spearman = json.loads((trained / "result.json").read_text())["dev"]["spearman"]
    assert f"| dev | {spearman:.2f} | 20 |" in card
    for line in (
        "| `data.train` | `train.csv` |", "| `model.init_from` | `tiny-bert` |", "| `model.mlp` | `always` |",
        "| `train.learning_rate` | `0.001` |", "- Loss: 1 · `info_nce`", "- Seed: 42",
        "32 numbers a sentence, to be compared by cosine. 2 layers, pooler `cls`, then a dense layer with tanh",
    ):  # fmt: skip
        assert line in card
    assert "`model.pooler`" not in card and "parallel" not in card and "log_every" not in card
    run_ = json.loads((trained / "run.json").read_text())
    assert f"jax {run_['versions']['jax']}" in card
    assert run_["hub"] == [] and run_["examples"] == len(corpus["csv"].read_text().splitlines()) - 1


def test_an_export_does_not_name_folders_of_this_machine(trained, corpus, tmp_path):
    workdir = shutil.copytree(trained, tmp_path / "run")
    for name, field in (("config.json", "_name_or_path"), ("tokenizer_config.json", "name_or_path")):
        path = workdir / "model" / name
        path.write_text(json.dumps(json.loads(path.read_text()) | {field: str(tmp_path / "mine")}))
    export(workdir, tmp_path / "model")
    for path in (tmp_path / "model").rglob("*"):
        if path.is_file() and path.suffix != ".safetensors":
            content = path.read_text()
            assert not any(str(own) in content for own in (tmp_path.parent, corpus["csv"].parent, Path.home())), path
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["hidden_size"] == 32 and "_name_or_path" not in config


def test_scores_of_test_sets_also_of_a_part_of_the_embeddings_go_into_the_front_matter_which_the_hub_reads(tmp_path):
    result = {task: {"spearman": 70.0 + n, "pairs": 100 + n, "subsets": {}} for n, task in enumerate(TASKS)}
    fields = {"model__init_from": "bert-large-uncased", "eval__data": "/data/SentEval/data/downstream"}
    run_ = a_run(data__train="hf:owner/nli:train", **fields)
    card = made(run_, {**result, "average": 73.0, "averages": {"mean": 1}}, "ann/best", user_fields={"license": "mit"})
    (tmp_path / "README.md").write_text(card)
    data = ModelCard.load(tmp_path / "README.md").data
    assert (data.license, data.base_model, data.datasets) == ("mit", "bert-large-uncased", ["owner/nli"])
    assert len(data.eval_results) == 6 and data.model_name == "best"
    assert data.to_dict().keys() == metadata_load(tmp_path / "README.md").keys()
    (index,) = front_matter(card)["model-index"]
    scores = {row["dataset"]["type"]: row["metrics"][0]["value"] for row in index["results"]}
    assert scores["mteb/sts12-sts"] == 70 and scores["mteb/stsbenchmark-sts"] == 75
    assert "| STS-B | 75.00 | 105 |" in card and "| mean | 73.00 |  |" in card
    assert "SentEval's test sets; the checkpoint was chosen on the development set of STS-B." in card
    assert 'SimCSE("ann/best")' in card and "8 × TPU v5 lite" in card
    assert "| mean |" not in made(run_, {"STS12": result["STS12"]})
    card = made(run_)
    assert "The run has no scores" in card and "Spearman" not in card and "model-index" not in front_matter(card)
    model = SimpleNamespace(**vars(HEADLESS) | {"settings": DEFAULTS._replace(truncate_dim=64)})
    card = made(run_, scored(84.0) | {"truncated": {"64": scored(70.0)}}, model=model)
    (entry,) = front_matter(card)["model-index"]
    assert {metric["value"] for result in entry["results"] for metric in result["metrics"]} == {70.0}
    assert "all 384 numbers; this model gives the first 64, whose scores stand below" in card
    assert "embeddings = embeddings[:, :64]" in snippets(card)["transformers"]
    without = made(run_, scored(84.0), model=model)
    assert "model-index" not in front_matter(without) and "the first 64, which were not scored." in without
    assert "this model gives" not in made(run_, scored(84.0))


def test_other_scores_are_not_in_the_front_matter_and_a_run_without_a_step_claims_no_training():
    result = {"STSBenchmark": {"spearman": 80.0, "pairs": 1500, "subsets": {}}}
    for fields in ({"eval__tasks": ()}, {"eval__data": "STSBenchmark.tsv"}):
        card = made(a_run(**fields), result)
        assert "not a test set" in card and "model-index" not in front_matter(card)
    result = {"STS12": {"spearman": 70.0, "pairs": 100, "subsets": {}}, "development": 81.2, "transfer": {"MR": {}}}
    card = made(a_run(eval__postprocess="whitening", eval__postprocess_data="/home/ann/nli.csv"), result)
    assert "went through whitening first, fit on `nli.csv`; this model does not contain it." in card
    assert "| STS12 | 70.00 | 100 |" in card and "model-index" not in front_matter(card)
    card = made(a_run(train__epochs=0, train__max_steps=0))
    assert "Nothing was trained: the weights are those" in card and "Made, without training, from" in card
    assert "Loss:" not in card and "Trained from" not in card


def test_what_is_known_has_a_name_also_from_the_hub_where_a_folder_is_named_like_an_owner(tmp_path, monkeypatch):
    for train, expected in (
        ("hf:owner/nli:train", ["owner/nli"]), ("hf:/home/ann/nli", None), ("tfds:snli:train", None),
        ("hf:ann/nli:all,hf:ann/quora", ["ann/nli", "ann/quora"]), ("hf:ann/nli,/home/ann/mine.csv", None),
    ):  # fmt: skip
        run_ = a_run(data__train=train)
        assert model_card.find_data_sets(run_) == (expected or []), train
        described = front_matter(made(run_))
        assert described.get("datasets") == expected and "/home" not in str(described), train
    assert set(model_card.POOLING) == set(POOLERS) and {*model_card.HUB_DATA_SETS, "SICKRelatedness"} == set(TASKS)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner").mkdir()
    run_ = a_run(model__init_from="owner/model@main", data__train="hf:owner/nli")
    card = made(run_ | {"hub": ["model.init_from", "data.train"]})
    assert front_matter(card).items() >= {"base_model": "owner/model", "datasets": ["owner/nli"]}.items()
    assert "| `model.init_from` | `owner/model@main` |" in card and "- Data: `hf:owner/nli`" in card
    card = made(run_ | {"hub": []})
    assert "owner" not in card and "| `model.init_from` | `model@main` |" in card


def a_base(folder: Path, fields: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(f"---\n{fields}\n---\n\n# A model\n")
    return str(folder)


def test_the_licence_is_that_of_the_base_model_s_card_or_what_is_given(tmp_path, monkeypatch):
    own, link = {"license": "other", "license_name": "own"}, "license_link: "
    other = "license: other\nlicense_name: own\n"
    cases = {"license: apache-2.0\nlanguage: en": {"license": "apache-2.0"}, f"{other}{link}LICENSE": own}
    cases |= {f"{other}{link}https://example.org/own": own | {"license_link": "https://example.org/own"}}
    cases |= {"language: en": {}, "license: [mit, gpl]": {}, "license: {": {}}  # the last one is no YAML
    for number, (fields, expected) in enumerate(cases.items()):
        assert model_card.read_license(a_base(tmp_path / f"base{number}", fields)) == expected
    for gone in ("/home/ann/gone", "package:no_such_package", "no name"):
        assert model_card.read_license(gone) == {}
    run_ = a_run(model__init_from=str(tmp_path / "base0"))
    card = made(run_)
    described = front_matter(card)
    assert described["license"] == "apache-2.0" and "base_model" not in described and str(tmp_path) not in card
    assert front_matter(made(run_, user_fields={"license": "mit"}))["license"] == "mit"
    fields = {"base_model": "ann/other", "language": ["no", "en"]}
    given = front_matter(made(a_run(model__init_from="ann/base"), user_fields=fields))
    assert (given["base_model"], given["language"]) == ("ann/other", ["no", "en"])  # no: Norwegian, not False
    repository = tmp_path / "models--ann--base"
    a_base(repository / "snapshots/abc", "license: mit")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    described = front_matter(made(a_run(model__init_from="ann/base")))
    assert (described["license"], described["base_model"]) == ("mit", "ann/base")
    described = front_matter(made(a_run(model__init_from="ann/other")))
    assert "license" not in described and described["base_model"] == "ann/other"


def test_a_revision_is_asked_for_everywhere_and_our_snippet_runs(exported, trained, monkeypatch):
    found = snippets(made(a_run(), name="ann/best", revision="v2"))
    assert 'SentenceTransformer("ann/best", revision="v2")' in found["sentence-transformers"]
    assert found["transformers"].count('"ann/best", revision="v2"') == 2
    assert 'SimCSE("ann/best@v2")' in found["simcse_jax"]
    code = snippets((exported / "README.md").read_text())["simcse_jax"]
    sentences = json.loads("[" + re.search(r"sentences = \[(.*?)\]", code)[1] + "]")
    expected = SimCSE(str(trained)).encode(sentences)
    np.testing.assert_allclose(run_snippet(code, exported.parent, monkeypatch), expected, atol=1e-6)


CASES = [
    ("bert", "cls", True), ("bert", "cls_before_pooler", False), ("bert", "avg_top2", False), ("bert", "max", False),
    ("roberta", "avg_first_last", True), ("bert", "avg_static_last", False), ("roberta", "avg_sqrt", False),
    ("bert", "avg_weighted", False), ("mpnet", "last", True), ("distilbert", "cls", True), ("electra", "cls", True),
    ("albert", "avg", False), ("distilbert", "mask_token", True),
    ("qwen3", "last", False),  # whose tokenizer pads on the left
]  # fmt: skip


def card_of(model, folder: Path) -> str:
    (folder / "export").mkdir()
    write_model(model, folder / "export")
    return made(a_run(), name="export", model=model)


@pytest.mark.slow
@pytest.mark.parametrize(("model_type", "pooler", "has_head"), CASES)
def test_the_snippets_of_all_three_libraries_run(model_type, pooler, has_head, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("sentence_transformers")
    architecture = "BertForCL" if has_head else "BertModel"  # the reference's class says that there is a head
    source = support.write_model(tmp_path / "source", model_type, architectures=[architecture])
    model = dataclasses.replace(load(str(source)), pooler=pooler)
    if model_type == "qwen3":
        settings = source / "tokenizer_config.json"
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"padding_side": "left"}))
    if pooler == "mask_token":
        add_mask_token(source)
        model = dataclasses.replace(model, template="the cat [X] sat on [MASK].")
    found = snippets(card_of(model, tmp_path))
    assert list(found) == ["sentence-transformers", "transformers", "simcse_jax"]
    ours = run_snippet(found["simcse_jax"], tmp_path, monkeypatch)
    assert ours.shape == (3, 32) and ("torch.tanh" in found["transformers"]) == has_head
    for library in ("sentence-transformers", "transformers"):
        np.testing.assert_allclose(run_snippet(found[library], tmp_path, monkeypatch), ours, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("lowers", [False, True])
def test_the_snippets_of_a_model_with_settings_of_its_own(lowers, tmp_path, monkeypatch):
    """Normalize and a prompt, or lower letters (RoBERTa's normalizer is not that of its files) and a part of all."""
    pytest.importorskip("torch")
    pytest.importorskip("sentence_transformers")
    (source := tmp_path / "source").mkdir()
    if lowers:
        support.write_model(source, "roberta", vocab_size=write_byte_level(source))
        write_byte_level(source)
        write_json(source / "sentence_bert_config.json", {"max_seq_length": 32, "do_lower_case": True})
        fields = {"settings": DEFAULTS._replace(truncate_dim=9)}
    else:
        support.write_model(source, "bert")
        fields = {"settings": Settings({"query": "the ", "document": ""}, "query", "dot"), "normalize": True}
    model = dataclasses.replace(load(str(source)), pooler="avg", **fields)
    card = card_of(model, tmp_path)
    assert model.tokenizer.lowers_first == ("sentence.lower()" in card) and ("[:, :9]" in card) == lowers
    assert ("32 numbers a sentence, to be compared by dot product." in card) != lowers
    ours, *others = (run_snippet(code, tmp_path, monkeypatch) for code in reversed(snippets(card).values()))
    assert ours.shape == (3, 9 if lowers else 32) and np.allclose(np.linalg.norm(ours, axis=1), 1, atol=1e-5) != lowers
    for theirs in others:
        np.testing.assert_allclose(theirs, ours, atol=1e-5)


def run(**fields):
    return a_run(**{f"eval__{name}": value for name, value in fields.items()})


def test_what_chose_the_checkpoint_and_what_is_a_test_set():
    result = {"retrieval": {"scifact": FOUND}, "retrieval_average": {}}
    for fields, words in (
        ({}, "the development set of STS-B"),
        ({"data": "SentEval", "development": "sickr"}, "the development set of SICK-R"),
        ({"data": "dev.tsv"}, "a file of graded pairs"),
        ({"development": "retrieval", "retrieval__development": "train"}, "the judgements `train` of retrieval"),
    ):
        assert f"the checkpoint was chosen on {words}." in scores(run(**fields), result)
    result = {"retrieval": {"held_out": FOUND}, "retrieval_average": {}}
    for every, words in ((0, "no checkpoint was chosen: it is"), (50, "was chosen on other rows held out of the")):
        held = a_run(eval__every=every, data__held_out=100)
        assert words in scores(held, result)
        pairs = {"held_out": {"spearman": 70.0, "pairs": 9}}
        assert ("no checkpoint was chosen" in scores(held, pairs)) == (not every)
        held["config"]["eval"]["against_start"] = True
        assert ("chosen by the other half of them" in scores(held, pairs)) == bool(every)
    for data, of_test in (("data/senteval-1.0", True), ("a.b/SentEval", True), ("dev.tsv", False)):
        assert is_test(run(data=data, tasks=("STSBenchmark",)), "STSBenchmark") is of_test


def test_retrieval_has_a_table_of_its_own_and_the_comparison_with_the_start_names_its_measure():
    found = {"scifact": FOUND, "other": FOUND | {"ndcg@10": 1.0, "documents": 900}}
    result, graded = {"retrieval": found, "retrieval_average": {"ndcg@10": 16.1}}, {"spearman": 70.0, "pairs": 9}
    lines = scores(run(development="retrieval"), result).splitlines()
    assert lines[2] == "| data | nDCG@10 | Recall@100 | queries | documents |"
    assert lines[-2:] == ["| scifact | 31.25 | 60.00 | 300 | 5183 |", "| other | 1.00 | 60.00 | 300 | 900 of 5183 |"]
    both = scores(run(data="dev.tsv", development="retrieval"), {"dev": graded} | result)
    assert "No published test set; the checkpoint was chosen on the judgements `dev` of retrieval." in both
    assert both.index("| dev | 70.00 | 9 |") < both.index("| scifact |")
    own = {"retrieval__split": "dev", "retrieval__storage": "bfloat16"}
    text = scores(run(development="retrieval", **own), result)
    assert "on the judgements `dev`, with documents' embeddings in bfloat16. These are the judgements that the" in text
    assert "not a test set" in text and "not a test set" not in scores(run(**own), result)
    pairs = scores(run(data="retrieval.tsv"), {"retrieval": graded})
    assert "| retrieval | 70.00 | 9 |" in pairs and "trec_eval" not in pairs and "has no scores" in scores(run(), None)
    against = {"measure": "nDCG@10 × 100", "before": 30.0, "after": 35.5, "low": 4.0, "high": 7.25}
    for best in (10, 0):
        text = scores(run(), result | {"against_start": against, "best_step": best}).splitlines()[-1]
        said = "nDCG@10 × 100: before training 30.00, after it 35.50: +5.50, with a 95% interval from +4.00 to +7.25 "
        assert text.startswith(said) and ("Training made it no better" in text) == (not best)
    assert "before training" not in scores(run(), result)
