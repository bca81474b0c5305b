import json

import numpy as np

from simcse_jax.evaluation.against import Paired
from simcse_jax.training import folds

PAIRED = Paired(np.array([0, 0, 1]), np.array([0.1, 0.2, 0.3]), np.array([0.3, 0.2, 1 / 3]), np.array([1.0, 2.0, 3.0]))


def test_finished_folds_are_read_as_they_were_written(tmp_path):
    assert folds._read(tmp_path) == ([], "")
    done = [PAIRED, PAIRED._replace(gold=None)]
    folds._write(tmp_path, done, "nDCG@10 × 100")
    found, name = folds._read(tmp_path)
    assert name == "nDCG@10 × 100" and found[1].gold is None
    for before, after in zip(done, found, strict=True):
        assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True) if one is not None)


def test_the_start_embeds_a_text_once():
    class Embedder:
        seen = ()

        def with_progress(self, sentences, shown):
            self.seen += tuple(sentences)
            return np.array([[len(sentence)] for sentence in sentences], np.float32)

    embedder = Embedder()
    embed = folds._remembering(lambda: embedder)
    assert embed(["a", "bb", "a"])[:, 0].tolist() == [1, 2, 1] and embed(["ccc", "bb"])[:, 0].tolist() == [3, 2]
    assert embedder.seen == ("a", "bb", "ccc")


def test_other_tries_of_the_same_rows_and_start_are_counted(tmp_path, capsys):
    prints = {"data.train": "1", "model.init_from": "2"}
    for name, found in {"own": prints, "same": prints, "other": prints | {"data.train": "3"}, "damaged": None}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "folds.json").write_text("{}")
        (tmp_path / name / "run.json").write_text(json.dumps({"sha256": found}) if found else "")
    folds.say_tries(tmp_path / "own", prints | {"eval.data": ""})
    assert f"another run in {tmp_path} tried the same rows and start" in capsys.readouterr().out
    folds.say_tries(tmp_path / "other", {"data.train": "3", "model.init_from": "2"})
    assert not capsys.readouterr().out
