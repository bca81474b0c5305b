import numpy as np
import pytest
from support.earlier import as_earlier
from support.embedding_folders import begin, rows_in
from support.object_store import NEEDS_GCSFS
from support.readers import READERS, rows_read

from simcse_jax.bulk.embeddings import local
from simcse_jax.bulk.embeddings.blocks import make_block
from simcse_jax.bulk.embeddings.local import encode_here
from simcse_jax.bulk.embeddings.manifest import finish
from simcse_jax.bulk.embeddings.plan import blocks_of
from simcse_jax.data.corpus.shared_folder import claimed, temporary_of
from simcse_jax.data.sentences import SentenceFile
from simcse_jax.host.storage import as_path


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


@pytest.mark.parametrize("reader", READERS)
def test_others_read_a_folder_as_one_set_of_data_also_while_it_is_filled(reader, encoder, sources, tmp_path):
    folder = tmp_path / "out"
    plan = begin(folder, encoder, *sources)
    first, *_, last = blocks_of(folder, plan)
    make_block(folder, plan, first, encoder)
    temporary_of(folder / last.file).write_text("the first bytes")
    with claimed(folder / last.file):
        assert [row["row"] for row in rows_read(reader, folder)] == list(range(8))
    assert encode_here(folder, plan, encoder) is not None
    expected = rows_in(folder)
    found = rows_read(reader, folder)
    assert [(row["row"], row["sentence"]) for row in found] == [(row["row"], row["sentence"]) for row in expected]
    np.testing.assert_array_equal([row["embedding"] for row in found], [row["embedding"] for row in expected])


@pytest.mark.parametrize("made", [0, 2, 4])
def test_a_folder_that_an_earlier_version_began_is_completed_under_its_names(made, encoder, sources, tmp_path):
    """Of four blocks: none was made, and of one file the rows were not counted; two; all, with the list."""
    new, old = tmp_path / "new", tmp_path / "old"
    plan = begin(new, encoder, *sources)
    assert encode_here(new, plan, encoder).rows == 25
    plan = begin(old, encoder, *sources)
    for block in blocks_of(old, plan)[:made]:
        make_block(old, plan, block, encoder)
    if made == 0:
        (old / ".rows-00001.json").unlink()
    if made == 4:
        finish(old, plan, blocks_of(old, plan))
    as_earlier(old)
    plan = begin(old, encoder, *sources)
    assert encode_here(old, plan, encoder).rows == 25
    assert {path.name for path in old.iterdir()} == {path.name.removeprefix(".") for path in new.iterdir()}
    assert all((old / path.name.removeprefix(".")).read_bytes() == path.read_bytes() for path in new.iterdir())


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
    assert {"out/.embeddings.json", "out/embeddings-00001-00000.parquet"} <= set(store.objects)
    assert encode_here(folder, plan, encoder).rows == 25
