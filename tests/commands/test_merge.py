import numpy as np
import pytest

from simcse_jax.commands.merge import merge
from simcse_jax.errors import UserError
from simcse_jax.runs.loading import load_model
from simcse_jax.simcse import SimCSE


def test_checkpoints_of_a_run_are_averaged_into_a_folder_that_opens(trained, tmp_path):
    names = [f"{trained}@step=last", str(trained)]
    merge(names, str(tmp_path / "model"))
    first, second, merged = (load_model(name).params for name in [*names, str(tmp_path / "model")])
    for name, value in merged.items():
        np.testing.assert_allclose(value, (np.float64(first[name]) + second[name]) / 2, atol=1e-6)
    assert SimCSE(str(tmp_path / "model")).encode("a dog").shape == (merged_size(first),)
    merge(names, str(tmp_path / "model"), method="slerp", weights=[1, 3])  # replaces it
    for output, message in ((trained, "would take the place"), (tmp_path / "model", "would take the place")):
        with pytest.raises(UserError, match=message):
            merge([*names, str(tmp_path / "model")], str(output))


def merged_size(params):
    return params[next(name for name in params if "word" in name)].shape[1]
