from types import SimpleNamespace

import numpy as np

from simcse_jax.evaluation import geometry, sts
from simcse_jax.training.evaluation import Evaluation
from simcse_jax.training.result import final_scores


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

    inputs = SimpleNamespace(evaluation=evaluation, sizes=(2,))
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
    without |= {"dev": "kept", "truncated": {"2": {"dev": "kept, too"}}}
    again = final_scores(inputs, Model(), 1, without)
    assert len(encoded) == 1 + 2 and (again["alignment"], again["stsb_dev"]) == (whole["alignment"], whole["stsb_dev"])
    assert again["dev"] == "kept"
    expected = {name: value for name, value in whole["truncated"]["2"].items() if name != "average"}
    assert again["truncated"]["2"] == expected | {"dev": "kept, too"}
    encoded.clear()
    incomplete = {name: value for name, value in without.items() if name != "dev"}
    assert final_scores(inputs, Model(), 1, incomplete) == whole and len(encoded) == 2 * 3
