import os

from support.data import raises
from support.later import later

from simcse_jax.data.identity import hash_file, names_in, read_sealed, size_of, stamp_of, write_sealed

datasets = later("datasets")


def test_what_was_written_is_read_and_changed_files_and_sources_are_noticed(tmp_path):
    path = tmp_path / "facts.json"
    assert read_sealed(path) is None
    write_sealed(path, {"rows": 3, "é": [1, {"a": None}]})
    assert read_sealed(path) == {"rows": 3, "é": [1, {"a": None}]}
    text = path.read_text()
    for before, after in (("3", "4"), ('"rows"', '"cows"'), ('"seal"', '"sale"')):
        path.write_text(text.replace(before, after, 1))
        raises("facts.json: was changed", read_sealed, path)
    path.write_bytes(b"\xff")
    raises("facts.json: cannot be read", read_sealed, path)
    assert size_of(tmp_path / "none") is None and names_in(tmp_path) == {"facts.json"}
    (tmp_path / "a").write_bytes(b"abc")
    assert size_of(tmp_path / "a") == 3 and hash_file(tmp_path / "a").startswith("ba7816bf")
    for look in (size_of, hash_file):
        raises("cannot be read", look, tmp_path / "a" / "b")
    path, folder = tmp_path / "a.txt", tmp_path / "STS/STSBenchmark"
    path.write_text("a cat\n")
    folder.mkdir(parents=True)
    (folder / "sts-train.csv").write_text("x\n")
    datasets.Dataset.from_dict({"text": ["a"]}).save_to_disk(tmp_path / "hub")
    names = [str(path), f"sts:{tmp_path}", f"hf:{tmp_path}/hub"]
    before = [stamp_of(name) for name in names]
    assert before == [stamp_of(name) for name in names] and [stamp.bytes for stamp in before] == [6, 0, 0]
    os.utime(path, (1, 1))
    os.utime(folder / "sts-train.csv", (1, 1))
    datasets.Dataset.from_dict({"text": ["b"]}).save_to_disk(tmp_path / "hub")
    assert all(stamp_of(name) != was for name, was in zip(names, before, strict=True))
    path.unlink()
    raises("a.txt: cannot be read", stamp_of, str(path))
