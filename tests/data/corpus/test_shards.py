import numpy as np

from simcse_jax.data.corpus import shards
from simcse_jax.data.corpus.shards import ALIGN, parts


def test_parts_begin_at_pages_hold_tokens_and_where_they_begin_and_any_change_is_in_the_checksum(tmp_path):
    found = parts(tokens=3, width=2, rows=2, sentences=4, labels=True, origins=False)
    assert found == (0, ALIGN, 2 * ALIGN, 3 * ALIGN, 3 * ALIGN)
    assert parts(1, 2, 0, 0, False, False) == (0, ALIGN, 2 * ALIGN, 2 * ALIGN, 2 * ALIGN)
    assert [shards.token_type(size).itemsize for size in (30522, 65536, 65537)] == [2, 2, 4]
    ids, mask, factors = np.arange(12).reshape(2, 6), np.ones((2, 6), bool), shards.weights(6)
    before = shards.checksums(ids, mask, factors)
    for row, place, value in [(0, 0, 1), (0, 5, 70000), (1, 3, 0)]:
        changed = ids.copy()
        changed[row, place] = value
        assert (shards.checksums(changed, mask, factors) != before).tolist() == [row == 0, row == 1]
    assert (shards.weights(512) % 2 == 1).all() and len(np.unique(shards.weights(512))) == 512
    nothing = shards.checksums(ids, np.zeros((2, 6), bool), factors)
    terms = nothing[0] + shards.label_terms(np.arange(-128, 128, dtype=np.int8))
    assert (nothing != 0).all() and len(np.unique(terms)) == 256 and terms.all()
    assert shards.weights(4).tolist() == shards.weights(512)[:4].tolist()
    writer = shards.ShardWriter(tmp_path / "s", np.dtype("<u4"), 4, keep_text=False)
    writer.add([[np.array([70000, 1]), np.array([], np.int32)]], [2, 0], [1, 3], [["", ""]])
    writer.add([[np.array([5, 6, 7])]], [1], [4], [[""]])
    assert writer.finish(source_rows=6)
    data = (tmp_path / "s").read_bytes()
    found = parts(tokens=5, width=4, rows=3, sentences=3, labels=True, origins=True)
    assert len(data) == found.end
    assert np.frombuffer(data, "<u4", 5).tolist() == [70000, 1, 5, 6, 7]
    entries = np.frombuffer(data, "<u4", 8, found.entries).reshape(4, 2)
    assert entries[:, 0].tolist() == [0, 2, 2, 5]
    padded_ids, mask = np.array([[70000, 1, 0], [0, 0, 0], [5, 6, 7]]), np.arange(3) < np.array([[2], [0], [3]])
    expected = shards.checksums(padded_ids, mask, shards.weights(3)) + shards.label_terms(np.array([2, 0, 1], np.int8))
    assert entries[:3, 1].tolist() == expected.tolist()
    assert np.frombuffer(data, "i1", 3, found.labels).tolist() == [2, 0, 1]
    assert np.frombuffer(data, "<u4", 3, found.origins).tolist() == [1, 3, 4]
    assert writer.histogram.tolist() == [[1, 0, 1, 1, 0]] and shards.MOST_TOKENS < 2**32
