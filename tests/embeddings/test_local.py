import numpy as np
from support.embedding_folders import begin, rows_in
from support.object_store import NEEDS_GCSFS

from simcse_jax.corpus.claims import claimed
from simcse_jax.data.sentences import SentenceFile
from simcse_jax.embeddings import local
from simcse_jax.embeddings.blocks import make_block
from simcse_jax.embeddings.local import encode_here
from simcse_jax.embeddings.plan import blocks_of
from simcse_jax.storage import as_path


def test_every_row_is_made_once_and_what_is_lost_is_made_again(encoder, sources, tmp_path):
    folder = tmp_path / "out"
    plan = begin(folder, encoder, *sources)
    assert encode_here(folder, plan, encoder).rows == 25
    texts = [text for source in sources for text in SentenceFile(source)]
    rows, expected = rows_in(folder), encoder.encode(texts).embeddings
    assert [row["row"] for row in rows] == list(range(25)) and [row["sentence"] for row in rows] == texts
    np.testing.assert_allclose([row["embedding"] for row in rows], expected, rtol=1e-5, atol=1e-6)
    lost = folder / blocks_of(folder, plan)[1].file
    content = lost.read_bytes()
    lost.unlink()
    assert encode_here(folder, plan, encoder).rows == 25 and lost.read_bytes() == content


def test_what_another_process_makes_is_left_to_it(encoder, sources, tmp_path):
    folder = tmp_path / "out"
    plan = begin(folder, encoder, *sources)
    with claimed(folder / blocks_of(folder, plan)[1].file):
        assert encode_here(folder, plan, encoder) is None
    assert len(rows_in(folder)) == 17
    assert encode_here(folder, plan, encoder).rows == len(rows_in(folder)) == 25


@NEEDS_GCSFS
def test_blocks_that_others_made_meanwhile_are_not_asked_for_one_by_one(encoder, sources, store, monkeypatch):
    folder = as_path("gs://bucket/few")
    plan = begin(folder, encoder, *sources, block_rows=2)

    def make_all_but_the_last(*job, **options):
        for block in blocks_of(folder, plan)[:-1]:
            make_block(folder, plan, block, encoder)
        monkeypatch.setattr(local, "make_block", make_block)
        store.requests.clear()

    monkeypatch.setattr(local, "make_block", make_all_but_the_last)
    assert encode_here(folder, plan, encoder).rows == 25
    locks = {request.partition(".embeddings-")[2][:11] for request in store.requests if ".embeddings-" in request}
    assert locks == {"00001-00002"}


@NEEDS_GCSFS
def test_from_a_bucket_into_a_bucket(encoder, sources, store):
    for source in sources:
        store.put(f"text/{source.name}", source.read_bytes())
    folder = as_path("gs://bucket/out")
    plan = begin(folder, encoder, *(f"gs://bucket/text/{source.name}" for source in sources))
    assert encode_here(folder, plan, encoder).rows == 25
    assert {"out/embeddings.json", "out/embeddings-00001-00000.parquet"} <= set(store.objects)
    assert encode_here(folder, plan, encoder).rows == 25
