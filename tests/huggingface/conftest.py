import shutil

import pytest


@pytest.fixture
def folder(tiny_folder, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(tiny_folder, tmp_path / "model")
