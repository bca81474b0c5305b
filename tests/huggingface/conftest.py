import shutil

import pytest


@pytest.fixture
def folder(tiny_folder, tmp_path):
    """A copy for a test to change."""
    return shutil.copytree(tiny_folder, tmp_path / "model")
