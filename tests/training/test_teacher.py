"""Runs and steps with a teacher."""

import io
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import call, lines, random_model, refused, train_args, write_model
from support.checks import cosine, random
from support.cross_encoders import write_cross_encoder
from support.resuming import trained_and_resumed
from support.steps import alone, batch, recipe, settings, term

from simcse_jax import SimCSE
from simcse_jax.config import default_config
from simcse_jax.config.checks import validate
from simcse_jax.config.flags import parse
from simcse_jax.data.batches import Batches, Corpus
from simcse_jax.data.corpora import Taught
from simcse_jax.data.pairing import Pairing
from simcse_jax.data.sources import Examples
from simcse_jax.devices.mesh import data_mesh
from simcse_jax.errors import UserError
from simcse_jax.runs.workdir import Workdir
from simcse_jax.training import teacher
from simcse_jax.training.inputs import read_inputs
from simcse_jax.training.loss import make_loss, seen_by
from simcse_jax.training.run import train_and_evaluate

GIST = (("margin_kind", "absolute"), ("contrast_anchors", True), ("contrast_positives", True))
DOT = (("similarity", "dot"),)
RANKS = term("ranking_distillation", (("method", "listmle"), ("reading", "paper")))
TERMS = (term("embedding_mse"), term("margin_mse", DOT), term("distill_kl", DOT), term("gist", GIST), RANKS)
TERMS += (term("ranking_consistency", (("reading", "paper"),)),)


@pytest.mark.exact
@pytest.mark.parametrize(("devices", "chunk_size"), [(2, 3), pytest.param(8, 0, marks=pytest.mark.slow)])
def test_the_gradient_is_the_same_on_any_number_of_devices_and_in_chunks(devices, chunk_size):
    graph, params, _ = random_model(num_layers=1)
    numbers = {"embedding_mse": {"weight": 1.0}, "margin_mse": {"weight": 0.1}}
    numbers |= {"distill_kl": {"weight": 1.0, "temperature": 2.0, "teacher_temperature": 0.0}}
    numbers |= {"gist": {"weight": 1.0, "temperature": 0.05, "margin": 0.0}}
    numbers |= {"ranking_consistency": {"weight": 1.0, "temperature": 0.05}}
    numbers |= {"ranking_distillation": {"weight": 1.0, "temperature": 0.05, "teacher_temperature": 0.025}}
    data = batch(3) | {"teacher": random(8, 3, 32)}
    results = []
    for count, size in ((1, 0), (devices, chunk_size)):
        chosen = recipe(3, objectives=TERMS, chunk_size=size)
        function = jax.jit(make_loss(graph, chosen, data_mesh(jax.devices()[:count])))
        results.append(function(params, jnp.int32(0), data, settings(objective=numbers)))
    ((expected, _), gradient), ((found, _), other) = results
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for name, value in gradient.items():
        scale = max(np.abs(value).max(), 1e-3)
        assert np.abs(np.asarray(other[name]) - np.asarray(value)).max() <= 1e-5 * scale, name


def test_a_view_has_the_embedding_of_its_sentence_or_the_mean_of_several():
    given = random(4, 3, 5)

    def teacher_of(columns, given, **more):
        chosen = recipe(columns, **more)
        views = np.zeros((3, len(given), 2), np.float32)
        return seen_by(
            chosen, chosen.objectives[0].objective, alone({"any": given[:, 0]}), views, {"teacher": given}
        ).teacher

    found = teacher_of(3, given)
    np.testing.assert_array_equal(found["anchor"], given[:, 0])
    np.testing.assert_array_equal(found["positive"], given[:, 1])
    np.testing.assert_array_equal(found["hard_negatives"], given[:, 2][None])
    one = teacher_of(1, given[:, :1])
    np.testing.assert_array_equal(one["anchor"], one["positive"])
    assert "hard_negatives" not in one
    np.testing.assert_allclose(teacher_of(3, given, positives=2)["positive"], given[:, 1:].mean(axis=1), rtol=1e-6)


def config_of(model, data, dev, taught_by, **fields):
    config = default_config()
    chosen = {"model.init_from": str(model), "data.train": str(data), "data.max_length": 16, "eval.data": str(dev)}
    chosen |= {"train.batch_size": 8, "train.max_steps": 4, "eval.every": 2, "parallel.devices": 2}
    chosen |= {"objective.info_nce.weight": 0.0, "train.log_every": 1, "teacher.model": str(taught_by)}
    config.update_from_flattened_dict(chosen | {name.replace("__", "."): value for name, value in fields.items()})
    validate(config)
    return config


@pytest.fixture(scope="module")
def larger(tmp_path_factory):
    """A teacher with embeddings of 48 elements."""
    return write_model(tmp_path_factory.mktemp("teacher") / "larger", "bert", hidden_size=48)


def test_sentences_of_a_batch_come_with_their_teacher_s_embeddings(tiny_bert, corpus, larger):
    config = config_of(tiny_bert, corpus["csv"], corpus["dev"], larger, objective__gist__weight=1.0)
    found = read_inputs(config).corpus
    rows = found.batches(8, 1)[3]
    model = SimCSE(larger)
    texts = [line.split(",") for line in corpus["csv"].read_text().splitlines()[1:]]
    by_ids = {tuple(found.input_ids[row].ravel()): texts[row] for row in range(len(texts))}
    for ids, own in zip(rows["input_ids"], rows["teacher"], strict=True):
        np.testing.assert_allclose(own, model.encode(by_ids[tuple(ids.ravel())]), atol=1e-5)
    assert rows["teacher"].shape == (8, 3, 48)


def test_pairs_that_are_made_of_one_column_have_theirs_too():
    ids = np.arange(8, dtype=np.int32).reshape(8, 1, 1)
    own = Taught(np.arange(8, dtype=np.float32)[:, None], np.arange(8, dtype=np.int32)[:, None], "")
    rows = Batches(Corpus(ids, ids, pairing=Pairing(1, fresh=False), taught=own), 4, 0)[0]
    np.testing.assert_array_equal(rows["teacher"][..., 0], rows["input_ids"][..., 0])


def test_the_cosine_of_two_teachers_is_the_weighted_mean_of_theirs():
    first, second = random(5, 6), random(5, 4, seed=1)
    second[3] = 0.0  # of no direction
    found = Taught(first, np.zeros((0, 1), np.int32), "", second, 0.25).of(np.array([[0, 1], [2, 4], [0, 3]]))
    assert found.shape == (3, 2, 10) and found.dtype == np.float32
    for (a, b), rows in zip(((0, 1), (2, 4)), found, strict=False):
        mixed = 0.25 * cosine(first[a], first[b]) + 0.75 * cosine(second[a], second[b])
        assert cosine(*rows) == pytest.approx(mixed, abs=1e-6)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=1e-6)
    assert np.isfinite(found).all() and not found[2, 1, 6:].any()


def test_rank_cse_resumes_bit_for_bit_and_its_teachers_embeddings_are_kept(tiny_bert, corpus, larger, tmp_path, capsys):
    fields = {"model.init_from": tiny_bert, "data.train": corpus["csv"], "data.max_length": 16}
    fields |= {"eval.data": corpus["dev"], "eval.every": 2, "train.batch_size": 8, "train.max_steps": 4}
    fields |= {"parallel.devices": 2, "parallel.chunk_size": 3, "teacher.kept": tmp_path / "kept"}
    fields |= {"teacher.model": larger, "teacher.second": tiny_bert}
    argv = ["--config=rank_cse", "--workdir=w", *(f"--config.{name}={value}" for name, value in fields.items())]
    config, _ = parse(argv)
    trained_and_resumed(config, tmp_path)
    printed = capsys.readouterr().out
    for name in (larger, tiny_bert):
        assert printed.count(f"distinct sentences with the teacher {name}\n") == 1  # made, then read
    assert printed.count(f"{tmp_path}/kept: has the teacher's") == 4
    assert SimCSE(str(tmp_path / "run")).encode(["A sentence."]).shape == (1, 32)
    moved = config.copy_and_resolve_references()
    moved.teacher.kept = ""  # where they are kept changes no result
    Workdir(tmp_path / "run").check_same_run(moved, {})
    files = list((tmp_path / "kept").glob("*.npy"))
    for file in files:
        file.write_bytes(file.read_bytes()[:100])
    examples = Examples((["a cat"], ["a dog"]), 0)
    read = teacher.read_teachers(config, 32)
    again = teacher.teach(config, read, examples)  # other sentences: other files
    for one, found in zip(read, (again.embeddings, again.second), strict=True):
        np.testing.assert_array_equal(found[again.places[0]], one(["a cat", "a dog"]))
    config.teacher.share = 0.5
    assert teacher.teach(config, read, examples).key != again.key
    assert len(files) == 2 and len(list((tmp_path / "kept").glob("*.npy"))) == 4
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], tmp_path / "next", "--config.objective.gist.weight=1")
    args += [f"--config.teacher.model={larger}", f"--config.teacher.kept={tmp_path}/kept"]
    refused(call("train", *args), f"{tmp_path}/kept/", "remove it, and it is made again")


def test_scores_in_the_data_train_as_the_teacher_that_gave_them(tiny_bert, corpus, larger, tmp_path):
    rows = [line.split(",") for line in corpus["csv"].read_text().splitlines()[1:17]]
    model, scored = SimCSE(larger), tmp_path / "scored.jsonl"
    with scored.open("w") as file:
        for anchor, positive, negative in rows:
            first, *others = model.encode([anchor, positive, negative])
            of_positive, of_negative = (float(first @ other) for other in others)
            record = {"query": anchor, "pos": [positive], "neg": [negative]}
            file.write(json.dumps(record | {"pos_scores": [of_positive], "neg_scores": [of_negative]}) + "\n")
    weights = {"objective__margin_mse__weight": 0.01, "objective__distill_kl__weight": 1.0}
    short = {"train__max_steps": 2, "eval__every": 0, "parallel__devices": 1}
    losses = []
    for name, by in (("taught", larger), ("scored", "")):
        config = config_of(tiny_bert, scored, "", by, **weights, **short)
        train_and_evaluate(config, str(tmp_path / name))
        losses.append([line["loss"] for line in lines(tmp_path / name) if "loss" in line])
    assert len(losses[0]) == 2 and losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_embeddings_that_were_kept_are_those_that_were_written(tiny_bert, corpus, larger, tmp_path):
    kept = str(tmp_path / "kept")
    config = config_of(tiny_bert, corpus["csv"], corpus["dev"], larger, objective__gist__weight=1.0, teacher__kept=kept)
    read, examples = teacher.read_teachers(config, 32), Examples((["a cat"], ["a dog"]), 0)
    first = teacher.teach(config, read, examples)
    (file,) = (tmp_path / "kept").iterdir()
    np.testing.assert_array_equal(np.load(file), first.embeddings)
    content = file.read_bytes()
    archive = io.BytesIO()
    np.savez(archive, first.embeddings)
    changed = content[:-100] + bytes([content[-100] ^ 1]) + content[-99:]
    for damaged in (changed, content[:-1], content + b"0", archive.getvalue(), b"", b"0"):
        file.write_bytes(damaged)
        with pytest.raises(UserError, match=rf"^{file}: .*; remove it, and it is made again"):
            teacher.teach(config, read, examples)


def test_teachers_that_differ_in_their_architecture_alone_have_files_of_their_own(tiny_bert, corpus, larger, tmp_path):
    other = shutil.copytree(larger, tmp_path / "other")
    settings = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(settings | {"hidden_act": "relu"}))
    examples, keys = Examples((["a cat"], ["a dog"]), 0), []
    for name in (larger, other):
        config = config_of(tiny_bert, corpus["csv"], corpus["dev"], name, objective__gist__weight=1.0)
        keys.append(teacher.teach(config, teacher.read_teachers(config, 32), examples).key)
    assert keys[0] != keys[1]


def test_a_student_comes_near_its_teacher(tiny_bert, corpus, tmp_path):
    other = write_model(tmp_path / "teacher", "bert", num_hidden_layers=1)
    args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run", "--config.objective.info_nce.weight=0")
    args += ["--config.objective.embedding_mse.weight=1", f"--config.teacher.model={other}"]
    args += ["--config.train.max_steps=30", "--config.train.learning_rate=1e-3", "--config.train.log_every=1"]
    done = call("train", *args, "--config.eval.every=30", "--config.model.mlp=none", "--config.model.dropout=0.01")
    assert done.returncode == 0, done.stderr
    losses = [line["loss"] for line in lines(tmp_path / "run") if "loss" in line]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])


def test_teachers_and_data_that_do_not_fit_are_refused(tiny_bert, corpus, larger, tmp_path):
    judge = write_cross_encoder(tmp_path / "judge")

    def args(data, name, by, *more):
        chosen = ["--config.objective.info_nce.weight=0", f"--config.objective.{name}.weight=1"]
        chosen += ["--config.model.mlp=none"]
        return train_args(
            tiny_bert, data, corpus["dev"], tmp_path / "run", *chosen, f"--config.teacher.model={by}", *more
        )

    cases = [
        (args(corpus["csv"], "embedding_mse", larger), "its embeddings have 48 elements, those of"),
        (args(corpus["csv"], "gist", "/no/such"), "config.teacher.model: "),
        (args(corpus["csv"], "gist", larger, "--config.teacher.second=/no/such"), "config.teacher.second: "),
        (args(corpus["csv"], "gist", "", f"--config.teacher.second={larger}"), "config.teacher.model: must be set"),
        (args(corpus["csv"], "embedding_mse", tiny_bert, f"--config.teacher.second={larger}"), "have no mean"),
        (args(corpus["txt"], "ranking_distillation", ""), "must be set for objective.ranking_distillation"),
        (args(corpus["txt"], "margin_mse", larger), "objective.margin_mse.weight: needs hard negatives"),
        (args(corpus["csv"], "gist", ""), "config.teacher.model: must be set for objective.gist"),
        (args(corpus["csv"], "gist", judge), f"config.teacher.model: {judge} is a cross-encoder; score candidates"),
        (args(corpus["csv"], "margin_mse", ""), "no scores of positives and hard negatives, but objective.margin_mse"),
        (args(corpus["csv"], "gist", larger, f"--config.teacher.kept={corpus['csv']}"), "config.teacher.kept"),
        (args(corpus["csv"], "gist", larger, "--config.teacher.kept=gs://b/f"), "must be a folder on a disk"),
    ]
    for given, message in cases:
        refused(call("train", *given), message)
        assert not (tmp_path / "run").exists()
