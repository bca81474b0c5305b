import json
import shutil

import numpy as np
import pytest
from support.data import raises
from support.embeddings import MODEL, clustered, write_parquet
from support.later import needs
from support.models import edit_json

from simcse_jax.host.version import __version__
from simcse_jax.index import folder as index_folder
from simcse_jax.index import lance, lance_build
from simcse_jax.index.embedding_files import EmbeddingFiles
from simcse_jax.index.index import Index
from simcse_jax.index.lance import DEFAULTS, LanceIndex, RowFormat, Wanted, read_about
from simcse_jax.vectors.quantization import Quantization, quantize, ranges_of
from simcse_jax.vectors.similarity import prepared, similarities

needs("lancedb", "LanceDB is not installed: pip install 'simcse_jax[lance]'")
VECTORS = clustered(600)
QUERIES = clustered(8, seed=1)
FEW = clustered(200)
UNIT = prepared(FEW, "cosine")
RANGES = ranges_of(UNIT)
INT8 = RowFormat(None, Quantization("int8", 12, RANGES))
BINARY = RowFormat(None, Quantization("ubinary", 12))


def made(folder, similarity: str = "cosine", vectors=VECTORS, wanted: Wanted = DEFAULTS, **columns):
    folder.mkdir(exist_ok=True)
    write_parquet(folder / "emb.parquet", vectors, **columns)
    files = EmbeddingFiles(str(folder / "emb.parquet"))
    model = MODEL._replace(similarity=similarity, dimension=vectors.shape[1])
    lance_build.build(folder / "ix", files, model, wanted)
    return folder / "ix"


@pytest.mark.parametrize(("similarity", "dtype"), [("dot", "float16"), ("euclidean", "float32")])
def test_a_small_index_is_exact(tmp_path, similarity, dtype):
    vectors = VECTORS.astype(dtype)
    index = LanceIndex(made(tmp_path, similarity, vectors), MODEL._replace(similarity=similarity))
    assert (len(index), index.dimension, index.similarity) == (600, 12, similarity)
    true = similarities(QUERIES, vectors.astype(np.float32), similarity)
    order = np.argsort(-true, axis=1, kind="stable")[:, :7]
    found = index.search(QUERIES, 7)
    assert [[one.row for one in each] for each in found] == order.tolist()
    scores = np.array([[one.score for one in each] for each in found])
    np.testing.assert_allclose(scores, np.take_along_axis(true, order, axis=1), atol=2e-5, rtol=2e-5)
    assert found[0][0].sentence == f"sentence {order[0, 0]}"
    assert index.search(QUERIES[:1], 7, found[0][3].score) == [found[0][:4]]


@pytest.fixture
def small_cells(monkeypatch):
    monkeypatch.setattr(lance_build, "LEAST", 300)
    monkeypatch.setattr(lance_build, "ITERATIONS", 5)
    monkeypatch.setattr(lance_build, "ROWS_A_CELL", 100)


def in_memory(precision: str, vectors) -> Index:
    index = Index(vectors.shape[1], precision=precision)
    index.add([f"sentence {row}" for row in range(len(vectors))], vectors)
    return index


@pytest.mark.parametrize("precision", ["int8", "binary"])
def test_a_small_index_in_bytes_or_bits_finds_what_one_in_memory_does(tmp_path, precision):
    index = LanceIndex(made(tmp_path, wanted=Wanted(precision)), MODEL)
    expected = in_memory(precision, VECTORS).search(QUERIES, 7)
    found = index.search(QUERIES, 7)
    for mine, others in zip(found, expected, strict=True):
        assert [one[:2] for one in mine] == [one[:2] for one in others]
        np.testing.assert_allclose([one.score for one in mine], [one.score for one in others], atol=2e-6)
    assert index.search(QUERIES[:1], 7, found[0][3].score + 1e-3) == [found[0][:3]]
    assert index.search(0 * QUERIES[:1], 3) == [[]]
    content = json.loads((tmp_path / "ix" / "index.json").read_text())
    assert (content["precision"], "ranges" in content) == (precision, precision == "int8")


@pytest.mark.parametrize("precision", ["int8", pytest.param("binary", marks=pytest.mark.slow)])
def test_bits_find_candidates_whose_scores_are_of_bytes_or_bits(tmp_path, precision, small_cells):
    vectors, queries = clustered(600, 16), clustered(20, 16, seed=1)
    index = LanceIndex(made(tmp_path, vectors=vectors, wanted=Wanted(precision)), MODEL._replace(dimension=16))
    whole = in_memory(precision, vectors).search(queries, 600)
    scores = [{one.row: one.score for one in each} for each in whole]

    def recall(**options: int) -> float:
        """How much of the sum of the ten best scores is there: of bits, many are equal."""
        found = index.search(queries, 10, **options)
        for of_query, each in zip(scores, found, strict=True):
            np.testing.assert_allclose([one.score for one in each], [of_query[one.row] for one in each], atol=2e-6)
            assert [(-one.score, one.row) for one in each] == sorted((-one.score, one.row) for one in each)
        reached = sum(one.score for each in found for one in each)
        return reached / sum(one.score for each in whole for one in each[:10])

    assert recall(refine=60) == pytest.approx(1, abs=1e-6)  # all rows are candidates
    assert recall(refine=1) < recall(refine=5) < 1
    assert recall(nprobes=1, refine=60) < 1


@pytest.mark.parametrize(("codes", "kind"), [(None, "IVF_PQ"), ("int8", "IVF_SQ"), ("binary", "IVF_RQ")])
def test_codes_find_candidates_that_are_refined_with_the_vectors(tmp_path, codes, kind, small_cells):
    vectors, queries = clustered(600, 16), clustered(20, 16, seed=1)
    index = LanceIndex(made(tmp_path, vectors=vectors, wanted=Wanted(codes=codes)), MODEL._replace(dimension=16))
    assert index._table.index_stats(lance.CELLS).index_type == kind and index.quantization is None
    true = similarities(queries, vectors, "cosine")
    best = np.argsort(-true, axis=1, kind="stable")[:, :10].tolist()

    def recall(**options: int) -> float:
        """The share of the true ten; what is found has its true score."""
        found = index.search(queries, 10, **options)
        for of_query, each in zip(true, found, strict=True):
            np.testing.assert_allclose([one.score for one in each], of_query[[one.row for one in each]], atol=1e-5)
        hits = [len({one.row for one in each} & set(rows)) for each, rows in zip(found, best, strict=True)]
        return sum(hits) / (10 * len(queries))

    assert recall() >= 0.95
    if codes is None:
        assert recall(refine=1) < recall(refine=30) and recall(nprobes=1) < recall()


def test_equal_scores_are_ordered_by_row_a_zero_finds_nothing_and_missing_sentences_are_empty(tmp_path):
    index = LanceIndex(made(tmp_path / "equal", vectors=np.repeat(VECTORS[:1], 6, axis=0)), MODEL)
    assert [one.row for one in index.search(VECTORS[:1], 9)[0]] == [0, 1, 2, 3, 4, 5]
    assert index.search(0 * VECTORS[:1], 3) == [[]]
    np.save(tmp_path / "emb.npy", VECTORS[:5])
    lance_build.build(tmp_path / "ix", EmbeddingFiles(str(tmp_path / "emb.npy")), MODEL)
    index = LanceIndex(tmp_path / "ix", MODEL)
    assert [one[:2] for one in index.search(VECTORS[2:3], 1)[0]] == [("", 2)]
    assert index.first_sentences(3) == []
    assert LanceIndex(made(tmp_path / "texts"), MODEL).first_sentences(2) == ["sentence 0", "sentence 1"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return made(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format": 1}, f"written by simcse_jax {__version__} in a format that {__version__} does not read; build the"),
        *((fields, "damaged") for fields in ({"precision": "int4"}, {"rows": "600"})),
        ({"version": 99}, "the table cannot be read or written: "),
        ({"model": MODEL._replace(similarity="manhattan")._asdict()}, "damaged"),
        ({"model": MODEL._replace(sha256="1" * 64)._asdict()}, "not of runs/a (weights others, or other settings)"),
        ({"backend": None}, "not an index of LanceDB; load_index reads it"),
    ],
)
def test_an_index_that_is_damaged_or_anothers_is_refused(whole, tmp_path, fields, message):
    edit_json(shutil.copytree(whole, tmp_path / "ix") / "index.json", **fields)
    raises(message, LanceIndex, tmp_path / "ix", MODEL)


def test_each_kind_of_index_names_the_other_and_a_missing_file_is_reported_by_the_search(whole, tmp_path, monkeypatch):
    assert lance.is_lance_index(whole) and lance.is_lance_index("gs://b/index") and not lance.is_lance_index(tmp_path)
    raises("an index of lance; open_index opens it", index_folder.load, whole, MODEL)
    raises("no index there", LanceIndex, tmp_path, MODEL)
    shutil.copytree(whole, tmp_path / "ix")
    shutil.rmtree(tmp_path / "ix" / lance.FOLDER / "data")
    raises("the table cannot be read or written:", LanceIndex(tmp_path / "ix", MODEL).search, QUERIES, 1)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    raises("not installed: lancedb; run: pip install", LanceIndex, whole, MODEL)


def test_what_an_index_does_not_keep_or_cannot_is_refused(tmp_path):
    for wanted, similarity, message in (
        (Wanted("int8"), "dot", "by cosine alone"),
        (Wanted("int4"), "cosine", "'int4' of an index is not one of float32, int8, binary"),
        (Wanted("binary", RANGES), "cosine", "ranges: are for an index of int8"),
        (Wanted("int8", None, "product"), "cosine", "codes product: are of float32"),
    ):
        model = MODEL._replace(similarity=similarity)
        raises(message, lance_build._open_existing, tmp_path / "new", model, wanted)
    for name, kept in (("float32", DEFAULTS), ("int8", Wanted("int8")), ("binary", Wanted("binary"))):
        folder = tmp_path / name
        made(folder, vectors=FEW, wanted=kept)
        for wanted, message in (
            (Wanted("int8", RANGES * 2), f"an index of {'other ranges' if name == 'int8' else name}"),
            (Wanted(None, RANGES * 2), "an index of other ranges"),
            (Wanted(codes="binary"), f"an index of {'product' if name == 'float32' else name}, not of binary"),
        ):
            raises(message, lance_build._open_existing, folder / "ix", MODEL, wanted)
        assert lance_build._open_existing(folder / "ix", MODEL, kept).kept.precision == name
        assert lance_build._open_existing(folder / "ix", MODEL, DEFAULTS)


def test_the_columns_have_what_sentence_transformers_defines_and_index_json_says():
    bits = quantize(UNIT, "ubinary")
    for kept, columns in (
        (RowFormat(), {"vector": FEW}),
        (INT8, {"code": quantize(UNIT, "int8", RANGES), "bits": bits}),
        (BINARY, {"bits": bits}),
    ):
        names, kinds = zip(*kept.fields(12), strict=True)
        assert names == tuple(columns) and kept.scored in names
        for kind, found, expected in zip(kinds, kept.values(FEW), columns.values(), strict=True):
            np.testing.assert_array_equal(found, expected)
            assert kind.list_size == expected.shape[1]
            assert str(kind.value_type).replace("float", "float32") == expected.dtype.name
    np.testing.assert_array_equal(INT8.values(FEW.astype(np.float64))[1], bits)


def test_ranges_are_those_of_the_first_rows_at_unit_length(tmp_path, monkeypatch):
    monkeypatch.setattr(lance_build, "CALIBRATION", 120)
    kept = read_about(made(tmp_path, vectors=FEW, wanted=Wanted("int8"))).kept
    np.testing.assert_array_equal(kept.quantization.ranges, ranges_of(UNIT[:120]))
    kept = read_about(made(tmp_path / "given", vectors=FEW, wanted=Wanted("int8", RANGES * 2))).kept
    np.testing.assert_array_equal(kept.quantization.ranges, RANGES * 2)
    raises("a single embedding", made, tmp_path / "one", vectors=FEW[:1], wanted=Wanted("int8"))
