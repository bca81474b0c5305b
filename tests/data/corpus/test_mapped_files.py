import mmap
from pathlib import Path

import numpy as np
import pytest
from support.data import raises

from simcse_jax.data.corpus.mapped_files import FileRange, Mapped

PAGE = mmap.PAGESIZE


def test_parts_of_files_are_one_array_which_only_can_be_read(tmp_path):
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode() * 3 * PAGE)
    mapped = Mapped(
        [FileRange(tmp_path / "b", PAGE, PAGE), FileRange(tmp_path / "a", 0, 0), FileRange(tmp_path / "a", 0, 2 * PAGE)]
    )
    array = mapped.array(np.dtype("u1"))
    assert bytes(array) == b"b" * PAGE + b"a" * 2 * PAGE
    mapped.will_need(np.array([0, PAGE - 1, 5]), np.array([1, PAGE + 1, 3 * PAGE]))
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    assert array[-1] == ord("a")
    mapped.close()
    mapped.close()
    raises("none: cannot be read", Mapped, [FileRange(tmp_path / "none", 0, PAGE)])


def test_more_parts_than_the_system_maps_are_refused_with_advice(tmp_path):
    limit = Path("/proc/sys/vm/max_map_count")
    most = int(limit.read_text()) if limit.exists() else 2**20
    if most > 2**17:
        pytest.skip(f"this system maps {most:,} parts")
    (tmp_path / "part").write_bytes(bytes(PAGE))
    raises("vm.max_map_count", Mapped, [FileRange(tmp_path / "part", 0, PAGE)] * most)
    assert Mapped([FileRange(tmp_path / "part", 0, PAGE)] * 9).array(np.dtype("u1")).sum() == 0
