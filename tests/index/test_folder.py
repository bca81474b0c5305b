import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.data import raises
from support.jobs import another_job
from support.models import edit_json

from simcse_jax.devices.mesh import data_mesh
from simcse_jax.errors import UserError
from simcse_jax.host.locks import held
from simcse_jax.index import folder as index_folder
from simcse_jax.index import index as index_module
from simcse_jax.index.identity import ModelIdentity
from simcse_jax.index.index import Index

MODEL = ModelIdentity("runs/a", "avg", False, 12, "0" * 64, "float32", "cosine", "")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(index_module, "LARGE", 64)
    monkeypatch.setattr(index_module, "SMALL", 16)


def made(count: int, seed: int = 0) -> Index:
    index = Index(12)
    texts = ["", 'quotes " and, commas', "émoji 🐼", "line\nbreak", "twice", "twice"]
    rows = np.random.default_rng(seed).normal(size=(count, 12)).astype(np.float32)
    index.add([f"{texts[row % 6]}{row // 6 or ''}" for row in range(count)], rows)
    return index


def files(folder) -> list[str]:
    return sorted(path.name.split("-")[0] for path in folder.iterdir())


QUERIES = np.random.default_rng(9).normal(size=(3, 12)).astype(np.float32)


@pytest.mark.parametrize("count", [0, 150])
def test_what_is_loaded_is_what_was_saved(tmp_path, count):
    index, folder = made(count), tmp_path / "new" / "index"
    before = index.search(QUERIES, 7, -1)
    index_folder.save(index, folder, MODEL)
    loaded = index_folder.load(folder, MODEL)
    assert loaded.sentences == index.sentences
    assert loaded.search(QUERIES, 7, -1) == before
    assert files(folder) == ["embeddings", "index.json", "sentences"]
    for some in (loaded, index):
        some.add(["more"], QUERIES[:1])
    assert loaded.search(QUERIES, 7, -1) == index.search(QUERIES, 7, -1)
    assert loaded.search(QUERIES[:1], 1)[0][0][:2] == ("more", count)
    index_folder.save(loaded, folder, MODEL)  # where it was loaded from
    assert files(folder) == ["embeddings", "index.json", "sentences"]
    assert index_folder.load(folder, MODEL).search(QUERIES, 9, -1) == loaded.search(QUERIES, 9, -1)


def test_embeddings_are_memory_mapped_and_a_cpu_takes_them_from_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(index_module, "data_mesh", lambda devices: data_mesh(devices[:1]))
    index_folder.save(made(150), tmp_path, MODEL)
    loaded = index_folder.load(tmp_path, MODEL)
    mapped = [block.rows for block in loaded.blocks()]
    assert [isinstance(rows, np.memmap) for rows in mapped] == [True, True, True, False]  # the last one is padded
    loaded.search(QUERIES)
    on_devices = [block.rows for block in loaded._placed.blocks(list(loaded.blocks()))]
    for before, after in zip(mapped[:3], on_devices[:3], strict=True):
        assert after.unsafe_buffer_pointer() == before.ctypes.data
    stored = np.load(next(tmp_path.glob("embeddings-*.npy")))
    np.testing.assert_allclose(np.linalg.norm(stored, axis=1), 1, atol=1e-6)


def test_one_job_at_a_time_saves_and_readers_go_on(tmp_path):
    folder = tmp_path / "index"
    with another_job(held(folder)):
        raises(f"{folder}: another job", index_folder.save, made(20), folder, MODEL)
        assert not index_folder.is_index(folder)
    index_folder.save(made(20), folder, MODEL)
    with another_job(held(folder)):
        assert len(index_folder.load(folder, MODEL)) == 20
        raises("is writing there", index_folder.save, made(3), folder, MODEL)


@pytest.mark.slow
def test_two_jobs_that_save_again_and_again_and_a_reader(tmp_path):
    """Without a lock each removes the files that the other one's `index.json` names."""
    indexes, saved, refused = [made(20), made(50, seed=1)], [], []
    index_folder.save(indexes[0], tmp_path, MODEL)

    def work(index):
        for _ in range(6):
            try:
                index_folder.save(index, tmp_path, MODEL)
                saved.append(index)
            except UserError as error:
                refused.append(str(error))

    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(work, index) for index in indexes]
        while not all(job.done() for job in jobs):
            assert len(index_folder.load(tmp_path, MODEL)) in (20, 50)
    assert saved and all("is writing there" in error for error in refused) and not any(job.exception() for job in jobs)
    assert files(tmp_path) == ["embeddings", "index.json", "sentences"]
    assert len(index_folder.load(tmp_path, MODEL)) == len(saved[-1])


def test_an_index_that_is_replaced_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    index_folder.save(made(20), tmp_path, MODEL)
    real = index_folder._read_sentences

    def late(path, rows):
        if rows == 20:  # and its files are gone
            index_folder.save(made(3), tmp_path, MODEL)
        return real(path, rows)

    monkeypatch.setattr(index_folder, "_read_sentences", late)
    assert len(index_folder.load(tmp_path, MODEL)) == 3


class Killed(BaseException):
    """Plays the end of the process: nothing cleans up after it."""


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), Killed()])
@pytest.mark.parametrize("where", ["_write_embeddings", "_write_sentences", "write_atomically"])
def test_a_saving_that_fails_leaves_the_index_that_was_there(tmp_path, monkeypatch, error, where):
    real = getattr(index_folder, where)

    def fail(*args):
        if where != "write_atomically":
            real(*args)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(index_folder, where, fail)
        with pytest.raises((UserError, Killed)):
            index_folder.save(made(20), tmp_path, MODEL)
        raises("no index there (index.json is missing)", index_folder.load, tmp_path, MODEL)
    index_folder.save(made(20), tmp_path, MODEL)  # and what a kill left is gone
    assert files(tmp_path) == ["embeddings", "index.json", "sentences"]
    with monkeypatch.context() as patch:
        patch.setattr(index_folder, where, fail)
        with pytest.raises((UserError, Killed)) as raised:
            index_folder.save(made(50, seed=1), tmp_path, MODEL)
    if isinstance(error, OSError):
        assert "cannot be written: No space left on device" in str(raised.value)
        assert files(tmp_path) == ["embeddings", "index.json", "sentences"]
    assert index_folder.load(tmp_path, MODEL).sentences == made(20).sentences
    index_folder.save(made(50, seed=1), tmp_path, MODEL)
    assert files(tmp_path) == ["embeddings", "index.json", "sentences"]
    assert len(index_folder.load(tmp_path, MODEL)) == 50


def test_an_index_of_another_model_is_refused_and_under_another_name_it_is_the_same(tmp_path):
    index_folder.save(made(3), tmp_path, MODEL)
    raises("not of runs/a (pooler 'avg', not 'cls')", index_folder.load, tmp_path, MODEL._replace(pooler="cls"))
    assert len(index_folder.load(tmp_path, MODEL._replace(name="exported"))) == 3
    raises("bfloat16", index_folder.load, tmp_path, MODEL._replace(dtype="bfloat16"))


def truncate(path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("embeddings-*", os.unlink, ".npy: missing, truncated or damaged"),
        ("embeddings-*", truncate, ".npy: missing, truncated or damaged"),
        ("embeddings-*", lambda path: os.truncate(path, 0), ".npy: missing, truncated or damaged"),
        ("embeddings-*", lambda path: np.save(path, np.zeros((2, 12), np.float32)), "float32 (2, 12), but "),
        ("embeddings-*", lambda path: np.save(path, np.zeros((30, 12), np.int8)), "int8 (30, 12), but "),
        ("sentences-*", os.unlink, ".parquet: missing, truncated or damaged"),
        ("sentences-*", truncate, ".parquet: missing, truncated or damaged"),
        ("index.json", {"rows": 4}, ".parquet: 30 sentences, but the index has 4"),
        ("index.json", {"format": 1, "versions": {"simcse_jax": "0.1.0"}}, "written by simcse_jax 0.1.0 in a format"),
        ("index.json", {"model": None}, "damaged; build the index again"),
        ("index.json", {"rows": 30.0}, "damaged; build the index again"),
        *(("index.json", {name: "../x"}, "damaged; build the index again") for name in ("embeddings", "sentences")),
    ],
)
def test_a_damaged_index_is_refused_by_its_file(saved, tmp_path, file, damage, message):
    folder = shutil.copytree(saved, tmp_path / "index")
    (path,) = folder.glob(file)
    edit_json(path, **damage) if isinstance(damage, dict) else damage(path)
    for part in (str(folder), message):
        raises(part, index_folder.load, folder, MODEL)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "index"
    index_folder.save(made(30), folder, MODEL)
    return folder


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    for name in ("embeddings-train.npy", "sentences-train.parquet", "thesis.txt"):
        (tmp_path / name).write_text("the user's own")
    raises("exists and is not an index", index_folder.save, made(5), tmp_path, MODEL)
    (tmp_path / "index.json").write_text("{}")
    raises("exists and is not an index", index_folder.save, made(5), tmp_path, MODEL)
    assert (tmp_path / "embeddings-train.npy").read_text() == "the user's own"
    raises("thesis.txt: a file; an index is a folder", index_folder.save, made(3), tmp_path / "thesis.txt", MODEL)
    raises("must be a folder on a disk", index_folder.save, made(3), "gs://bucket/index", MODEL)
    (tmp_path / "shown").mkdir()
    for count, name in enumerate((".DS_Store", "._index.json"), 3):  # that a Mac has shown
        (tmp_path / "shown" / name).write_bytes(b"\0\5")
        index_folder.save(made(count), tmp_path / "shown", MODEL)


def small(precision: str, count: int = 40) -> Index:
    index, whole = Index(12, precision=precision), made(count)
    index.add(whole.sentences, np.concatenate(list(whole.embeddings())))
    return index


@pytest.mark.parametrize(("precision", "width"), [("int8", 12), ("binary", 2)])
def test_bytes_and_bits_stay_what_they_are(precision, width, tmp_path):
    index = small(precision)
    index_folder.save(index, tmp_path, MODEL)
    (file,) = tmp_path.glob("embeddings-*.npy")
    assert np.load(file).shape == (40, width) and np.load(file).itemsize == 1
    loaded = index_folder.load(tmp_path, MODEL)
    assert loaded.search(QUERIES, 7) == index.search(QUERIES, 7) and loaded.precision == precision
    for some in (loaded, index):
        some.add(["more"], QUERIES[:1])
    assert loaded.search(QUERIES, 7) == index.search(QUERIES, 7)


def test_ranges_of_copies_stay_with_an_index_of_numbers_and_damaged_ones_are_found(tmp_path):
    index = made(40)
    before = index.search(QUERIES, 7, storage="int8")
    index_folder.save(index, tmp_path, MODEL)
    loaded = index_folder.load(tmp_path, MODEL)
    assert loaded.ranged == 40 and np.array_equal(loaded.ranges, index.ranges)
    assert loaded.search(QUERIES, 7, storage="int8") == before
    index_folder.save(small("int8"), tmp_path, MODEL)
    whole = (tmp_path / "index.json").read_text()
    for damage, message in (
        ({"ranges": [[0.0], [1.0]]}, "index.json: of shape (2, 1); the embeddings need (2, 12)"),
        ({"precision": "int4"}, "index.json: damaged; build the index again"),
    ):
        (tmp_path / "index.json").write_text(json.dumps(json.loads(whole) | damage))
        raises(message, index_folder.load, tmp_path, MODEL)
