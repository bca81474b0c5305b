import shutil

import pytest


@pytest.fixture
def folder(tiny_folder, tmp_path):
    return shutil.copytree(tiny_folder, tmp_path / "model")


@pytest.fixture
def bert(tiny_bert, tmp_path):
    return shutil.copytree(tiny_bert, tmp_path / "model")
