import json
import shutil

import numpy as np
import pytest
from support import assert_arrays, lines, sentences
from support.models import add_language_model
from support.resuming import trained_and_resumed
from support.run_configs import short_run

from simcse_jax.config import default_config
from simcse_jax.config.checks import validate
from simcse_jax.config.flags import parse
from simcse_jax.data.scores import Scores
from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.models import parameters
from simcse_jax.runs import exporting
from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.runs.dynamics import checkpoint_encoders
from simcse_jax.runs.loading import load_model
from simcse_jax.runs.state import initial_params, model_spec, split_shapes
from simcse_jax.training import run, scoring, setup
from simcse_jax.training.run import train_and_evaluate


@pytest.mark.slow
def test_objectives_parameters_train_and_are_saved_and_the_model_encodes_anchors(masked_bert, corpus, tmp_path, capsys):
    fields = {"objective__info_nce__weight": 0.0, "objective__off_dropout__weight": 1.0, "objective__mlm__weight": 0.1}
    fields |= {"objective__dimension_wise__weight": 0.1, "model__dual_encoder": True, "model__mlp": "always"}
    config = short_run(masked_bert, corpus["csv"], corpus["dev"], **fields)
    train_and_evaluate(config, str(tmp_path / "run"))
    printed = capsys.readouterr().out
    assert printed.count("no language-model head; objective.mlm starts with a fresh one") == 1
    model, start = load_model(str(tmp_path / "run")), load(str(masked_bert))
    assert model.params.keys() == start.params.keys() | {"head.kernel", "head.bias"}
    checkpoints = Checkpoints(tmp_path / "run", read_only=True)
    saved = checkpoints.restore_params(checkpoints.best, split_shapes(model.config, model_spec(config))[0])
    first = initial_params(model_spec(config), start)
    assert saved.keys() == first.keys()
    moved = {name for name in saved if np.abs(np.asarray(saved[name]) - np.asarray(first[name])).max() > 1e-5}
    assert {f"{parameters.SECOND}encoder.layers.0.qkv.kernel", f"{parameters.SECOND}head.kernel"} <= moved
    assert {f"{parameters.LANGUAGE_MODEL}{name}" for name in ("dense.kernel", "norm.scale", "bias")} <= moved
    assert_arrays(parameters.subset(saved, parameters.LANGUAGE_MODEL), model.language_model)
    for name, value in model.params.items():
        np.testing.assert_array_equal(value, saved[name])
        assert name in moved or name.endswith(("type.embedding", "position.embedding"))
    # Two heads that started alike would be one encoder's twice.
    assert np.abs(np.asarray(first["head.kernel"]) - np.asarray(first["second.head.kernel"])).max() > 0.01


@pytest.mark.slow
def test_sbert_s_classifier_starts_undecided_and_is_trained_and_saved_but_no_part_of_the_model(tiny_bert, tmp_path):
    labels = [("entailment", "neutral", "contradiction")[row % 3] for row in range(48)]
    rows = [",".join(row) for row in zip(sentences(48, 1), sentences(48, 2), labels, strict=True)]
    (tmp_path / "pairs.csv").write_text("\n".join(["sent0,sent1,label", *rows]) + "\n")
    fields = {"objective__info_nce__weight": 0.0, "objective__softmax_nli__weight": 1.0, "model__mlp": "none"}
    fields |= {"parallel__devices": 1, "model__num_layers": 1, "train__max_steps": 2}
    config = short_run(tiny_bert, tmp_path / "pairs.csv", **fields)
    train_and_evaluate(config, str(tmp_path / "run"))
    assert lines(tmp_path / "run")[0]["loss"] == pytest.approx(np.log(3), abs=0.3)
    model = load_model(str(tmp_path / "run"))
    assert "softmax_nli.kernel" not in model.params
    saved = Checkpoints(tmp_path / "run", read_only=True).restore_params(
        2, split_shapes(model.config, model_spec(config))[0]
    )
    first = initial_params(model_spec(config), load_model(str(tiny_bert), 1))
    assert saved.keys() == first.keys() == model.params.keys() | {"softmax_nli.kernel"}
    for name in ("softmax_nli.kernel", "encoder.layers.0.qkv.kernel"):
        assert np.abs(np.asarray(saved[name]) - np.asarray(first[name])).max() > 1e-4
    assert_arrays(saved, model.params)


@pytest.mark.slow
def test_of_two_encoders_the_better_one_is_the_model(tiny_bert, corpus, tmp_path, monkeypatch):
    """Contrastive tension; the second encoder scores better at step 2, and the first one at all other steps."""
    scores = iter([5.0, 5.0, 1.0, 9.0, 3.0, 2.0])
    monkeypatch.setattr(scoring, "evaluate_all", lambda embed, scoring: {"eval/dev": next(scores)})
    first = "encoder.layers.0.qkv.kernel"
    measured = lambda self, embed: {"sum": float(embed.embedder.params[first].sum())}  # noqa: E731
    monkeypatch.setattr(setup.LastLayer, "__call__", measured)
    fields = {"objective__info_nce__weight": 0.0, "objective__contrastive_tension__weight": 1.0}
    fields |= {"objective__contrastive_tension__negatives": 3, "objective__contrastive_tension__reading": "released"}
    fields |= {"model__dual_encoder": True, "model__mlp": "none", "views__positive": "off", "eval__encoder": "better"}
    fields["analysis__every"] = 2
    config = short_run(tiny_bert, corpus["txt"], corpus["dev"], model__pooler="avg", **fields)
    train_and_evaluate(config, str(tmp_path / "run"))
    written = lines(tmp_path / "run")
    scored = [(line["step"], line["eval/dev"], line["second_encoder"]) for line in written if "eval/dev" in line]
    assert scored == [(0, 5.0, 0), (2, 9.0, 1), (4, 3.0, 0)]
    checkpoints = Checkpoints(tmp_path / "run", read_only=True)
    best, last = load_model(str(tmp_path / "run")), load_model(str(tmp_path / "run@step=4"))
    for step, model, tower in ((2, best, 1), (4, last, 0)):
        saved = checkpoints.restore_params(step, split_shapes(model.config, model_spec(config))[0])
        assert_arrays(parameters.sentence_encoder(saved, tower), model.params)
        assert np.abs(saved["encoder.layers.0.qkv.kernel"] - saved["second.encoder.layers.0.qkv.kernel"]).max() > 1e-5
    assert checkpoints.best == 2
    kept = {each.step: each.embed.params for each in checkpoint_encoders(tmp_path / "run")}
    for step, model in ((2, best), (4, last)):
        np.testing.assert_array_equal(kept[step][first], model.params[first])
    measured = {line["step"]: (line["sum"], line["second_encoder"]) for line in written if "sum" in line}
    sums = {step: float(kept[step][first].sum()) for step in (2, 4)}
    assert measured == {0: (measured[0][0], 0), 2: (pytest.approx(sums[2]), 1), 4: (pytest.approx(sums[4]), 0)}


def test_contrastive_tension_takes_one_column_and_enough_sentences(tiny_bert, corpus):
    fields = {"objective__info_nce__weight": 0.0, "objective__contrastive_tension__weight": 1.0}
    read = corpus_of(tiny_bert, corpus["txt"], **fields)
    assert (read.num_columns, read.num_examples) == (2, 40)
    with pytest.raises(UserError, match=r"has 3 columns of them; choose one with data\.columns\.anchor"):
        corpus_of(tiny_bert, corpus["csv"], **fields)
    with pytest.raises(UserError, match="40 sentences make 40 pairs, fewer than a batch"):
        corpus_of(tiny_bert, corpus["txt"], train__batch_size=48, **fields)
    with pytest.raises(UserError, match="has positives of its own"):
        corpus_of(tiny_bert, corpus["csv"], data__augment__name="crop")
    with pytest.raises(UserError, match=r"train\.batch_size=1: must be 2 or more"):
        short_run(tiny_bert, corpus["txt"], objective__barlow_twins__weight=1.0, train__batch_size=1)


def corpus_of(model, data, **fields):
    config = short_run(model, data, **fields)
    return run.read_inputs(config).corpus


def test_a_changed_copy_is_the_positive_of_a_sentence(tiny_bert, corpus):
    plain = corpus_of(tiny_bert, corpus["txt"])
    pairs = corpus_of(tiny_bert, corpus["txt"], data__augment__name="delete_one")
    assert plain.input_ids.shape[1] == 1 and pairs.input_ids.shape[1] == 2
    np.testing.assert_array_equal(pairs.input_ids[:, 0], plain.input_ids[:, 0])
    lengths = pairs.attention_mask.sum(2)  # every sentence of the corpus has two words or more
    np.testing.assert_array_equal(lengths[:, 1], lengths[:, 0] - 1)
    both = corpus_of(tiny_bert, corpus["txt"], data__augment__name="delete_one", data__augment__both=True)
    np.testing.assert_array_equal(both.input_ids[:, 1], pairs.input_ids[:, 1])
    np.testing.assert_array_equal(both.attention_mask.sum(2)[:, 0], lengths[:, 1])
    assert (both.input_ids[:, 0] != both.input_ids[:, 1]).any()


def negated(folder, name, column, missing=""):
    pairs = zip(sentences(48, 1), sentences(48, 2), strict=True)
    rows = [f"{sentence},{missing if row % 3 == 0 else other}" for row, (sentence, other) in enumerate(pairs)]
    (folder / name).write_text("\n".join([f"sentence,{column}", *rows]) + "\n")
    return folder / name


def of_file(name, model, data, dev, *more):
    given = {"model.init_from": model, "data.train": data, "data.max_length": 16, "eval.data": dev, "eval.every": 2}
    given |= {"train.batch_size": 8, "train.max_steps": 4, "parallel.devices": 2, "parallel.chunk_size": 3}
    config, _ = parse([f"--config={name}", "--workdir=w", *(f"--config.{key}={x}" for key, x in given.items()), *more])
    validate(config)
    return config


def test_rows_may_lack_a_soft_negative_and_sentences_are_their_own_positives(masked_bert, corpus, tmp_path, capsys):
    some = of_file("sncse", masked_bert, negated(tmp_path, "some.csv", "negation_1"), corpus["dev"])
    found = run.read_inputs(some).corpus
    assert "some.csv: 48 rows of 2 to 3 sentences" in capsys.readouterr().out
    np.testing.assert_array_equal(found.present, [[True, True, row % 3 > 0] for row in range(48)])
    np.testing.assert_array_equal(found.input_ids[:, 0], found.input_ids[:, 1])
    blank = of_file("sncse", masked_bert, negated(tmp_path, "blank.csv", "negation"), corpus["dev"])
    assert run.read_inputs(blank).corpus.num_rows == 32  # a single column has one in every row
    assert "blank.csv: 32 triplets, 16 blank rows skipped" in capsys.readouterr().out


def test_data_without_soft_negatives_are_refused(masked_bert, corpus, tmp_path):
    data = negated(tmp_path, "some.csv", "negation_1")
    without = negated(tmp_path, "other.csv", "other")
    for file, field, named in (
        (without, "", r"other.csv: no column 'negation' \(data.columns.negative\)"),
        (data, "--config.data.columns.negative=", "bidirectional_margin.weight: needs soft negatives"),
    ):
        with pytest.raises(UserError, match=named):
            run.read_inputs(of_file("sncse", masked_bert, file, corpus["dev"], *filter(None, [field])))


@pytest.mark.slow
def test_diffcse_resumes_bit_for_bit_with_its_generator_and_is_exported_without_it(language_model, corpus, tmp_path):
    generator = shutil.copytree(language_model, tmp_path / "generator")
    chosen = f"--config.model.generator={generator}", "--config.train.learning_rate=1e-3"
    config = of_file("diffcse:simcse_plus_plus", language_model, corpus["txt"], corpus["dev"], *chosen)
    straight = trained_and_resumed(config, tmp_path)
    trained = {"encoder", "projector", "discriminator", "replaced_token_detection"}
    assert {name.partition(".")[0] for name in straight} == trained
    assert "model.generator" in json.loads((tmp_path / "run" / "run.json").read_text())["sha256"]
    model = load_model(f"{tmp_path / 'run'}@step=4")
    assert {name.partition(".")[0] for name in model.params} == {"encoder"} and model.language_model is None
    assert_arrays(straight, model.params)
    exporting.export(tmp_path / "run", tmp_path / "exported")
    assert load(str(tmp_path / "exported")).params.keys() == model.params.keys()
    again = tmp_path / "stopped"
    shutil.rmtree(again / "checkpoints" / "4")
    add_language_model(generator, seed=2)
    with pytest.raises(UserError, match=r"the contents of model\.generator=.* have changed"):
        train_and_evaluate(config, str(again))


def test_pairs_without_a_score_are_skipped_and_scores_that_do_not_fit_are_refused(tiny_bert, corpus, tmp_path, capsys):
    graded, pairs = tmp_path / "pairs.tsv", zip(sentences(49, 1), sentences(49, 2), strict=True)
    rows = [f"{first}\t{second}\t{row % 6 if row < 48 else ''}" for row, (first, second) in enumerate(pairs)]
    graded.write_text("\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n")
    fields = {"objective__info_nce__weight": 0.0, "objective__cosent__weight": 1.0}
    corpus_of(tiny_bert, graded, **fields)
    assert f"{graded}: 48 pairs, 1 without a score skipped\n" in capsys.readouterr().out
    for data, more, named in (
        (corpus["csv"], {}, "no scores, but objective.cosent needs them"),
        (graded, {"objective__cosine_mse__weight": 1.0}, "objective.cosine_mse needs scores within 0 to 1"),
        (graded, {"data__score_range": ("0", "1")}, "within data.score_range=0,1"),
    ):
        with pytest.raises(UserError, match=named):
            corpus_of(tiny_bert, data, **fields, **more)


def scored(**fields):
    config = default_config()
    chosen = {"objective.info_nce.weight": 0.0, "objective.cosent.weight": 1.0}
    config.update_from_flattened_dict(chosen | {name.replace("__", "."): value for name, value in fields.items()})
    return config


def test_scores_are_read_as_the_objectives_need_them():
    assert setup.score_spec(default_config()) is None and setup.score_spec(scored()) == Scores("objective.cosent")
    assert setup.score_spec(scored(data__score_range=("0", "5"))) == Scores("objective.cosent", (0.0, 5.0), True)
    unit = {"objective__cosine_mse__weight": 1.0}
    assert setup.score_spec(scored(**unit)) == Scores("objective.cosine_mse", (0.0, 1.0))
    assert setup.score_spec(scored(**unit, data__score_range=("1", "5"))).bounds == (1.0, 5.0)
