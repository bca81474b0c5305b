from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np

from simcse_jax.errors import UserError
from simcse_jax.evaluation import geometry, sts
from simcse_jax.training.evaluation import Evaluation
from simcse_jax.training.loop import Run, Training
from simcse_jax.training.patience import Patience
from simcse_jax.training.result import final_scores, finish


def test_a_finished_run_is_scored_on_what_it_lacks_alone():
    pairs = {"dev": sts.Pairs(["a b", "c"], ["a", "d"], np.array([4.5, 1.0]), {})}
    extra = {"stsb_dev": sts.Correlation("stsb_dev", pairs), "geometry": geometry.Plane(pairs)}
    chooses = sts.Correlation("eval/dev", pairs)
    evaluation = Evaluation(chooses, [sts.Similarity(pairs)], False, None, extra)
    encoded = []

    class Model:
        """Counts what it encodes; its first elements are another model."""

        def __init__(self, size=4):
            self.size = size

        def with_progress(self, some, shown):
            encoded.append((self.size, len(some)))
            return np.random.default_rng(len(some)).normal(size=(len(some), 4))[:, : self.size].astype(np.float32)

        def truncated(self, size, normalized_first):
            return Model(size)

    inputs = SimpleNamespace(evaluation=evaluation, sizes=(2,), language_model=None)
    whole = final_scores(inputs, Model(), 1, {})
    assert whole.keys() == {"dev", "average", "stsb_dev", "alignment", "uniformity", "truncated"}
    numbers = whole | {"stsb_dev": 80.127, "alignment": 0.25, "uniformity": -2.5}
    also = "also:\nstsb_dev | alignment | uniformity\n---------+-----------+-----------\n"
    assert [*evaluation.tables(numbers)][-1] == f"{also}   80.13 |      0.25 |       -2.5"
    assert whole["truncated"]["2"].keys() == whole.keys() - {"truncated"} and len(encoded) == 2 * 3
    encoded.clear()
    assert final_scores(inputs, Model(), 1, whole) == whole and len(encoded) == 2 * 3  # nothing is missing: all again
    encoded.clear()
    without = {name: value for name, value in whole.items() if name not in ("alignment", "truncated")}
    without |= {"dev": "kept", "masked_token_accuracy": 20.0, "truncated": {"2": {"dev": "kept, too"}}}
    again = final_scores(inputs, Model(), 1, without)
    assert len(encoded) == 1 + 2 and (again["alignment"], again["stsb_dev"]) == (whole["alignment"], whole["stsb_dev"])
    assert (again["dev"], again["masked_token_accuracy"]) == ("kept", 20.0)
    expected = {name: value for name, value in whole["truncated"]["2"].items() if name != "average"}
    assert again["truncated"]["2"] == expected | {"dev": "kept, too"}
    encoded.clear()
    incomplete = {name: value for name, value in without.items() if name != "dev"}
    assert final_scores(inputs, Model(), 1, incomplete) == whole and len(encoded) == 2 * 3


def test_of_several_runs_one_that_diverged_before_a_kill_or_cannot_be_scored_is_given_up_alone(capsys, monkeypatch):
    def report(run, *_):
        if run.name == "b":
            raise UserError("the embeddings vary in 0 directions only")
        return {"dev": 1.0}

    monkeypatch.setattr("simcse_jax.training.result.report", report)
    setup = SimpleNamespace(together=True, inputs=None, model=lambda params, tower: params)
    setup.of_run = lambda params, row: {name: value[row] for name, value in params.items()}
    setup.embed = SimpleNamespace(with_params=lambda params: params)
    results = []
    metrics = SimpleNamespace(lines=[], finish=results.append)
    runs = [Run(None, None, Patience(1), name, metrics=metrics) for name in "abcd"]
    runs[3].ended = True  # so what came after does not count
    training = Training(setup, runs, [], None, {}, None, best={"x": jnp.zeros((4, 2))})
    broken = {"x": jnp.ones((4, 2)), "y": jnp.array([[1.0, np.nan], [1.0, 2.0], [1.0, 2.0], [np.inf, 1.0]])}
    finish(training, SimpleNamespace(params=broken, step=9))
    problems = ["step 9: its parameters are not finite", "step 9: the embeddings vary in 0 directions only", "", ""]
    assert [run.problem for run in runs] == problems and results == [{"dev": 1.0}] * 2
    assert "a: step 9: its parameters are not finite" in capsys.readouterr().out
