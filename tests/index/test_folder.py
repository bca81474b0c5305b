import json
import os
import threading

import numpy as np
import pytest
from support.jobs import another_job

from simcse_jax.devices.mesh import data_mesh
from simcse_jax.errors import UserError
from simcse_jax.host.locks import held
from simcse_jax.index import folder as index_folder
from simcse_jax.index import index as index_module
from simcse_jax.index.identity import ModelIdentity
from simcse_jax.index.index import Index

MODEL = ModelIdentity("runs/a", "avg", False, 12, "0" * 64)


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


@pytest.mark.parametrize("count", [0, 1, 16, 64, 150])
def test_what_is_loaded_is_what_was_saved(tmp_path, count):
    index = made(count)
    before = index.search(QUERIES, 7, -1)
    index_folder.save(index, tmp_path / "new" / "index", MODEL)
    loaded = index_folder.load(tmp_path / "new" / "index", MODEL)
    assert loaded.sentences == index.sentences
    assert loaded.search(QUERIES, 7, -1) == before
    assert files(tmp_path / "new" / "index") == ["embeddings", "index.json", "sentences"]
    for some in (loaded, index):
        some.add(["more"], QUERIES[:1])
    assert loaded.search(QUERIES, 7, -1) == index.search(QUERIES, 7, -1)
    assert loaded.search(QUERIES[:1], 1)[0][0][:2] == ("more", count)


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


def test_an_index_can_be_saved_where_it_was_loaded_from(tmp_path):
    index_folder.save(made(150), tmp_path, MODEL)
    loaded = index_folder.load(tmp_path, MODEL)
    loaded.add(["more"], QUERIES[:1])
    index_folder.save(loaded, tmp_path, MODEL)
    assert files(tmp_path) == ["embeddings", "index.json", "sentences"]
    again = index_folder.load(tmp_path, MODEL)
    assert len(again) == 151
    assert again.search(QUERIES, 9, -1) == loaded.search(QUERIES, 9, -1)


def test_one_job_at_a_time_saves_and_readers_go_on(tmp_path):
    folder = tmp_path / "index"
    with another_job(held(folder)):
        with pytest.raises(UserError, match=f"{folder}: process {os.getpid()} on .*, since .* is writing there"):
            index_folder.save(made(20), folder, MODEL)
        assert not index_folder.is_index(folder)
    index_folder.save(made(20), folder, MODEL)
    with another_job(held(folder)):
        assert len(index_folder.load(folder, MODEL)) == 20
        with pytest.raises(UserError, match="is writing there"):
            index_folder.save(made(3), folder, MODEL)


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

    threads = [threading.Thread(target=work, args=(index,)) for index in indexes]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert len(index_folder.load(tmp_path, MODEL)) in (20, 50)
    for thread in threads:
        thread.join()
    assert saved and all("is writing there" in error for error in refused)
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
    folder = tmp_path / "index"
    index_folder.save(made(20), folder, MODEL)
    real = getattr(index_folder, where)

    def fail(*args):
        if where != "write_atomically":
            real(*args)
        if where == "write_atomically" and isinstance(error, OSError):
            raise UserError("index.json: cannot be written: No space left on device")
        raise error

    monkeypatch.setattr(index_folder, where, fail)
    with pytest.raises((UserError, Killed)) as raised:
        index_folder.save(made(50, seed=1), folder, MODEL)
    monkeypatch.undo()
    loaded = index_folder.load(folder, MODEL)
    assert loaded.search(QUERIES, 3, -1) == made(20).search(QUERIES, 3, -1)
    if isinstance(error, OSError):
        assert "cannot be written: No space left on device" in str(raised.value)
        assert files(folder) == ["embeddings", "index.json", "sentences"]
    index_folder.save(made(50, seed=1), folder, MODEL)  # and what a kill left is gone
    assert files(folder) == ["embeddings", "index.json", "sentences"]
    assert len(index_folder.load(folder, MODEL)) == 50


def test_a_first_saving_that_is_killed_can_be_done_again(tmp_path, monkeypatch):
    def kill(*args):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(index_folder, "write_atomically", kill)
        index_folder.save(made(20), tmp_path, MODEL)
    with pytest.raises(UserError, match=r"no index there \(index.json is missing\)"):
        index_folder.load(tmp_path, MODEL)
    index_folder.save(made(20), tmp_path, MODEL)
    assert len(index_folder.load(tmp_path, MODEL)) == 20


def test_an_index_of_another_model_is_refused_and_under_another_name_it_is_the_same(tmp_path):
    index_folder.save(made(3), tmp_path, MODEL)
    with pytest.raises(UserError, match=r"index of runs/a \(pooler avg\), not of runs/a \(pooler cls\); load it"):
        index_folder.load(tmp_path, MODEL._replace(pooler="cls"))
    assert len(index_folder.load(tmp_path, MODEL._replace(name="exported"))) == 3


def test_an_index_that_says_nothing_of_a_dtype_is_of_float32(tmp_path):
    index_folder.save(made(3), tmp_path, MODEL)
    about = json.loads((tmp_path / "index.json").read_text())
    assert about["model"].pop("dtype") == "float32"
    (tmp_path / "index.json").write_text(json.dumps(about))
    assert len(index_folder.load(tmp_path, MODEL)) == 3
    with pytest.raises(UserError, match="bfloat16"):
        index_folder.load(tmp_path, MODEL._replace(dtype="bfloat16"))


def damage(folder, what: str) -> None:
    kind, _, how = what.partition(" ")
    path = next(folder.glob({"about": "index.json"}.get(kind, f"{kind}-*")))
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        os.truncate(path, path.stat().st_size // 2)
    elif how == "empty":
        os.truncate(path, 0)
    elif how == "garbage":
        path.write_bytes(b"\x93garbage")
    elif kind == "embeddings":
        np.save(path, np.zeros((2, 12), np.float32))
    else:
        content = json.loads(path.read_text())
        if how == "without model":
            del content["model"]
        elif how == "of a later format":
            content["format"] = 3
        else:
            content["rows"] = 4
        path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("what", "parts"),
    [
        ("about missing", ["no index there", "index.json is missing"]),
        ("about truncated", ["index.json: not valid JSON"]),
        ("about without model", ["index.json: damaged"]),
        ("about of a later format", ["index.json: format 3; this version reads 1 and 2"]),
        ("about with other rows", [".parquet: 30 sentences, but the index has 4"]),
        ("embeddings missing", ["embeddings-", ".npy: missing"]),
        ("embeddings truncated", ["embeddings-", ".npy: truncated or damaged"]),
        ("embeddings empty", ["embeddings-", ".npy: truncated or damaged"]),
        ("embeddings garbage", ["embeddings-", ".npy: truncated or damaged"]),
        ("embeddings with other rows", [".npy: float32 (2, 12), but the index has float32 (30, 12)"]),
        ("sentences missing", ["sentences-", ".parquet: missing"]),
        ("sentences truncated", ["sentences-", ".parquet: truncated or damaged"]),
        ("sentences empty", ["sentences-", ".parquet: truncated or damaged"]),
    ],
)
def test_a_damaged_index_is_reported_in_one_line_that_names_the_file(tmp_path, what, parts):
    index_folder.save(made(30), tmp_path / "index", MODEL)
    damage(tmp_path / "index", what)
    with pytest.raises(UserError) as raised:
        index_folder.load(tmp_path / "index", MODEL)
    assert [part for part in (str(tmp_path / "index"), *parts) if part not in str(raised.value)] == []
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    "changes",
    [
        *({"rows": value} for value in (float("inf"), float("nan"), -1, "30", 30.0, None, True, [30], 10**30)),
        *({"model": value} for value in (None, 3, [], {}, {"name": "m"})),
        *({"model": MODEL._asdict() | {field: [1]}} for field in MODEL._fields),
        {"model": MODEL._asdict() | {"more": 1}},
        *({name: value} for name in ("embeddings", "sentences") for value in (None, 3, [], "", "../x", "a\0b")),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_index_s_facts_of_another_type_are_refused(saved, changes, tmp_path):
    (tmp_path / "index.json").write_text(json.dumps(json.loads((saved / "index.json").read_text()) | changes))
    with pytest.raises(UserError, match=r"index\.json: damaged; build the index again"):
        index_folder.load(tmp_path, MODEL)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "index"
    index_folder.save(made(30), folder, MODEL)
    return folder


def test_files_that_only_look_like_ours_are_left_alone(tmp_path):
    for name in ("embeddings-train.npy", "sentences-train.parquet"):
        (tmp_path / name).write_text("the user's own")
    with pytest.raises(UserError, match="exists and is not an index"):
        index_folder.save(made(5), tmp_path, MODEL)
    (tmp_path / "index.json").write_text("{}")
    with pytest.raises(UserError, match="exists and is not an index"):
        index_folder.save(made(5), tmp_path, MODEL)
    assert (tmp_path / "embeddings-train.npy").read_text() == "the user's own"


def test_a_folder_that_a_mac_has_shown_is_empty(tmp_path):
    (tmp_path / ".DS_Store").write_bytes(b"Bud1")
    index_folder.save(made(3), tmp_path, MODEL)
    (tmp_path / "._index.json").write_bytes(b"\0\5")
    index_folder.save(made(4), tmp_path, MODEL)
    assert len(index_folder.load(tmp_path, MODEL).sentences) == 4


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("do not lose me")
    with pytest.raises(UserError, match="exists and is not an index"):
        index_folder.save(made(3), tmp_path, MODEL)
    with pytest.raises(UserError, match=r"thesis\.txt: a file; an index is a folder"):
        index_folder.save(made(3), tmp_path / "thesis.txt", MODEL)
    with pytest.raises(UserError, match="must be a folder on a disk"):
        index_folder.save(made(3), "gs://bucket/index", MODEL)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def small(precision: str, count: int = 40) -> Index:
    index, whole = Index(12, precision=precision), made(count)
    index.add(whole.sentences, np.concatenate(list(whole.embeddings())))
    return index


@pytest.mark.parametrize(("precision", "width"), [("int8", 12), ("binary", 2)])
def test_bytes_and_bits_stay_what_they_are(precision, width, tmp_path):
    index = small(precision)
    before = index.search(QUERIES, 7)
    index_folder.save(index, tmp_path, MODEL)
    (file,) = tmp_path.glob("embeddings-*.npy")
    assert np.load(file).shape == (40, width) and np.load(file).itemsize == 1
    assert json.loads((tmp_path / "index.json").read_text())["format"] == 2  # which earlier versions refuse
    loaded = index_folder.load(tmp_path, MODEL)
    assert loaded.search(QUERIES, 7) == before and loaded.precision == precision
    for some in (loaded, index):
        some.add(["more"], QUERIES[:1])
    assert loaded.search(QUERIES, 7) == index.search(QUERIES, 7)


def test_ranges_of_copies_stay_with_an_index_of_numbers(tmp_path):
    index = made(40)
    before = index.search(QUERIES, 7, storage="int8")
    index_folder.save(index, tmp_path, MODEL)
    loaded = index_folder.load(tmp_path, MODEL)
    np.testing.assert_array_equal(loaded.ranges, index.ranges)
    assert loaded.ranged == 40
    assert loaded.search(QUERIES, 7, storage="int8") == before


@pytest.mark.parametrize(
    "damage",
    [
        {"ranges": None},
        {"ranges": [[0.0], [1.0]]},
        {"ranges": [[float("nan")] * 12, [1.0] * 12]},
        {"ranges": [[0.0] * 12, [1.0] * 12]},
        {"ranges": "all"},
        {"ranges_sha256": "0"},
        {"ranged": "all"},
        {"precision": "int4"},
        {"precision": ["int8"]},
        {"precision": "float32"},
        {"format": 1},
        {"precision": "binary"},
    ],
)
def test_damaged_ranges_are_found(damage, tmp_path):
    index_folder.save(small("int8"), tmp_path, MODEL)
    path = tmp_path / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    with pytest.raises(UserError, match=r"index\.json: damaged; build the index again"):
        index_folder.load(tmp_path, MODEL)


def test_rows_of_another_type_are_refused(tmp_path):
    index_folder.save(small("binary"), tmp_path, MODEL)
    (file,) = tmp_path.glob("embeddings-*.npy")
    np.save(file, np.load(file).astype(np.int8))
    with pytest.raises(UserError, match=r"int8 \(40, 2\), but the index has uint8 \(40, 2\)"):
        index_folder.load(tmp_path, MODEL)
