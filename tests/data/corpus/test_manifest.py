import json
import shutil

import pytest

from simcse_jax.data.corpus.manifest import NAME, corpus_path, is_prepared, read_manifest, write_manifest
from simcse_jax.errors import UserError


def test_it_is_read_as_it_was_written(triplets, tmp_path):
    manifest = read_manifest(triplets)
    write_manifest(tmp_path, manifest)
    assert (tmp_path / NAME).read_bytes() == (triplets / NAME).read_bytes()
    assert read_manifest(tmp_path).fingerprint == manifest.fingerprint
    assert manifest.rows == 40 and manifest.columns == 3 and [shard.rows for shard in manifest.shards] == [16, 16, 8]
    assert is_prepared(triplets) and corpus_path(str(triplets)) == triplets
    other = manifest._replace(shards=[manifest.shards[0]._replace(sha256="0"), *manifest.shards[1:]])
    assert other.fingerprint != manifest.fingerprint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content | {"rows": 41}, "was changed"),
        (lambda content: content | {"rows": "40"}, "was changed"),
        (lambda content: content | {"shards": [{}]}, "was changed"),
        (lambda content: content | {"sha256": None}, "was changed"),
        (lambda content: content | {"format": "simcse_jax corpus 3"}, "not a corpus that this version reads"),
        (lambda content: [], "not a JSON object"),
    ],
)
def test_a_damaged_one_is_named(change, message, triplets, tmp_path):
    shutil.copy(triplets / NAME, tmp_path / NAME)
    (tmp_path / NAME).write_text(json.dumps(change(json.loads((tmp_path / NAME).read_text()))))
    with pytest.raises(UserError, match=f"{NAME}: {message}"):
        read_manifest(tmp_path)
