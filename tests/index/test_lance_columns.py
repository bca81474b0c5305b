import json

import numpy as np
import pytest
from support.embeddings import clustered

from simcse_jax.encoding.quantization import Clipped, quantize, ranges_of
from simcse_jax.errors import UserError
from simcse_jax.index import lance_columns
from simcse_jax.index.lance_columns import CODES, UNSAID, Kept, Wanted, check_wanted, kept_for, read_kept
from simcse_jax.index.similarity import prepared

VECTORS = clustered(200)
UNIT = prepared(VECTORS, "cosine")
RANGES = ranges_of(UNIT)
INT8 = kept_for(Wanted("int8"), [VECTORS], 12)
BINARY = kept_for(Wanted("binary"), [], 12)


def test_the_columns_have_what_sentence_transformers_defines():
    pytest.importorskip("pyarrow")
    bits = quantize(UNIT, "ubinary")
    for kept, columns in (
        (Kept(), {"vector": VECTORS}),
        (INT8, {"code": quantize(UNIT, "int8", RANGES), "bits": bits}),
        (BINARY, {"bits": bits}),
    ):
        names, kinds = zip(*kept.fields(12), strict=True)
        assert names == tuple(columns) and {kept.searched, kept.scored} <= set(names)
        for kind, found, expected in zip(kinds, kept.values(VECTORS, Clipped()), columns.values(), strict=True):
            np.testing.assert_array_equal(found, expected)
            assert (kind.list_size, str(kind.value_type).replace("float", "float32")) == (
                expected.shape[1],
                expected.dtype.name,
            )
    np.testing.assert_array_equal(INT8.values(VECTORS.astype(np.float64), Clipped())[1], bits)


def test_what_index_json_says_is_read_back():
    for kept in (*map(Kept, CODES), INT8, BINARY):
        content = json.loads(json.dumps(kept.content()))
        found = read_kept(content, 12, kept.quantization is not None, "damaged")
        assert (found.precision, found.codes) == (kept.precision, kept.codes)
        assert found.content() == kept.content()
    assert read_kept({}, 12, False, "damaged") == Kept("product")  # of an earlier version


def test_what_index_json_cannot_say():
    content = json.loads(json.dumps(INT8.content()))
    moved = [content["ranges"][0], [high + 0.5 for high in content["ranges"][1]]]
    for wrong, small in (
        ({"codes": "hamming"}, False),
        ({"precision": "int8"}, False),
        ({}, True),
        ({"precision": "float32"}, True),
        ({"precision": "int8"}, True),
        (content | {"precision": "binary"}, True),
        (content | {"ranges": moved}, True),
        (content | {"ranges": [[0.0], [1.0]]}, True),
        (content | {"ranges": "wide"}, True),
        (content | {"ranges_sha256": None}, True),
    ):
        with pytest.raises(UserError, match=r"^damaged"):
            read_kept(wrong, 12, small, "damaged")


def test_ranges_are_those_of_the_first_rows_at_unit_length(monkeypatch):
    np.testing.assert_array_equal(INT8.quantization.ranges, RANGES)
    monkeypatch.setattr(lance_columns, "CALIBRATION", 120)
    parts = [VECTORS[:50], VECTORS[50:100], VECTORS[100:], np.full((1, 12), np.nan)]  # the last one is not read
    np.testing.assert_array_equal(kept_for(Wanted("int8"), parts, 12).quantization.ranges, ranges_of(UNIT[:120]))
    given = kept_for(Wanted("int8", RANGES * 2), [], 12)
    np.testing.assert_array_equal(given.quantization.ranges, RANGES * 2)
    with pytest.warns(UserWarning, match="those of 5 embeddings alone"):
        kept_for(Wanted("int8"), [VECTORS[:5]], 12)
    with pytest.raises(UserError, match="a single embedding"):
        kept_for(Wanted("int8"), [VECTORS[:1]], 12)


@pytest.mark.parametrize(
    ("wanted", "has", "similarity", "message"),
    [
        (Wanted("int8"), None, "dot", "by cosine and not by dot"),
        (Wanted("binary"), None, "euclidean", "by cosine and not by euclidean"),
        (Wanted("int4"), None, "cosine", "'int4' of an index is not one of float32, int8, binary"),
        (Wanted("binary", RANGES), None, "cosine", "ranges: are for an index of int8"),
        (Wanted(None, RANGES), None, "cosine", "ranges: are for an index of int8"),
        (Wanted("int8", None, "product"), None, "cosine", "codes 'product': precision int8 has none"),
        (Wanted(codes="flat"), None, "cosine", "codes 'flat': not one of product, int8, binary"),
        (Wanted("int8"), BINARY, "cosine", "ix: an index of binary, not of int8"),
        (Wanted("float32"), INT8, "cosine", "ix: an index of int8, not of float32"),
        (Wanted("int8", RANGES * 2), INT8, "cosine", "ix: an index of other ranges"),
        (Wanted(None, RANGES), Kept(), "cosine", "ix: an index of float32, which has no ranges"),
        (Wanted(codes="binary"), Kept(), "cosine", "ix: an index of codes product, not of codes binary"),
    ],
)
def test_what_cannot_be_kept_is_refused(wanted, has, similarity, message):
    with pytest.raises(UserError, match=message):
        check_wanted(wanted, similarity, has, "ix")


def test_what_an_index_has_may_be_said_again():
    for has in (Kept("int8"), INT8, BINARY):
        check_wanted(UNSAID, "cosine", has, "ix")
        check_wanted(Wanted(has.precision, codes=has.codes), "cosine", has, "ix")
    check_wanted(Wanted("int8", RANGES), "cosine", INT8, "ix")
    check_wanted(Wanted(codes="binary"), "euclidean", None, "ix")
