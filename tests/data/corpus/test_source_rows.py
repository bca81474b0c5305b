import itertools
from collections import Counter

import pytest
from support.data import raises

from simcse_jax.data.augment import augment
from simcse_jax.data.corpus.source_rows import BLANK, SOURCE_ROWS, UNUSED, Item, Items, check_usable, make_change
from simcse_jax.data.examples import read_examples
from simcse_jax.errors import UserError

KEY = {"columns": {}, "positives": "", "labels": False, "seed": 3, "augment": {}}


def open_items(path, change=None, **changes):
    return Items(KEY | {"sources": [{"name": str(path)}]} | changes, 0, change)


@pytest.fixture
def documents(tmp_path):
    path = tmp_path / "documents.txt"
    path.write_text("a1\na2\na3\na4\n\nb1\n\n\nc1\nc2\n")
    return path


def test_every_row_has_an_item_by_seed_and_row_as_in_memory_whatever_is_passed_over(documents, tmp_path):
    found = list(open_items(documents))
    assert len(found) == 10 and found[4] == BLANK
    assert [item.texts[0] for item in found if not item.left_out] == ["a1", "a2", "a3", "a4", "b1", "c1", "c2"]
    found = list(open_items(documents, positives="next_sentence"))
    pairs = [("a1", "a2"), ("a2", "a3"), ("a3", "a4"), ("c1", "c2")]
    assert [tuple(item.texts) for item in found if not item.left_out] == pairs
    assert [found[row] for row in (3, 4, 5, 6, 9)] == [UNUSED, BLANK, UNUSED, BLANK, UNUSED]
    for positives in ("", "next_3_sentences"):
        whole, found = (open_items(documents, positives=positives) for _ in range(2))
        whole = list(whole)
        assert next(found) == whole[0]
        found.pass_to(3)
        assert list(found) == whole[3:]
    path, three = tmp_path / "long.txt", {"positives": "next_3_sentences"}
    path.write_text("\n".join(map(str, range(3000))) + "\n\nx\n")
    found = list(open_items(path, **three))
    ahead = Counter(int(item.texts[1]) - int(item.texts[0]) for item in found if not item.left_out)
    assert set(ahead) == {1, 2, 3} and all(900 < count < 1100 for count in ahead.values())
    assert found == list(open_items(path, **three)) != list(open_items(path, **three, seed=4))
    texts = [f"the cat {'sat on ' * (n % 3)}the mat {n}" for n in range(30)]
    (tmp_path / "a.txt").write_text("\n".join(texts) + "\n")
    for name, both in itertools.product(("crop", "delete", "delete_one"), (False, True)):
        options = {"name": name, "percent": 20.0, "both": both, "lexicon": ""}
        change = make_change(options, 5)
        fields = {"name": name, "percent": 20.0, "lexicon": "", "mlm_model": "", "seed": 5}
        first = augment(texts, column=0, **fields) if both else texts
        expected = [Item([*pair]) for pair in zip(first, augment(texts, column=1, **fields), strict=True)]
        assert list(open_items(tmp_path / "a.txt", change, augment=options)) == expected
        assert change("the cat sat on the mat", SOURCE_ROWS, 1) != ""
    raises("--augment mlm: ", make_change, {"name": "mlm", "percent": 1.0}, 0)
    assert make_change({}, 0) is None
    for positives in ("", "next_sentence"):
        path = tmp_path / "a.txt"
        key = KEY | {"sources": [{"name": str(path)}], "positives": positives}
        for lines in itertools.chain(*(itertools.product(["a\n", "\n"], repeat=count) for count in range(1, 5))):
            path.write_text("".join(lines))
            try:
                read_examples(str(path), positives=positives)
            except UserError as error:
                said = str(error).split(";")[0].split(", but data")[0].split(", only")[0]
                raises(said, check_usable, key)
            else:
                check_usable(key)
