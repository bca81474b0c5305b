import json

import numpy as np
import pytest

from simcse_jax.encoding.files import PartialEmbeddings
from simcse_jax.errors import UserError


def test_only_one_process_writes_and_short_or_stale_files_are_refused(tmp_path):
    def partial():
        return PartialEmbeddings(tmp_path / "emb.npy", 4, np.float32, {})

    first = partial()
    first.append(np.ones((2, 3), np.float32), 0)
    with pytest.raises(UserError, match="another process is writing it"):
        partial().append(np.ones((2, 3), np.float32), 0)
    first._file.close()
    whole = (tmp_path / "emb.npy.partial").read_bytes()
    for left, message in ((b"", "damaged; remove it"), (whole[:-4], "shorter than emb.npy.state.json says")):
        (tmp_path / "emb.npy.partial").write_bytes(left)
        with pytest.raises(UserError, match=message):
            partial().append(np.ones((2, 3), np.float32), 0)
    (tmp_path / "emb.npy.partial").unlink()  # as the message says
    again = partial()
    assert again.done == 0
    again._open(3).close()
    assert not (tmp_path / "emb.npy.state.json").exists()  # else a kill here would leave rows of zeros


def test_files_of_version_0_1_0_are_resumed(tmp_path):
    output, state = tmp_path / "emb.npy", tmp_path / "emb.npy.state.json"
    now = {"--batch-size": 8, "--dtype": "bfloat16", "--output-dtype": "float16"}
    begun = PartialEmbeddings(output, 4, np.float16, now)
    begun.append(np.ones((2, 3), np.float16), 1)
    begun._file.close()
    earlier = {"--batch-size": 8, "--compute-dtype": "bfloat16", "--dtype": "float16"}
    state.write_text(json.dumps(json.loads(state.read_text()) | {"about": earlier}))
    assert PartialEmbeddings(output, 4, np.float16, now).done == 2
    with pytest.raises(UserError, match="begun with another --dtype;"):
        PartialEmbeddings(output, 4, np.float16, now | {"--dtype": "float32"})
    with pytest.raises(UserError, match="begun with another --output-dtype;"):
        PartialEmbeddings(output, 4, np.float32, now | {"--output-dtype": "float32"})


@pytest.mark.parametrize(
    "changes",
    [
        *({"about": value} for value in (-1, None, [], "x", True)),
        *({field: value} for field in ("done", "cut") for value in (None, "2", -1, 5, 2.0, float("inf"), [], True)),
    ],
    ids=str,
)
def test_a_damaged_state_is_refused(tmp_path, changes):
    begun = PartialEmbeddings(tmp_path / "emb.npy", 4, np.float32, {})
    begun.append(np.ones((2, 3), np.float32), 1)
    begun._file.close()
    state = tmp_path / "emb.npy.state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | changes))
    with pytest.raises(UserError, match=r"^.*emb\.npy\.state\.json: damaged; remove it to start again$"):
        PartialEmbeddings(tmp_path / "emb.npy", 4, np.float32, {})
