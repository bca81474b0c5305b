import json
import shutil

import numpy as np
import pytest
from support import lines, random_model, write_model
from support.checks import cosine, random
from support.configs import short_run
from support.cross_encoders import write_cross_encoder
from support.gradients import assert_same, compiled, computed
from support.steps import alone, batch, recipe, settings, term

from simcse_jax import SimCSE
from simcse_jax.config.checks import validate
from simcse_jax.data.batches import Batches, Corpus
from simcse_jax.data.corpora import TeacherEmbeddings
from simcse_jax.data.pairing import Pairing
from simcse_jax.data.sources import Examples
from simcse_jax.errors import UserError
from simcse_jax.training import teacher
from simcse_jax.training.loss import make_embedded
from simcse_jax.training.run import read_inputs, train_and_evaluate
from simcse_jax.training.setup import data_spec

GIST = (("margin_kind", "absolute"), ("contrast_anchors", True), ("contrast_positives", True))
DOT = (("similarity", "dot"),)
RANKS = term("ranking_distillation", (("method", "listmle"), ("reading", "paper")))
TERMS = (term("embedding_mse"), term("margin_mse", DOT), term("distill_kl", DOT), term("gist", GIST), RANKS)
TERMS += (term("ranking_consistency", (("reading", "paper"),)),)


@pytest.mark.exact
@pytest.mark.slow
@pytest.mark.parametrize(("devices", "chunk_size"), [(2, 3), (8, 0)])
def test_the_gradient_is_the_same_on_any_number_of_devices_and_in_chunks(devices, chunk_size):
    graph, params, _ = random_model(num_layers=1)
    numbers = {"embedding_mse": {"weight": 1.0}, "margin_mse": {"weight": 0.1}}
    numbers |= {"distill_kl": {"weight": 1.0, "temperature": 2.0, "teacher_temperature": 0.0}}
    numbers |= {"gist": {"weight": 1.0, "temperature": 0.05, "margin": 0.0}}
    numbers |= {"ranking_consistency": {"weight": 1.0, "temperature": 0.05}}
    numbers |= {"ranking_distillation": {"weight": 1.0, "temperature": 0.05, "teacher_temperature": 0.025}}
    data, chosen = batch(3) | {"teacher": random(8, 3, 32)}, settings(objective=numbers)
    expected, found = (
        computed(compiled(graph, recipe(3, objectives=TERMS, chunk_size=size), count), params, data, chosen)
        for count, size in ((1, 0), (devices, chunk_size))
    )
    assert_same(found, expected)


def test_a_view_has_the_embedding_of_its_sentence_or_the_mean_of_several():
    given, views = random(4, 3, 5), np.zeros((3, 4, 2), np.float32)

    def teacher_of(columns, given, **more):
        chosen, first = recipe(columns, **more), alone({"any": given[:, 0]})
        return make_embedded(chosen, chosen.objectives[0].objective, first, views, {"teacher": given}).teacher

    found = teacher_of(3, given)
    np.testing.assert_array_equal(found["anchor"], given[:, 0])
    np.testing.assert_array_equal(found["positive"], given[:, 1])
    np.testing.assert_array_equal(found["hard_negatives"], given[:, 2][None])
    one = teacher_of(1, given[:, :1])
    np.testing.assert_array_equal(one["anchor"], one["positive"])
    assert "hard_negatives" not in one
    np.testing.assert_allclose(teacher_of(3, given, positives=2)["positive"], given[:, 1:].mean(axis=1), rtol=1e-6)


def config_of(model, data, dev, taught_by, **fields):
    fields = {"parallel__devices": 2, "objective__info_nce__weight": 0.0, **fields}
    return validate(short_run(model, data, dev, teacher__model=str(taught_by), **fields))


@pytest.fixture(scope="module")
def larger(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("teacher") / "larger", "bert", hidden_size=48)


def test_sentences_of_a_batch_come_with_their_teacher_s_embeddings(tiny_bert, corpus, larger):
    config = config_of(tiny_bert, corpus["csv"], corpus["dev"], larger, objective__gist__weight=1.0)
    found = read_inputs(config).corpus
    rows, model = found.batches(8, 1)[3], SimCSE(larger)
    texts = [line.split(",") for line in corpus["csv"].read_text().splitlines()[1:]]
    by_ids = {tuple(found.input_ids[row].ravel()): texts[row] for row in range(len(texts))}
    for ids, own in zip(rows["input_ids"], rows["teacher"], strict=True):
        np.testing.assert_allclose(own, model.encode(by_ids[tuple(ids.ravel())]), atol=1e-5)
    assert rows["teacher"].shape == (8, 3, 48)
    ids = np.arange(8, dtype=np.int32).reshape(8, 1, 1)
    own = TeacherEmbeddings(np.arange(8, dtype=np.float32)[:, None], np.arange(8, dtype=np.int32)[:, None], "")
    rows = Batches(Corpus(ids, ids, pairing=Pairing(1, fresh=False), teacher=own), 4, 0)[0]
    np.testing.assert_array_equal(rows["teacher"][..., 0], rows["input_ids"][..., 0])


def test_the_cosine_of_two_teachers_is_the_weighted_mean_of_theirs():
    first, second = random(5, 6), random(5, 4, seed=1)
    second[3] = 0.0  # of no direction
    two = TeacherEmbeddings(first, np.zeros((0, 1), np.int32), "", second, 0.25)
    found = two.of(np.array([[0, 1], [2, 4], [0, 3]]))
    assert found.shape == (3, 2, 10) and found.dtype == np.float32
    for (a, b), rows in zip(((0, 1), (2, 4)), found, strict=False):
        mixed = 0.25 * cosine(first[a], first[b]) + 0.75 * cosine(second[a], second[b])
        assert cosine(*rows) == pytest.approx(mixed, abs=1e-6)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=1e-6)
    assert np.isfinite(found).all() and not found[2, 1, 6:].any()


def losses_of(workdir):
    return [line["loss"] for line in lines(workdir) if "loss" in line]


@pytest.mark.slow
def test_scores_in_the_data_train_as_the_teacher_that_gave_them(tiny_bert, corpus, larger, tmp_path):
    rows = [line.split(",") for line in corpus["csv"].read_text().splitlines()[1:17]]
    model, scored = SimCSE(larger), tmp_path / "scored.jsonl"
    with scored.open("w") as file:
        for anchor, positive, negative in rows:
            first, *others = model.encode([anchor, positive, negative])
            scores = dict(zip(("pos_scores", "neg_scores"), ([float(first @ other)] for other in others), strict=True))
            file.write(json.dumps({"query": anchor, "pos": [positive], "neg": [negative], **scores}) + "\n")
    weights = {"objective__margin_mse__weight": 0.01, "objective__distill_kl__weight": 1.0}
    short = {"train__max_steps": 2, "eval__every": 0, "parallel__devices": 1}
    losses = []
    for name, by in (("taught", larger), ("scored", "")):
        train_and_evaluate(config_of(tiny_bert, scored, "", by, **weights, **short), str(tmp_path / name))
        losses.append(losses_of(tmp_path / name))
    assert len(losses[0]) == 2 and losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.fixture
def kept(tiny_bert, corpus, larger, tmp_path):
    """Teaches two sentences, in a run that keeps what its teachers say."""
    examples = Examples((["a cat"], ["a dog"]), 0)

    def taught_by(name, **fields):
        fields |= {"objective__gist__weight": 1.0, "teacher__kept": str(tmp_path / "kept")}
        config = config_of(tiny_bert, corpus["csv"], corpus["dev"], name, **fields)
        spec = data_spec(config).teacher
        teachers = teacher.read_teachers(spec, config.model.init_from, 32)
        return teacher.teach(spec, teachers, examples), teachers

    return taught_by


def test_two_teachers_embeddings_are_kept_and_their_share_is_part_of_the_key(kept, larger, tiny_bert, tmp_path, capsys):
    first, teachers = kept(larger, teacher__second=str(tiny_bert))
    again, _ = kept(larger, teacher__second=str(tiny_bert))
    for one, found in zip(teachers, (again.embeddings, again.second), strict=True):
        np.testing.assert_array_equal(found[again.places[0]], one(["a cat", "a dog"]))
    printed = capsys.readouterr().out
    assert printed.count("encoding 2 distinct sentences") == 2 and len(list((tmp_path / "kept").glob("*.npy"))) == 2
    assert printed.count(f"{tmp_path}/kept: has the teacher's") == 4  # read once more after it is written
    other, _ = kept(larger, teacher__second=str(tiny_bert), teacher__share=0.25)
    assert first.key == again.key != other.key and (again.share, other.share) == (0.5, 0.25)


def test_embeddings_that_were_kept_are_those_that_were_written_by_this_teacher(kept, larger, tmp_path):
    other = shutil.copytree(larger, tmp_path / "other")
    settings = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(settings | {"hidden_act": "relu"}))
    first, _ = kept(larger)
    (file,) = (tmp_path / "kept").iterdir()
    assert first.key != kept(other)[0].key
    np.testing.assert_array_equal(np.load(file), first.embeddings)
    content = file.read_bytes()
    for damaged in (content[:-1], b"", b"0"):
        file.write_bytes(damaged)
        with pytest.raises(UserError, match=f"^{file}: "):
            kept(larger)


@pytest.mark.slow
def test_a_student_comes_near_its_teacher(tiny_bert, corpus, tmp_path):
    other = write_model(tmp_path / "teacher", "bert", num_hidden_layers=1)
    fields = {"objective__embedding_mse__weight": 1.0, "train__max_steps": 30, "train__learning_rate": 1e-3}
    fields |= {"model__mlp": "none", "model__dropout": 0.01, "parallel__devices": 1, "train__unpad": False}
    train_and_evaluate(config_of(tiny_bert, corpus["txt"], "", other, **fields), str(tmp_path / "run"))
    losses = losses_of(tmp_path / "run")
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])


def test_teachers_and_data_that_do_not_fit_are_refused(tiny_bert, corpus, larger, tmp_path):
    judge, csv = write_cross_encoder(tmp_path / "judge"), corpus["csv"]
    for data, name, by, more, named in (
        (csv, "embedding_mse", larger, {}, "48 elements"),
        (csv, "gist", "/no/such", {}, "^config.teacher.model: "),
        (csv, "gist", judge, {}, f"^config.teacher.model: {judge}"),
        (csv, "gist", larger, {"teacher__second": "/no/such"}, "^config.teacher.second: "),
        (csv, "embedding_mse", tiny_bert, {"teacher__second": str(larger)}, "config.teacher.second"),
        (csv, "gist", larger, {"teacher__kept": str(csv)}, "^config.teacher.kept"),
        (csv, "gist", larger, {"teacher__kept": "gs://b/f"}, "config.teacher.kept.*disk"),
        (corpus["txt"], "margin_mse", larger, {}, "objective.margin_mse.weight: "),
        (csv, "margin_mse", "", {}, "objective.margin_mse"),
    ):
        with pytest.raises(UserError, match=named):
            fields = {f"objective__{name}__weight": 1.0, "model__mlp": "none"}
            read_inputs(config_of(tiny_bert, data, "", by, **fields, **more))
