import itertools

import pytest

from simcse_jax.data.corpus import usable
from simcse_jax.data.corpus.items import Items
from simcse_jax.data.corpus.usable import check_usable
from simcse_jax.data.examples import read_examples
from simcse_jax.errors import UserError


def key(path, positives):
    return {"sources": [{"name": str(path)}], "columns": {}, "positives": positives, "labels": False, "seed": 0}


@pytest.mark.parametrize("positives", ["", "next_sentence"])
@pytest.mark.parametrize("count", range(1, 6))
def test_it_refuses_what_training_refuses(count, positives, tmp_path):
    path = tmp_path / "a.txt"
    for lines in itertools.product(["a\n", "\n"], repeat=count):
        path.write_text("".join(lines))
        try:
            read_examples(str(path), positives=positives)
        except UserError as error:
            with pytest.raises(UserError, match=str(error).split(";")[0].split(", but data")[0].split(", only")[0]):
                check_usable(key(path, positives))
        else:
            check_usable(key(path, positives))


def test_no_more_is_read_than_is_needed(tmp_path, monkeypatch):
    read = []

    class Counted(Items):
        def __next__(self):
            read.append(1)
            return super().__next__()

    monkeypatch.setattr(usable, "Items", Counted)
    (tmp_path / "a.txt").write_text("\na\nb\n\n" * 100)
    check_usable(key(tmp_path / "a.txt", ""))
    assert len(read) == 2
    check_usable(key(tmp_path / "a.txt", "next_sentence"))
    assert len(read) == 2 + 6
