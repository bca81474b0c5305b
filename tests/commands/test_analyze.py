import json
import shutil

import numpy as np
import pytest
from support import call, refused, sentences, write_model

import simcse_jax
from simcse_jax.errors import UserError
from simcse_jax.evaluation.analysis import measure, report, tokens
from simcse_jax.evaluation.analysis.sentences import SentenceSample
from simcse_jax.evaluation.analysis.tokens import Protocol
from simcse_jax.simcse import SimCSE

# What the authors' code printed for all-MiniLM-L6-v2 on these sentences (benchmarks/protocols.py).
SELF_SIMILARITY = (0.955020, 0.903137, 0.839910, 0.798811, 0.793513, 0.811518, 0.644271)
INTRA_SENTENCE = (0.365135, 0.463086, 0.509449, 0.561268, 0.579530, 0.580068, 0.663366)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "some.csv").write_text("sentence,note\n" + "".join(f"{text},x\n" for text in sentences(60)))
    (folder / "few.txt").write_text("the cat sat\n" * 6)
    (folder / "some.txt").write_text("the cat sat\nthe dog sat\na cat ran\n" * 6)
    return folder


def columns(rows: list[dict], name: str) -> list[float]:
    return [row[name] for row in rows]


@pytest.mark.slow
def test_two_pairs_of_models_are_measured_and_reported(tmp_path, tiny_bert, data):
    output, one = tmp_path / "new" / "folder", f"{tiny_bert}@1"
    done = call(
        *("analyze", "--pair", tiny_bert, one, "--pair", f"{one}=one layer", tiny_bert),
        *("--data", data / "some.csv", "--output", output, "--min-count", 3, "--samples", 50, "--seed", 4),
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads((output / "metrics.json").read_text())
    written = {"metrics.json", "sentences.json", "report.html", "anisotropy.png", "correlation.svg"}
    assert written <= {path.name for path in output.iterdir()}

    protocol = Protocol(min_count=3, samples=50, seed=4)
    names = {"one layer": one, "tiny-bert": str(tiny_bert)}  # a base stands before its model
    models = (SimCSE(str(tiny_bert), num_layers=count) for count in (1, 0))
    encoders = {label: model.token_encoder() for label, model in zip(names, models, strict=True)}
    surveys = {label: tokens.survey(encoder, sentences(60), protocol) for label, encoder in encoders.items()}
    measured = {label: measure.measure(encoder, surveys[label]) for label, encoder in encoders.items()}
    pairs = [("tiny-bert", "one layer"), ("one layer", "tiny-bert")]
    expected = measure.collect(names, pairs, surveys, measured, data="some.csv", max_length=64)
    assert found == json.loads(json.dumps(expected))
    assert [len(model["layers"]) for model in found["models"]] == [2, 3] and len(found["pairs"][0]["tokens"]) > 10
    assert found["protocol"].items() >= {"min_count": 3, "samples": 50, "seed": 4, "max_length": 64}.items()

    last = found["models"][1]["layers"][-1]
    assert f"     2 | {last['anisotropy']:10.3f} | {last['self_similarity']:9.3f}" in done.stdout
    assert f"less contextualized: {' '.join(found['pairs'][1]['less_contextualized'])}" in done.stdout
    assert f"at best {found['correlations'][0]['best']:.3f}, over the " in done.stdout


@pytest.fixture
def written(monkeypatch):
    last = {}

    def write(metrics, folder, **more):
        last.update(metrics=metrics, **more)
        return []

    monkeypatch.setattr(report, "write", write)
    return last


def test_a_model_alone_has_nothing_to_be_compared_with(tmp_path, tiny_bert, data, written):
    done = call("analyze", "--model", tiny_bert, "--data", data / "few.txt", "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert written["metrics"]["pairs"] == written["metrics"]["correlations"] == [] and "jax" in written["versions"]
    assert columns(written["metrics"]["models"], "samples") == [6]
    assert "the anisotropy baseline has 6 tokens, one from each sentence" in done.stdout
    assert written["maps"] == {} and written["compared"] is None  # six times the same sentence


@pytest.mark.slow
def test_figure_1_is_drawn_of_any_kept_checkpoint(tmp_path, trained, tiny_bert, data, written):
    early = f"{trained}@step=last"
    given = ("--pair", early, tiny_bert, "--models", f"{early}@1=one layer", "--data", data / "some.txt")
    done = call("analyze", *given, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert columns(written["metrics"]["models"], "model") == [str(tiny_bert), early, f"{early}@1"]
    assert written["compared"]["changes"] == [[list(written["compared"]["models"])[1], "tiny-bert"]]
    assert ": unrelated sentences " in done.stdout.splitlines()[0] and " → " in done.stdout
    before, after, _ = written["maps"]["map"].points.values()
    assert before.shape == after.shape == (3, 2) and list(written["maps"]["map"].points)[2] == "one layer"


@pytest.mark.slow
def test_a_model_that_pools_in_an_unknown_way_is_measured_without_a_map(tmp_path, tiny_bert, data, written):
    model = shutil.copytree(tiny_bert, tmp_path / "model")
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (model / "modules.json").write_text(json.dumps(modules))
    (model / "1_Pooling").mkdir()
    (model / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_median_tokens": True}))
    done = call("analyze", "--model", model, "--data", data / "some.txt", "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert written["maps"] == {}
    assert f"no map of model: how {model} pools is not known here; name a pooler, {model}@avg" in done.stdout
    done = call("analyze", "--model", f"{model}@avg", "--data", data / "some.txt", "--output", tmp_path / "out")
    assert (done.returncode, "no map" in done.stdout) == (0, False)
    assert len(written["maps"]["map"].points) == 1


@pytest.mark.slow
def test_two_models_are_compared_at_the_length_that_both_take(tmp_path, tiny_bert, data, written):
    short = shutil.copytree(tiny_bert, tmp_path / "short")
    settings = json.loads((short / "tokenizer_config.json").read_text())
    (short / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 8}))
    given = ("--pair", tiny_bert, short, "--data", data / "some.csv", "--output", tmp_path / "out")
    done = call("analyze", *given)
    assert done.returncode == 0, done.stderr
    assert written["metrics"]["protocol"]["max_length"] == 8
    cut = sum(len(text.split()) > 6 for text in sentences(60))
    assert cut and f"; {cut} of the sentences are longer than 8 tokens and are cut" in done.stdout
    assert all(token["change"] == 0 for token in written["metrics"]["pairs"][0]["tokens"])


@pytest.mark.optimized
@pytest.mark.slow
def test_the_papers_figures_are_reached(tmp_path, minilm, senteval, written, monkeypatch):
    """Tables 1 and 3 and Figures 2 to 7 for the fine-tuned MiniLM, and what the authors' own code printed for it."""
    nothing = SentenceSample([], [], [], np.zeros(0))  # no figure needs the pairs, so they are not encoded as well
    monkeypatch.setattr("simcse_jax.evaluation.analysis.sentences.sample", lambda *_: nothing)
    # Small batches have less padding.
    done = call("analyze", "--model", minilm, "--data", senteval, "--output", tmp_path, "--batch-size", 8)
    assert (done.returncode, done.stderr) == (0, "")
    (found,) = written["metrics"]["models"]
    assert (written["metrics"]["data"], written["metrics"]["sentences"]) == ("STS-B test", 1379)
    assert found["tokens"] == 19592

    # The authors count the first [PAD] after a sentence as a token with a self-similarity, below 0.0005.
    assert columns(found["layers"], "self_similarity") == pytest.approx(SELF_SIMILARITY, abs=6e-4)
    assert columns(found["layers"], "intra_sentence_similarity") == pytest.approx(INTRA_SENTENCE, abs=2e-5)
    assert np.round(found["dimensions"]["top_share"], 3).tolist() == [0.008, 0.014, 0.020]
    needed = found["dimensions"]["needed"]
    assert abs(needed["10"] - 19) <= 1 and abs(needed["20"] - 40) <= 2 and abs(needed["50"] - 121) <= 2
    r2 = {row["k"]: row["r2"] for row in found["informativity"]}
    assert list(r2) == [1, 2, 3, 5, 10, 20, 50, 100, 300] and r2[300] == pytest.approx(0.285, abs=0.02)

    anisotropy = columns(found["layers"], "anisotropy")
    assert anisotropy[-1] < 0.02 and np.argmax(anisotropy) == 5 and anisotropy[5] == pytest.approx(0.208, abs=0.02)
    for name in ("intra_sentence_similarity", "adjusted_intra_sentence_similarity"):
        assert np.argmax(columns(found["layers"], name)) == 6


MISTAKES = [
    ({"data": "some.csv"}, "nothing to measure; give models, pair or runs"),
    ({"models": "m"}, "data: is missing"),
    ({"models": "a", "runs": "b"}, "runs: does not go with models, pair or rank"),
    ({"models": "m", "data": "d", "rank": [1]}, "rank [1]: Must be >= 2"),
    ({"runs": "a", "rank": ()}, "runs: does not go with models, pair or rank"),
]


def test_the_rank_of_dimensions_is_measured_and_what_is_wrong_is_named_before_a_model_is_read(
    tmp_path, tiny_bert, data
):
    for options, message in MISTAKES:
        with pytest.raises(UserError) as error:
            simcse_jax.analyze(output="out", **options)
        assert message in str(error.value), options
    output = ("--output", tmp_path / "out")
    refused(call("analyze", "--model", "no/such", "--data", data / "some.csv", "--column", "text", *output), "'text'")
    given = (tiny_bert, write_model(tmp_path / "roberta", "roberta"), "--data", data / "some.csv")
    refused(call("analyze", "--pair", *given, *output), "different tokenizers")
    assert not (tmp_path / "out").exists()
    given = ("--models", tiny_bert, "--data", data / "some.csv")
    refused(call("analyze", "--rank", *given, *output), "--rank 64: the data have")
    given = ("--models", f"{tiny_bert}=tiny", "--data", data / "some.csv", "--output", tmp_path / "out")
    done = call("analyze", *given, "--rank", 16, 8, 8, "--artificial", 64, 0, 4, "--seed", 3)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads((tmp_path / "out" / "rank.json").read_text())
    (model,) = found["models"]
    assert (model["label"], model["dimensions"], found["about"]["seed"]) == ("tiny", 32, 3)
    ranks = {(row["batch"], row["artificial"]): row["ranks"] for row in model["ranks"] if row["reading"] == "paper"}
    expected = {(8, 0): 8, (8, 4): 12, (8, 64): 32, (16, 0): 16, (16, 4): 20, (16, 64): 32}
    assert ranks == {sizes: [rank] * 10 for sizes, rank in expected.items()}
    assert len(model["ranks"]) == 2 * len(expected)  # each size once, in both readings
    assert "tiny: with 8 sentences the correlation of 32 dimensions has rank 8 (at most 8)" in done.stdout
    assert {"rank.png", "report.html"} <= {path.name for path in (tmp_path / "out").iterdir()}
