import shutil

import numpy as np
import pytest
from support.corpora import prepare

from simcse_jax.data.corpus.opened import Prepared
from simcse_jax.data.corpus.origins import origins, texts
from simcse_jax.errors import UserError


def test_rows_know_where_they_came_from(tiny_bert, tmp_path):
    rows = [f"the cat {'sat ' * (n % 5)}" if n % 7 else "" for n in range(40)]
    (tmp_path / "a.txt").write_text("\n".join(rows) + "\n")
    (tmp_path / "b.txt").write_text("\n".join(["the dog ran"] * 20) + "\n")
    corpus = prepare(tmp_path / "out", tiny_bert, tmp_path / "*.txt", keep_text=True)
    order = np.random.default_rng(0).permutation(len(corpus))
    sources, numbers = origins(corpus, order)
    used = [(0, n) for n in range(40) if n % 7] + [(1, n) for n in range(20)]
    assert list(zip(sources.tolist(), numbers.tolist(), strict=True)) == [used[row] for row in order]
    expected = [rows[used[row][1]].strip() if used[row][0] == 0 else "the dog ran" for row in order]
    assert texts(corpus, order) == [[text] for text in expected]


def test_numbers_of_rows_that_cannot_be_are_found(tiny_bert, tmp_path):
    (tmp_path / "a.txt").write_text("a cat\n\na dog\na bird\n")
    corpus = prepare(tmp_path / "out", tiny_bert, tmp_path / "a.txt")
    shard = corpus.manifest.shards[0]
    path, start = tmp_path / "out" / shard.file, shard.parts(2, False).origins
    for byte in (0, 4):
        path.write_bytes(path.read_bytes()[:start] + bytes([byte]) * (path.stat().st_size - start))
        with pytest.raises(UserError, match=f"{shard.file}: was changed"):
            origins(corpus, np.arange(3))


def test_texts_of_all_columns_are_kept_as_they_were(triplets, corpus):
    lines = [line.split(",") for line in corpus["csv"].read_text().splitlines()[1:]]
    assert texts(Prepared(triplets), np.array([39, 0, 17])) == [lines[39], lines[0], lines[17]]


def test_text_that_is_missing_cut_or_changed_is_named(triplets, tmp_path):
    folder = shutil.copytree(triplets, tmp_path / "out")
    path, rows = folder / "shard-00000-00001.text", np.arange(16, 32)
    whole = path.read_bytes()
    texts(Prepared(folder), rows)
    generator = np.random.default_rng(0)
    places = generator.integers(0, 8 * 48, size=10).tolist() + generator.integers(8 * 49, len(whole), size=10).tolist()
    changed = [whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :] for place in places]
    for data in (whole[:-1], bytes(len(whole)), *changed):
        path.write_bytes(data)
        with pytest.raises(UserError, match=f"{path.name}: (has|was changed)"):
            texts(Prepared(folder), rows)
    path.unlink()
    with pytest.raises(UserError, match=f"{path.name}: missing; a copy in data.local_cache has no text"):
        texts(Prepared(folder), rows)


def test_a_corpus_without_text_says_so(lines):
    with pytest.raises(UserError, match="--keep-text"):
        texts(Prepared(lines), np.array([0]))
