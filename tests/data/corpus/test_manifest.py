import json

from support.data import raises

from simcse_jax.data.corpus.manifest import NAME, corpus_path, is_prepared, read_manifest, write_manifest
from simcse_jax.host.version import __version__


def test_it_is_read_as_it_was_written_and_a_damaged_one_named(triplets, tmp_path):
    manifest = read_manifest(triplets)
    write_manifest(tmp_path, manifest)
    assert (tmp_path / NAME).read_bytes() == (triplets / NAME).read_bytes()
    assert manifest.rows == 40 and manifest.columns == manifest.fewest == 3
    assert is_prepared(triplets) and corpus_path(str(triplets)) == triplets
    other = manifest._replace(shards=[manifest.shards[0]._replace(sha256="0")])
    assert other.fingerprint != manifest.fingerprint
    for change, message in (
        ({"settings": {}}, "was changed"),
        ({"shards": [{}]}, "was changed"),
        ({"seal": None}, "was changed"),
        ({"format": "simcse_jax corpus 1"}, f"written by simcse_jax {__version__} in a format that"),
    ):
        (tmp_path / NAME).write_text(json.dumps(json.loads((triplets / NAME).read_text()) | change))
        raises(f"{NAME}: {message}", read_manifest, tmp_path)
