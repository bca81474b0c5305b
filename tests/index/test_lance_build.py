import datetime
import json
from types import SimpleNamespace

import numpy as np
import pytest
from support import xml_store
from support.data import raises
from support.embeddings import MODEL, clustered, write_parquet
from support.jobs import another_job
from support.later import needs
from support.object_store import NEEDS_GCSFS

from simcse_jax.host.locks import held
from simcse_jax.index import lance, lance_build
from simcse_jax.index.embedding_files import EmbeddingFiles
from simcse_jax.index.lance import DEFAULTS, LanceIndex, RowFormat, Wanted, read_about
from simcse_jax.vectors.quantization import Quantization

needs("lancedb", "LanceDB is not installed: pip install 'simcse_jax[lance]'")
VECTORS = clustered(90)


def build(folder, *parts: tuple[int, np.ndarray], model=MODEL, wanted=DEFAULTS):
    """Each part, with its first row, one after the other."""
    for first, vectors in parts:
        path = folder / "emb" / "part.parquet"
        write_parquet(path, vectors, first)
        files = EmbeddingFiles(str(path))
        about, _ = lance_build.build(lance_build.check_folder(str(folder / "ix"), "emb"), files, model, wanted)
    return about


def rows_of(folder, queries=VECTORS, count: int = 1) -> list[list[int]]:
    return [[one.row for one in each] for each in LanceIndex(folder / "ix", MODEL).search(queries, count)]


@pytest.fixture
def small_cells(monkeypatch):
    monkeypatch.setattr(lance_build, "LEAST", 300)
    monkeypatch.setattr(lance_build, "ITERATIONS", 2)


def test_what_is_added_keeps_its_rows_or_is_numbered_on(tmp_path):
    about = build(tmp_path, (0, VECTORS[:40]), (40, VECTORS[40:60]), (0, VECTORS[60:]))
    assert (about.rows, about.last) == (90, 89)
    assert rows_of(tmp_path) == [[row] for row in range(90)]
    found = LanceIndex(tmp_path / "ix", MODEL).search(VECTORS[[0, 50]], 1)
    assert [each[0].sentence for each in found] == ["sentence 0", "sentence 50"]
    about = build(tmp_path / "overlap", (0, VECTORS[:10]), (5, VECTORS[10:20]))  # they follow without a gap
    assert (about.rows, about.last) == (20, 19)
    assert rows_of(tmp_path / "overlap", VECTORS[:20]) == [[row] for row in range(20)]
    build(tmp_path / "gap", (3, VECTORS[:40]), (50, VECTORS[40:]))
    found = np.concatenate([*LanceIndex(tmp_path / "gap" / "ix", MODEL).numbers()])
    assert sorted(found.tolist()) == [*range(3, 43), *range(50, 100)]


def test_the_same_embeddings_are_added_once(tmp_path, monkeypatch):
    build(tmp_path, (0, VECTORS[:40]), (0, VECTORS[40:60]))
    before = (tmp_path / "ix" / "index.json").read_bytes()
    for part in (VECTORS[40:60], VECTORS[:40]):
        assert build(tmp_path, (0, part)).rows == 60
        assert (tmp_path / "ix" / "index.json").read_bytes() == before
    about = build(tmp_path, (0, VECTORS[:20]), (0, VECTORS[20:40]))  # other files, though the rows are there
    assert about.rows == 100 and len(about.added) == 4
    assert build(tmp_path, (100, VECTORS[:20])).rows == 120  # a later part that says the same
    np.save(tmp_path / "all.npy", VECTORS[:40])  # the same numbers, but without sentences
    files = EmbeddingFiles(str(tmp_path / "all.npy"))
    assert lance_build.build(tmp_path / "ix", files, MODEL)[1]
    assert not lance_build.build(tmp_path / "ix", files, MODEL)[1]


@pytest.mark.parametrize("precision", ["int8", "binary"])
def test_bytes_and_bits_are_added_to_with_the_ranges_that_there_are(tmp_path, small_cells, precision):
    many, model = clustered(700, 64), MODEL._replace(dimension=64)  # of which no two have the same bits
    first = build(tmp_path, (0, many[:280]), model=model, wanted=Wanted(precision))
    about = build(tmp_path, (280, 3 * many[280:310]), model=model)  # an index that is there says what it keeps
    assert (first.found_in, about.found_in, about.kept.content()) == (0, 310, first.kept.content())
    assert build(tmp_path, (310, many[310:]), model=model, wanted=Wanted(precision)).found_in == 700
    found = LanceIndex(tmp_path / "ix", model).search(many[::70], 1)
    assert [[one.row for one in each] for each in found] == [[row] for row in range(0, 700, 70)]
    before = (tmp_path / "ix" / "index.json").read_bytes()
    raises(
        f"an index of {precision}, not of float32", build, tmp_path, (700, many), model=model, wanted=Wanted("float32")
    )
    assert (tmp_path / "ix" / "index.json").read_bytes() == before


def test_the_version_that_others_read_stays_until_a_build_is_done(tmp_path, monkeypatch, small_cells):
    from lancedb.table import LanceTable

    many, written = clustered(320), []
    build(tmp_path, (0, many[:300]))

    def optimize(table, cleanup_older_than=datetime.timedelta(days=7)):
        written.append((cleanup_older_than.days, read_about(tmp_path / "ix").rows))

    monkeypatch.setattr(LanceTable, "optimize", optimize)
    build(tmp_path, (300, many[300:]))
    assert written == [(36500, 300), (7, 320)]


def test_cells_are_found_again_when_the_table_has_doubled_with_the_codes_of_the_first_build(tmp_path, small_cells):
    many = clustered(700)
    parts = ((0, many[:280]), (280, many[280:310]), (310, many[310:400]))
    abouts = [build(tmp_path, parts[0], wanted=Wanted(codes="int8")), *(build(tmp_path, part) for part in parts[1:])]
    assert [about.found_in for about in abouts] == [0, 310, 310] and abouts[2].kept == RowFormat("int8")
    assert LanceIndex(tmp_path / "ix", MODEL)._table.index_stats(lance.CELLS).index_type == "IVF_SQ"
    assert build(tmp_path, (400, many[400:])).found_in == 700
    assert rows_of(tmp_path, many[::70]) == [[row] for row in range(0, 700, 70)]


def test_a_build_that_is_stopped_or_has_a_mistake_leaves_the_index_as_it_was(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    def build_until_stopped(part):
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(lance_build, "_write", stop)
            build(tmp_path, part)

    build_until_stopped((0, VECTORS[:20]))
    raises("no index there", rows_of, tmp_path)
    build(tmp_path, (0, VECTORS[:40]))
    build_until_stopped((40, VECTORS[40:60]))
    wrong = VECTORS[40:].copy()
    wrong[3] = np.inf
    raises("part.parquet: row 3 of the file has an embedding whose length is not", build, tmp_path, (40, wrong))
    assert read_about(tmp_path / "ix").rows == len(LanceIndex(tmp_path / "ix", MODEL)) == 40
    assert rows_of(tmp_path, VECTORS[:40]) == [[row] for row in range(40)]
    assert build(tmp_path, (40, VECTORS[40:])).rows == 90  # those that were left are gone
    assert rows_of(tmp_path) == [[row] for row in range(90)]


def test_rows_that_another_job_adds_meanwhile_are_in_no_index(tmp_path, monkeypatch):
    def meanwhile(table, *_):
        table.add(table.search().limit(3).to_arrow())
        return 0

    build(tmp_path, (0, VECTORS[:40]))
    with monkeypatch.context() as patched:
        patched.setattr(lance_build, "_find_cells", meanwhile)
        raises("another job wrote into the table meanwhile", build, tmp_path, (40, VECTORS[40:]))
    assert len(LanceIndex(tmp_path / "ix", MODEL)) == 40
    assert build(tmp_path, (40, VECTORS[40:])).rows == 90
    assert rows_of(tmp_path) == [[row] for row in range(90)]


def test_what_does_not_fit_and_a_folder_of_something_else_are_refused(tmp_path):
    raises("compares by manhattan", build, tmp_path, (0, VECTORS), model=MODEL._replace(similarity="manhattan"))
    raises("embeddings of 8 elements, those of runs/a have 12", build, tmp_path, (0, clustered(5, 8)))
    build(tmp_path, (0, VECTORS))
    raises("not of runs/b", build, tmp_path, (0, VECTORS), model=MODEL._replace(name="runs/b", sha256="1" * 64))
    with another_job(held(tmp_path / "ix")):
        raises("ix: another job is writing", build, tmp_path, (0, VECTORS))
    for folder in ("other", "memory", "shown"):
        (tmp_path / folder).mkdir()
    for path in ("file", "other/thesis.txt", "shown/.DS_Store"):  # the last one by a Mac
        (tmp_path / path).touch()
    (tmp_path / "memory" / "index.json").write_text(json.dumps({"format": 2}))
    for name, message in (
        ("file", "a file; an index is a folder"),
        ("other", "holds thesis.txt and is not an index"),
        ("memory", "not an index of LanceDB"),
        ("emb", "is the folder of the embeddings"),
    ):
        raises(message, lance_build.check_folder, str(tmp_path / name), str(tmp_path / "emb"))
    assert lance_build.check_folder(str(tmp_path / "shown"), str(tmp_path / "emb")) == tmp_path / "shown"
    raises("s3://b/index: must be a folder on a disk or gs://", lance_build.check_folder, "s3://b/index", "emb")


@pytest.mark.parametrize(("rows", "cells", "of_each"), [(10**6, 245, 256), (10**8, 24_415, 85), (10**10, 65_536, 32)])
def test_the_memory_of_building_and_of_searching_has_an_end(rows, cells, of_each):
    made = []
    table = SimpleNamespace(count_rows=lambda: rows, create_index=lambda column, config, **_: made.append(config))
    for kept in (RowFormat(), RowFormat("binary"), RowFormat(None, Quantization("ubinary", 768))):
        assert lance_build._find_cells(table, None, 768, "cosine", kept) == rows
        assert (made[-1].num_partitions, made[-1].sample_rate) == (cells, of_each) and cells * of_each <= 2**21


@NEEDS_GCSFS
@pytest.mark.slow
def test_an_index_in_a_bucket_is_built_added_to_and_searched(store, tmp_path, monkeypatch, small_cells):
    for name, value in xml_store.environment(tmp_path, store.url).items():
        monkeypatch.setenv(name, value)
    many = clustered(330)
    for first, last in ((0, 300), (300, 330)):
        write_parquet(tmp_path / "emb" / "part.parquet", many[first:last], first)
        store.put("emb/part.parquet", (tmp_path / "emb" / "part.parquet").read_bytes())
        files = EmbeddingFiles("gs://bucket/emb/")
        folder = lance_build.check_folder("gs://bucket/ix", "gs://bucket/emb")
        about, _ = lance_build.build(folder, files, MODEL, Wanted("int8"))
    assert (about.rows, about.found_in) == (330, 300)
    found = LanceIndex("gs://bucket/ix", MODEL).search(many[::30], 1)
    assert [[one.row for one in each] for each in found] == [[row] for row in range(0, 330, 30)]
    assert "ix/index.json" in store.objects and not store.names("ix/.lock")
