import json
import math
import shutil
import sys
import warnings

import numpy as np
import pytest
from safetensors import safe_open
from support import call, refused, sentences
from support.beir import write_beir
from support.later import later, needs
from support.mteb_tasks import at_hand, clustering_task, register, retrieval_task, sts_task

from simcse_jax.adapters.mteb import Benchmarks, Encoder, prompt_names, read
from simcse_jax.commands import evaluate as evaluate_module
from simcse_jax.errors import UserError
from simcse_jax.evaluation import beir, retrieval, sts
from simcse_jax.models.config import SIMILARITIES
from simcse_jax.simcse import SimCSE


def test_without_mteb_the_command_names_what_installs_it(tiny_bert, monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb", None)
    missing = 'not installed: mteb; run: pip install "simcse_jax[mteb]"'
    refused(call("evaluate", "--model", tiny_bert, "--tasks", "mteb:STS12"), missing)
    with pytest.raises(UserError, match="not installed: mteb"):
        Encoder(None)


needs("mteb", "mteb is not installed: pip install -r requirements-peers.txt")
mteb = later("mteb")


@pytest.fixture
def pairs(corpus) -> sts.Pairs:
    return sts.read_graded_pairs(corpus["dev"])


def inputs(texts):
    from datasets import Dataset
    from torch.utils.data import DataLoader

    return DataLoader(Dataset.from_dict({"text": texts}), batch_size=3)


def scored(model, task, **options) -> dict:
    """mteb's own scores of the test split, where a user calls it."""
    result = mteb.evaluate(Encoder(model, **options), task(), cache=None, co2_tracker=False)
    ((scores,),) = result.task_results[0].scores.values()
    return scores


def evaluate(tmp_path, model, *more) -> tuple[str, dict]:
    """What the command prints, and the result file that it writes."""
    output = tmp_path / "scores.json"
    done = call("evaluate", "--model", model, "--output", output, *more)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
    return done.stdout, json.loads(output.read_text())


@pytest.mark.optimized
@pytest.mark.slow
def test_minilm_has_its_score_on_the_first_300_pairs_of_sts_b(tmp_path, minilm, senteval, monkeypatch):
    whole = sts.read(str(senteval), ["STSBenchmark"])[0]["STSBenchmark"]
    pairs = sts.Pairs(whole.first[:300], whole.second[:300], whole.gold[:300], {})
    task = register(monkeypatch, sts_task(pairs))
    printed, results = evaluate(tmp_path, minilm, "--pooler", "avg", "--tasks", task)
    ours = sts.evaluate(SimCSE(minilm, pooler="avg"), {"first": pairs})["first"]["spearman"]
    assert results["mteb"]["LocalSTS"]["main_score"] == pytest.approx(ours, abs=2e-3)
    assert f"{ours:.2f}" == "93.37" and printed.splitlines()[-1] == "LocalSTS | cosine_spearman |  93.37"


def test_tasks_of_mteb_stand_next_to_ours_with_the_same_scores(tmp_path, tiny_bert, corpus, pairs, monkeypatch):
    tasks = register(monkeypatch, sts_task(pairs), clustering_task(sentences(40, 3), [*range(4)] * 10))
    given = ("--data", corpus["dev"], "--tasks", f"sts,{tasks}", "--dimensions", "32,5")
    printed, found = evaluate(tmp_path, tiny_bert, *given)
    assert set(found["truncated"]) == {"32", "5"}
    for size, results in found["truncated"].items():
        theirs = results["mteb"]["LocalSTS"]
        assert theirs["main_score"] == pytest.approx(results["dev"]["spearman"], abs=0.01), size
        assert theirs["scores"]["test"][0]["pearson"] * 100 == pytest.approx(results["dev"]["pearson"], abs=0.01)
        assert (theirs["measure"], theirs["type"], theirs["revision"]) == ("cosine_spearman", "STS", "1")
        mean = np.mean([results["mteb"][name]["main_score"] for name in ("LocalSTS", "LocalClustering")])
        assert results["mteb_average"] == pytest.approx(mean, abs=1e-4)
        row = f"LocalClustering |       v_measure | {results['mteb']['LocalClustering']['main_score']:>6.2f}"
        assert row in printed and f"average |                 | {mean:>6.2f}" in printed
    assert found["truncated"]["32"]["mteb"] != found["truncated"]["5"]["mteb"]
    again = evaluate(tmp_path, tiny_bert, "--tasks", tasks, "--truncate-dim", "5")[1]  # the draws are the same, too
    assert again["mteb"] == found["truncated"]["5"]["mteb"]


def test_retrieval_has_the_scores_of_ours_with_the_models_prompts(tmp_path, prompted, monkeypatch):
    folder, model = write_beir(tmp_path / "tiny"), SimCSE(prompted)  # compared by Euclidean distance
    tasks = register(monkeypatch, retrieval_task(folder))
    printed, results = evaluate(tmp_path, prompted, "--tasks", tasks)
    measures = {"ndcg@10": "ndcg_at_10", "map@5": "map_at_5", "recall@20": "recall_at_20"}
    ours = retrieval.score(retrieval.sides(model), beir.read(str(folder)), list(measures))
    (theirs,) = results["mteb"]["LocalRetrieval"]["scores"]["test"]
    assert {name: theirs[name] for name in measures.values()} == pytest.approx(
        {measures[name]: values.mean() for name, values in ours.items()}, abs=1e-5
    )
    assert "queries with prompt 'the man '" in printed
    same = retrieval.score(retrieval.sides(model.encode), beir.read(str(folder)), ["ndcg@10"])["ndcg@10"].mean()
    assert abs(same - theirs["ndcg_at_10"]) > 1e-3  # otherwise the prompts could not be seen
    assert evaluate(tmp_path, prompted, "--tasks", tasks, "--prompt", "")[1] != results


def test_word_vectors_are_scored(tmp_path, glove, corpus, pairs, monkeypatch):
    tasks = register(monkeypatch, sts_task(pairs))
    _, results = evaluate(tmp_path, glove, "--data", corpus["dev"], "--tasks", f"sts,{tasks}")
    (theirs,) = results["mteb"]["LocalSTS"]["scores"]["test"]
    assert theirs["spearman"] * 100 == pytest.approx(results["dev"]["spearman"], abs=0.01)
    # scikit-learn's cosine with a sentence of no known word, a zero vector, is 0.5.
    assert theirs["cosine_spearman"] * 100 == pytest.approx(results["mteb"]["LocalSTS"]["main_score"], abs=1e-3)


@pytest.mark.parametrize(
    "prompts",
    [
        {},
        {"query": "the man ", "document": "on "},
        {"passage": "on "},
        {"STS": "a cat ", "STSBenchmark": "the dog ", "Retrieval-query": "he ran ", "document": "on "},
        {"NFCorpus-document": "a cat ", "NFCorpus": "the dog ", "Retrieval": "he ran ", "query": "on "},
        {"NFCorpus": "", "query": "on ", "Clustering": "the man "},
    ],
    ids=", ".join,
)
def test_prompts_are_those_of_mteb_with_sentence_transformers(prompts, tiny_bert):
    from mteb.models import SentenceTransformerEncoderWrapper
    from mteb.types import PromptType
    from sentence_transformers import SentenceTransformer

    ours, theirs = SimCSE(tiny_bert, pooler="avg"), SentenceTransformer(str(tiny_bert), device="cpu")
    ours.prompts, theirs.prompts = dict(prompts), {"query": "", "document": "", **prompts}
    if "passage" in prompts:
        theirs.prompts = dict(prompts)
    ours.default_prompt_name = theirs.default_prompt_name = next((name for name in prompts if name == "query"), None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of prompts that mteb does not know
        wrapped, encoder = SentenceTransformerEncoderWrapper(theirs), Encoder(ours)
    texts, seen = ["the cat", "she sings", "the old tree", "a red bird"], set()
    for task, role in (("STSBenchmark", None), ("STS12", None), *(("NFCorpus", role) for role in PromptType)):
        given = {"task_metadata": mteb.get_task(task).metadata, "hf_split": "test", "hf_subset": "default"}
        found, expected = (each.encode(inputs(texts), prompt_type=role, **given) for each in (encoder, wrapped))
        np.testing.assert_allclose(found, expected, atol=2e-5)
        seen.add(found.tobytes())
    assert len(seen) > 1 or len(prompts) < 2


def test_a_prompt_that_is_given_is_for_all_tasks(prompted):
    model, texts = SimCSE(prompted), ["the cat", "she sings", "the cat"]
    given = {"task_metadata": mteb.get_task("STS12").metadata, "hf_split": "test", "hf_subset": "default"}
    found = Encoder(model, prompt_name="query", truncate_dim=5).encode(inputs(texts), **given)
    np.testing.assert_allclose(found, model.encode(texts, prompt_name="query", truncate_dim=5), atol=1e-6)
    assert prompt_names("A", "STS", None) == ("A", "STS")
    encoder = Encoder(model)
    model.prompts["STS"] = "the dog "  # after it was made
    np.testing.assert_allclose(encoder.encode(inputs(texts), **given), model.encode(texts), atol=1e-6)


def test_the_record_has_what_the_leaderboard_shows(trained, tiny_bert, tmp_path, glove):
    card = "license: apache-2.0\nbase_model: ann/base\ndatasets:\n- mteb/stsbenchmark-sts\n- ann/nli"
    folder = tmp_path / "published"
    shutil.copytree(tiny_bert, folder)
    (folder / "README.md").write_text(f"---\n{card}\n---\n")
    meta = Encoder(SimCSE(folder)).mteb_model_meta
    with safe_open(folder / "model.safetensors", "np") as weights:
        sizes = {name: math.prod(weights.get_slice(name).get_shape()) for name in weights.keys()}  # noqa: SIM118
    words = next(size for name, size in sizes.items() if "word_embeddings" in name)
    own = sum(size for name, size in sizes.items() if "cls." not in name and "pooler." not in name)
    assert (meta.n_parameters, meta.n_embedding_parameters) == (own, words)
    assert meta.memory_usage_mb == round(own * 4 / 1024**2) and meta.framework == ["JAX"]
    assert (meta.license, meta.adapted_from, meta.training_datasets) == (
        "apache-2.0", "ann/base", {"STSBenchmark", "ann/nli"},
    )  # fmt: skip
    assert meta.public_training_data == "https://huggingface.co/datasets/mteb/stsbenchmark-sts"
    assert meta.zero_shot_percentage(["STSBenchmark", "STS12"]) == 50
    for known in (tiny_bert, trained, glove):  # a run on a file of one's own
        meta = Encoder(SimCSE(known)).mteb_model_meta
        assert (meta.license, meta.training_datasets, meta.open_weights) == (None, None, None) and meta.n_parameters
    assert Encoder(SimCSE(glove)).mteb_model_meta.n_active_parameters == 0
    (folder / "README.md").write_text("---\nlicense: ours\nbase_model: [a/b]\ndatasets: ann/nli\n---\n")
    meta = Encoder(SimCSE(folder)).mteb_model_meta
    assert (meta.license, meta.adapted_from, meta.training_datasets) == (None, None, {"ann/nli"})
    (folder / "README.md").write_text("---\ndatasets: [{name: ann/nli}, 1]\n---\n")
    assert Encoder(SimCSE(folder)).mteb_model_meta.training_datasets is None


def test_mteb_takes_it_as_an_encoder_and_knows_it_from_others_of_its_name(tiny_bert, prompted, glove, tmp_path):
    model = SimCSE(tiny_bert)
    encoder = Encoder(model)
    assert isinstance(encoder, mteb.EncoderProtocol)
    assert not isinstance(encoder, mteb.SearchProtocol | mteb.CrossEncoderProtocol)
    meta = encoder.mteb_model_meta
    assert (meta.name, meta.embed_dim, meta.max_tokens) == ("simcse_jax/tiny-bert", 32, model.max_length)
    assert Encoder(SimCSE(glove)).mteb_model_meta.name == "simcse_jax/glove-vectors.txt"
    revisions = [
        meta.revision,
        *(Encoder(model, **more).mteb_model_meta.revision for more in ({"truncate_dim": 5}, {})),
    ]
    model.prompts = {"query": "on "}
    revisions += [
        Encoder(SimCSE(tiny_bert, pooler="avg")).mteb_model_meta.revision,
        Encoder(model).mteb_model_meta.revision,
    ]
    assert revisions[2] == meta.revision and len(set(revisions)) == 4
    cache = mteb.ResultCache(tmp_path)
    task = sts_task(sts.Pairs(["the cat", "he ran", "a bird"], ["a dog", "on", "the tree"], np.arange(3.0), {}))
    for each in (encoder, Encoder(model, truncate_dim=5)):
        mteb.evaluate(each, task(), cache=cache, co2_tracker=False)
    assert len(list(tmp_path.rglob("LocalSTS.json"))) == 2


@pytest.mark.parametrize("name", SIMILARITIES)
def test_embeddings_are_compared_as_the_models_files_say(name, tiny_bert):
    model = SimCSE(tiny_bert)
    model.similarity_fn_name = name
    encoder, embeddings = Encoder(model), model.encode(["the cat", "she sings", "the old tree"])
    expected = model.similarity(embeddings, embeddings)
    np.testing.assert_allclose(encoder.similarity(embeddings, embeddings), expected, atol=1e-5)
    np.testing.assert_allclose(
        encoder.similarity_pairwise(embeddings, embeddings[::-1]), expected[[0, 1, 2], [2, 1, 0]], atol=1e-5
    )
    assert float(encoder.similarity(embeddings[0], embeddings[1])) == pytest.approx(expected[0, 1], abs=1e-5)
    assert encoder.mteb_model_meta.similarity_fn_name.value == name


def test_long_texts_are_cut_with_a_warning(tiny_bert, monkeypatch, pairs):
    long = pairs._replace(first=["the cat " * 500, *pairs.first[1:]])
    tasks = register(monkeypatch, sts_task(long))
    done = call("evaluate", "--model", tiny_bert, "--tasks", tasks)
    assert done.returncode == 0 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("warning: 1 ") and "cut" in done.stderr


def test_a_score_that_is_not_defined_has_no_figure(tiny_bert, monkeypatch, tmp_path, pairs):
    tasks = register(monkeypatch, sts_task(pairs._replace(gold=np.ones(len(pairs.gold)))))
    monkeypatch.setattr("simcse_jax.commands.evaluate.warnings_in_a_line", warnings.catch_warnings)
    warnings.simplefilter("ignore")
    printed, results = evaluate(tmp_path, tiny_bert, "--tasks", tasks)
    assert results["mteb"]["LocalSTS"]["main_score"] is None and "mteb_average" not in results
    assert printed.splitlines()[-1] == "LocalSTS | cosine_spearman |      -"


def test_what_mteb_cannot_score_is_refused_in_one_line(tiny_bert, nan_bert, prompted, pairs, monkeypatch):
    images = at_hand(mteb.abstasks.AbsTaskSTS, {}, "LocalImages", "STS", "cosine_spearman", ["image"])
    tasks = register(monkeypatch, sts_task(pairs), images)

    def evaluated(model, tasks, *more):
        return call("evaluate", "--model", model, "--tasks", tasks, *more)

    refused(evaluated(tiny_bert, "mteb:STSBenchmrk"), "--tasks: mteb has no task 'STSBenchmrk'", "mteb:STSBenchmark")
    refused(evaluated(tiny_bert, tasks), "mteb:LocalImages: a task of image; these models take text alone")
    refused(evaluated(nan_bert, "mteb:LocalSTS"), "the model's embeddings are not finite")
    refused(evaluated(prompted, "mteb:LocalSTS", "--prompt-name", "x"), "prompt_name='x': the model has the prompts")

    def unreachable(*_, **__):
        raise ConnectionError("Couldn't reach 'mteb/stsbenchmark-sts'\non the Hub")

    monkeypatch.setattr("mteb.abstasks.abstask.load_dataset", unreachable)
    because = "mteb:STSBenchmark: its data could not be loaded: Couldn't reach 'mteb/stsbenchmark-sts' on the Hub"
    refused(evaluated("none", "mteb:STSBenchmark"), because)


def test_an_error_in_mteb_s_own_code_is_a_line_and_one_in_the_model_is_not(tiny_bert, pairs, monkeypatch, tmp_path):
    without_test = {"dev": None}
    empty = at_hand(mteb.abstasks.AbsTaskSTS, without_test, "LocalEmpty", "STS", "cosine_spearman")
    tasks = register(monkeypatch, sts_task(pairs), empty)
    done = call("evaluate", "--model", tiny_bert, "--tasks", tasks, "--output", tmp_path / "scores.json")
    refused(done, "mteb:LocalEmpty: mteb could not score it: KeyError: 'test'")
    assert not (tmp_path / "scores.json").exists()
    model = evaluate_module.encoders(SimCSE(tiny_bert), None, None)
    monkeypatch.setattr(SimCSE, "encode", lambda self, texts, **_: np.zeros((0, 32)) if not texts else 1 // 0)
    with pytest.raises(ZeroDivisionError):
        read(["LocalSTS"])(model)


def test_wrong_use_from_python_is_refused(tiny_bert, pairs):
    model, task = SimCSE(tiny_bert), sts_task(pairs)()
    with pytest.raises(UserError, match="not a model of the class SimCSE"):
        Encoder("runs/unsup")
    with pytest.raises(UserError, match="prompt_name='x'"):
        Encoder(model, prompt_name="x")
    with pytest.raises(TypeError, match="use normalize_to_unit="):
        Encoder(model, normalize_embeddings=True)
    with pytest.raises(UserError, match="encode_kwargs: precision: changes the embeddings"):
        mteb.evaluate(Encoder(model), task, cache=None, co2_tracker=False, encode_kwargs={"precision": "int8"})
    with pytest.raises(UserError, match="its inputs are image; this model takes text alone"):
        given = {"task_metadata": task.metadata, "hf_split": "test", "hf_subset": "default"}
        Encoder(model).encode([{"image": [None]}], **given)
    with pytest.raises(UserError, match=r"text 1 is \['on'\], not a string"):
        Encoder(model).encode([{"text": ["on", ["on"]]}], **given)
    with pytest.raises(UserError, match="models of the class SimCSE, without a change of their embeddings"):
        Benchmarks({})(model.encode)


def test_tasks_that_are_means_of_others_are_read_and_scored(pairs, monkeypatch):
    from mteb.abstasks.aggregate_task_metadata import AggregateTaskMetadata
    from mteb.abstasks.aggregated_task import AbsTaskAggregate

    half = [slice(0, 10), slice(10, 20)]
    parts = [
        sts_task(sts.Pairs(pairs.first[part], pairs.second[part], pairs.gold[part], {}), f"Part{number}")()
        for number, part in enumerate(half)
    ]
    described = AggregateTaskMetadata(
        name="LocalMean",
        description="A mean.",
        tasks=parts,
        main_score="cosine_spearman",
        type="STS",
        eval_splits=["test"],
    )
    register(monkeypatch, type("LocalMean", (AbsTaskAggregate,), {"metadata": described}))
    assert list(read(["LocalMean"]).tasks) == ["LocalMean"] and all(part.data_loaded for part in parts)
