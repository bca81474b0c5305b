import itertools
from collections import Counter

import pytest
from support.corpora import prepare
from support.data import raises

from simcse_jax.data.augment import augment
from simcse_jax.data.corpus.source_rows import BLANK, SOURCE_ROWS, UNUSED, Item, make_change, read_items
from simcse_jax.data.examples import read_examples
from simcse_jax.errors import UserError

SETTINGS = {"columns": {}, "positives": "", "labels": False, "seed": 3, "augment": {}}


def items(path, **changes):
    return list(read_items(SETTINGS | changes, str(path), 0))


@pytest.fixture
def documents(tmp_path):
    path = tmp_path / "documents.txt"
    path.write_text("a1\na2\na3\na4\n\nb1\n\n\nc1\nc2\n")
    return path


def test_every_row_has_an_item_by_seed_and_row_as_in_memory(documents, tmp_path):
    found = items(documents)
    assert len(found) == 10 and found[4] == BLANK
    assert [item.texts[0] for item in found if not item.left_out] == ["a1", "a2", "a3", "a4", "b1", "c1", "c2"]
    found = items(documents, positives="next_sentence")
    pairs = [("a1", "a2"), ("a2", "a3"), ("a3", "a4"), ("c1", "c2")]
    assert [tuple(item.texts) for item in found if not item.left_out] == pairs
    assert [found[row] for row in (3, 4, 5, 6, 9)] == [UNUSED, BLANK, UNUSED, BLANK, UNUSED]
    path, three = tmp_path / "long.txt", {"positives": "next_3_sentences"}
    path.write_text("\n".join(map(str, range(3000))) + "\n\nx\n")
    found = items(path, **three)
    ahead = Counter(int(item.texts[1]) - int(item.texts[0]) for item in found if not item.left_out)
    assert set(ahead) == {1, 2, 3} and all(900 < count < 1100 for count in ahead.values())
    assert found == items(path, **three) != items(path, **three, seed=4)
    texts = [f"the cat {'sat on ' * (n % 3)}the mat {n}" for n in range(30)]
    (tmp_path / "a.txt").write_text("\n".join(texts) + "\n")
    for name, both in itertools.product(("crop", "delete", "delete_one"), (False, True)):
        options = {"name": name, "percent": 20.0, "both": both, "lexicon": ""}
        fields = {"name": name, "percent": 20.0, "lexicon": "", "mlm_model": "", "seed": 5}
        first = augment(texts, column=0, **fields) if both else texts
        expected = [Item([*pair]) for pair in zip(first, augment(texts, column=1, **fields), strict=True)]
        assert items(tmp_path / "a.txt", augment=options, seed=5) == expected
        assert make_change(options, 5)("the cat sat on the mat", SOURCE_ROWS, 1) != ""
    raises("--augment mlm: ", make_change, {"name": "mlm", "percent": 1.0}, 0)
    assert make_change({}, 0) is None


@pytest.mark.parametrize("positives", ["", "next_sentence"])
def test_a_source_is_refused_where_training_refuses_it(positives, tiny_bert, tmp_path):
    path = tmp_path / "a.txt"
    for number, lines in enumerate(itertools.chain(*(itertools.product("a\n", repeat=count) for count in range(1, 5)))):
        path.write_text("".join(line if line == "\n" else "a\n" for line in lines))
        try:
            read_examples(str(path), positives=positives)
        except UserError as error:
            said = str(error).split(";")[0].split(", but data")[0].split(", only")[0]
            raises(said, prepare, tmp_path / str(number), tiny_bert, path, positives=positives)
        else:
            assert len(prepare(tmp_path / str(number), tiny_bert, path, positives=positives))
