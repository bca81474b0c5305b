import json
import math
import shutil
import sys
import warnings
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Literal

import numpy as np
import pytest
from safetensors import safe_open
from support import call, refused, sentences
from support.beir import write_beir
from support.later import later
from support.mteb_tasks import at_hand, clustering_task, register, retrieval_task, sts_task
from support.recorded import recorded, twice

from simcse_jax.adapters.mteb import Benchmarks, MtebEncoder, prompt_names
from simcse_jax.commands import evaluate as evaluate_module
from simcse_jax.errors import UserError
from simcse_jax.evaluation import beir, retrieval, sts
from simcse_jax.models.config import SIMILARITIES
from simcse_jax.simcse import SimCSE

mteb = later("mteb")
TEXTS = ["the cat", "she sings", "the old tree", "a red bird"]
STS12 = {"task_metadata": SimpleNamespace(name="STS12", type="STS"), "hf_split": "test", "hf_subset": "default"}


def test_without_mteb_the_command_names_what_installs_it(tiny_bert, monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb", None)
    missing = 'not installed: mteb; run: pip install "simcse_jax[mteb]"'
    refused(call("evaluate", "--model", tiny_bert, "--tasks", "mteb:STS12"), missing)
    with pytest.raises(UserError, match="not installed: mteb"):
        MtebEncoder(None)


@pytest.fixture
def stand_in(monkeypatch):
    names = ("mteb", "mteb.models", "mteb.models.model_meta", "mteb.types")
    made = {name: ModuleType(name) for name in names}
    for name, module in made.items():
        module.__spec__ = ModuleSpec(name, None, origin="here")
        monkeypatch.setitem(sys.modules, name, module)
    top, types = made["mteb"], made["mteb.types"]
    made["mteb.models"].ModelMeta = SimpleNamespace(create_empty=lambda fields: SimpleNamespace(**fields))
    made["mteb.models.model_meta"].ScoringFunction = lambda name: SimpleNamespace(value=name)
    types.Licenses = Literal["apache-2.0", "mit"]
    top.evaluate = lambda encoder, task, **_: SimpleNamespace(task_results=[task.score(encoder)])
    return top


def graded(pairs):
    def score(encoder):
        first, second = (encoder.encode([{"text": texts}], **STS12) for texts in (pairs.first, pairs.second))
        found = sts.spearman(sts.cosine(first, second), pairs.gold) / 100 if len(pairs.gold) else math.nan
        scores = {"test": [{"cosine_spearman": np.float64(found), "n": np.int64(3)}]}
        return SimpleNamespace(main_score=found, scores=scores, dataset_revision="1", mteb_version="2")

    own = {"metadata": SimpleNamespace(main_score="cosine_spearman", type="STS"), "eval_splits": ["test"]}
    return SimpleNamespace(score=score, is_aggregate=False, rng_state=0, np_rng=0, **own)


@pytest.fixture
def pairs(corpus) -> sts.Pairs:
    return sts.read_graded_pairs(corpus["dev"])


MEASURES = {"ndcg@10": "ndcg_at_10", "map@5": "map_at_5", "recall@20": "recall_at_20"}


@twice()
def test_scores_are_those_of_mteb(live, tiny_bert, prompted, pairs, tmp_path):
    """Of graded pairs, and of a collection with the model's prompts, compared by Euclidean distance."""
    folder = write_beir(tmp_path / "tiny")

    def compute():
        (found,) = scored(SimCSE(tiny_bert), sts_task(pairs))
        (of_search,) = scored(SimCSE(prompted), retrieval_task(folder))
        whole = of_search | {name: found[name] for name in ("cosine_spearman", "cosine_pearson")}
        return {name: whole[name] for name in ("cosine_spearman", "cosine_pearson", *MEASURES.values())}

    theirs = recorded("mteb", compute, "torch", "mteb", live=live)
    ours = sts.evaluate(SimCSE(tiny_bert), {"dev": pairs})["dev"]
    assert ours["spearman"] == pytest.approx(100 * theirs["cosine_spearman"], abs=0.01)
    assert ours["pearson"] == pytest.approx(100 * theirs["cosine_pearson"], abs=0.01)
    model = SimCSE(prompted)
    found = retrieval.score(retrieval.sides(model), beir.read(str(folder)), list(MEASURES))
    for name, measure in MEASURES.items():
        assert found[name].mean() == pytest.approx(float(theirs[measure]), abs=1e-5)
    same = retrieval.score(retrieval.sides(model.encode), beir.read(str(folder)), ["ndcg@10"])["ndcg@10"].mean()
    assert abs(same - theirs["ndcg_at_10"]) > 1e-3  # otherwise the prompts could not be seen


def test_tasks_are_scored_none_where_not_defined_and_the_record_has_what_the_leaderboard_shows(
    stand_in, tiny_bert, pairs, tmp_path, glove
):
    model = SimCSE(tiny_bert)
    embed = evaluate_module.Encoders(model, None, None)
    several = Benchmarks({"A": graded(pairs), "B": graded(pairs._replace(gold=pairs.gold[::-1]))})
    numbers, spearman = several(embed), sts.evaluate(model, {"dev": pairs})["dev"]["spearman"]
    result = numbers["mteb"]["A"]
    assert result["main_score"] == pytest.approx(spearman, abs=0.01)
    facts = {"measure": "cosine_spearman", "type": "STS", "revision": "1", "mteb_version": "2"}
    assert facts.items() <= result.items() and json.loads(json.dumps(result["scores"]))["test"][0]["n"] == 3
    mean = np.mean([each["main_score"] for each in numbers["mteb"].values()])
    assert numbers["mteb_average"] == pytest.approx(mean, abs=1e-4)
    assert several.table(numbers).splitlines()[-1].split(" | ")[0].strip() == "average"
    undefined = Benchmarks({"A": graded(pairs._replace(first=[], second=[], gold=pairs.gold[:0]))})
    found = undefined(embed)
    assert found["mteb"]["A"]["main_score"] is None and "mteb_average" not in found
    assert found["mteb"]["A"]["scores"]["test"][0]["cosine_spearman"] is None
    assert undefined.table(found).splitlines()[-1].split(" | ")[-1].strip() == "-"
    card = "license: apache-2.0\nbase_model: ann/base"
    folder = shutil.copytree(tiny_bert, tmp_path / "published")
    (folder / "README.md").write_text(f"---\n{card}\n---\n")
    model = SimCSE(folder)
    meta = MtebEncoder(model).mteb_model_meta
    with safe_open(folder / "model.safetensors", "np") as weights:
        sizes = {name: math.prod(weights.get_slice(name).get_shape()) for name in weights.keys()}  # noqa: SIM118
    words = next(size for name, size in sizes.items() if "word_embeddings" in name)
    own = sum(size for name, size in sizes.items() if "cls." not in name and "pooler." not in name)
    assert (meta.n_parameters, meta.n_embedding_parameters) == (own, words)
    assert meta.memory_usage_mb == round(own * 4 / 1024**2) and meta.framework == ["JAX"]
    assert (meta.name, meta.embed_dim, meta.max_tokens) == ("simcse_jax/published", 32, model.max_length)
    assert (meta.license, meta.adapted_from) == ("apache-2.0", "ann/base")
    for known in (tiny_bert, glove):
        meta = MtebEncoder(SimCSE(known)).mteb_model_meta
        assert meta.license is None and meta.n_parameters
    revisions = [MtebEncoder(model, **more).mteb_model_meta.revision for more in ({}, {"truncate_dim": 5}, {})]
    model.prompts = {"query": "on "}
    revisions += [MtebEncoder(each).mteb_model_meta.revision for each in (SimCSE(folder, pooler="avg"), model)]
    assert revisions[2] == revisions[0] and len(set(revisions)) == 4


def test_embeddings_are_compared_as_the_files_say_prompts_chosen_by_task_and_wrong_use_is_refused(
    stand_in, tiny_bert, prompted
):
    model = SimCSE(tiny_bert)
    embeddings = model.encode(TEXTS[:3])
    for name in SIMILARITIES:
        model.similarity_fn_name = name
        encoder, expected = MtebEncoder(model), model.similarity(embeddings, embeddings)
        np.testing.assert_allclose(encoder.similarity(embeddings, embeddings), expected, atol=1e-5)
        pairwise = encoder.similarity_pairwise(embeddings, embeddings[::-1])
        np.testing.assert_allclose(pairwise, expected[[0, 1, 2], [2, 1, 0]], atol=1e-5)
        assert float(encoder.similarity(embeddings[0], embeddings[1])) == pytest.approx(expected[0, 1], abs=1e-5)
        assert encoder.mteb_model_meta.similarity_fn_name.value == name
    model = SimCSE(tiny_bert)
    with pytest.raises(UserError, match="prompt_name='x'"):
        MtebEncoder(model, prompt_name="x")
    assert prompt_names("A", "STS", None) == ("A", "STS")
    assert prompt_names("A", "Retrieval", "query") == ("A-query", "A", "Retrieval-query", "Retrieval", "query")
    model = SimCSE(prompted)
    found = MtebEncoder(model, prompt_name="query", truncate_dim=5).encode([{"text": TEXTS}], **STS12)
    np.testing.assert_allclose(found, model.encode(TEXTS, prompt_name="query", truncate_dim=5), atol=1e-6)
    encoder, role = MtebEncoder(model), SimpleNamespace(value="document")
    model.prompts["STS"] = "the dog "  # after it was made
    np.testing.assert_allclose(encoder.encode([{"text": TEXTS}], **STS12), model.encode(TEXTS), atol=1e-6)
    found = MtebEncoder(model).encode([{"text": TEXTS[:2]}, {"text": TEXTS[2:]}], **STS12)
    np.testing.assert_allclose(found, model.encode(TEXTS, prompt="the dog "), atol=1e-6)
    found = encoder.encode([{"text": TEXTS}], prompt_type=role, batch_size=2, **STS12)
    np.testing.assert_allclose(found, model.encode_document(TEXTS), atol=1e-6)


def slow(test):
    return pytest.mark.slow(pytest.mark.usefixtures("installed")(test))


@pytest.fixture
def installed():
    pytest.importorskip("mteb")


def scored(model, task, **options) -> list[dict]:
    result = mteb.evaluate(MtebEncoder(model, **options), task(), cache=None, co2_tracker=False)
    return [scores for (scores,) in result.task_results[0].scores.values()]


def evaluate(tmp_path, model, *more) -> tuple[str, dict]:
    output = tmp_path / "scores.json"
    done = call("evaluate", "--model", model, "--output", output, *more)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
    return done.stdout, json.loads(output.read_text())


@slow
@pytest.mark.optimized
def test_tasks_of_mteb_stand_next_to_ours_with_the_same_scores(tmp_path, tiny_bert, corpus, pairs, monkeypatch):
    tasks = register(monkeypatch, sts_task(pairs), clustering_task(sentences(40, 3), [*range(4)] * 10))
    given = ("--data", corpus["dev"], "--tasks", f"sts,{tasks}", "--dimensions", "32,5")
    printed, found = evaluate(tmp_path, tiny_bert, *given)
    assert set(found["truncated"]) == {"32", "5"}
    for size, results in found["truncated"].items():
        own, clustered = (results["mteb"][name]["main_score"] for name in ("LocalSTS", "LocalClustering"))
        assert own == pytest.approx(results["dev"]["spearman"], abs=0.01), size
        assert f"LocalClustering |       v_measure | {clustered:>6.2f}" in printed
        assert f"average |                 | {np.mean([own, clustered]):>6.2f}" in printed
    again = evaluate(tmp_path, tiny_bert, "--tasks", tasks, "--truncate-dim", "5")[1]  # the draws are the same, too
    assert again["mteb"] == found["truncated"]["5"]["mteb"] != found["truncated"]["32"]["mteb"]


@slow
@pytest.mark.optimized
def test_minilm_has_its_score_on_the_first_300_pairs_of_sts_b(tmp_path, minilm, senteval, monkeypatch):
    whole = sts.read(str(senteval), ["STSBenchmark"])[0]["STSBenchmark"]
    pairs = sts.Pairs(whole.first[:300], whole.second[:300], whole.gold[:300], {})
    tasks = register(monkeypatch, sts_task(pairs))
    printed, found = evaluate(tmp_path, minilm, "--pooler", "avg", "--tasks", tasks)
    ours = sts.evaluate(SimCSE(minilm, pooler="avg"), {"first": pairs})["first"]["spearman"]
    assert found["mteb"]["LocalSTS"]["main_score"] == pytest.approx(ours, abs=2e-3)
    assert f"{ours:.2f}" == "93.37" and printed.splitlines()[-1] == "LocalSTS | cosine_spearman |  93.37"


PROMPTS = [{"query": "the man ", "document": "on "}, {"passage": "on "}]
PROMPTS += [{"STS": "a cat ", "STSBenchmark": "the dog ", "Retrieval-query": "he ran ", "document": "on "}]
PROMPTS += [{"NFCorpus-document": "a cat ", "NFCorpus": "the dog ", "Retrieval": "he ran ", "query": "on "}]


@slow
def test_prompts_are_those_of_mteb_with_sentence_transformers(tiny_bert):
    from datasets import Dataset
    from mteb.models import SentenceTransformerEncoderWrapper
    from mteb.types import PromptType
    from sentence_transformers import SentenceTransformer
    from torch.utils.data import DataLoader

    texts = DataLoader(Dataset.from_dict({"text": TEXTS}), batch_size=3)
    ours, theirs = SimCSE(tiny_bert, pooler="avg"), SentenceTransformer(str(tiny_bert), device="cpu")
    asked = [("STSBenchmark", None), ("STS12", None), *(("NFCorpus", role) for role in PromptType)]
    for prompts in PROMPTS:
        ours.prompts = dict(prompts)
        theirs.prompts = dict(prompts) if "passage" in prompts else {"query": "", "document": "", **prompts}
        ours.default_prompt_name = theirs.default_prompt_name = "query" if "query" in prompts else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of prompts that mteb does not know
            wrapped, encoder = SentenceTransformerEncoderWrapper(theirs), MtebEncoder(ours)
        seen = set()
        for task, role in asked:
            given = {"task_metadata": mteb.get_task(task).metadata, "hf_split": "test", "hf_subset": "default"}
            found, expected = (each.encode(texts, prompt_type=role, **given) for each in (encoder, wrapped))
            np.testing.assert_allclose(found, expected, atol=2e-5)
            seen.add(found.tobytes())
        assert len(seen) > 1


@slow
def test_mteb_takes_it_as_an_encoder_and_knows_it_from_others_of_its_name(tiny_bert, tmp_path):
    encoder, cache = MtebEncoder(SimCSE(tiny_bert)), mteb.ResultCache(tmp_path)
    assert isinstance(encoder, mteb.EncoderProtocol)
    assert not isinstance(encoder, mteb.SearchProtocol | mteb.CrossEncoderProtocol)
    assert encoder.mteb_model_meta.zero_shot_percentage(["STS12"]) is None
    task = sts_task(sts.Pairs(["the cat", "he ran", "a bird"], ["a dog", "on", "the tree"], np.arange(3.0), {}))
    for each in (encoder, MtebEncoder(SimCSE(tiny_bert), truncate_dim=5)):
        mteb.evaluate(each, task(), cache=cache, co2_tracker=False)
    assert len(list(tmp_path.rglob("LocalSTS.json"))) == 2


@slow
def test_what_mteb_cannot_score_is_refused_in_one_line(tiny_bert, pairs, monkeypatch, tmp_path):
    images = at_hand(mteb.abstasks.AbsTaskSTS, {}, "LocalImages", "STS", "cosine_spearman", ["image"])
    register(monkeypatch, sts_task(pairs), images)

    def unreachable(*_, **__):
        raise ConnectionError("Couldn't reach 'mteb/stsbenchmark-sts'\non the Hub")

    monkeypatch.setattr("mteb.abstasks.abstask.load_dataset", unreachable)
    for task, *parts in (
        ("STSBenchmrk", "--tasks: mteb has no task 'STSBenchmrk'", "mteb:STSBenchmark"),
        ("LocalImages", "mteb:LocalImages: a task of image"),
        ("STSBenchmark", "mteb:STSBenchmark: its data could not be loaded: Couldn't reach"),
    ):
        refused(call("evaluate", "--model", tiny_bert, "--tasks", f"mteb:{task}"), *parts)
