import pytest
from support import call, refused

from simcse_jax.commands.overlap import lexical_overlap

CASES = [
    ("A man plays.", "a MAN, sleeps", 2 / 3),  # two of three words each
    ("the dog saw the cat", "the bird", 2 * 1 / 7),  # a multiset: "the" counts once, as often as in both
    ("the dog and the cat", "the the", 2 * 2 / 7),
    ("don't stop", "don’t stop", 1 / 2),  # an apostrophe is part of the word
    ("don't", "don t", 0),
    ("well-known", "well known", 1),
    ("...", "!", 0),
    ("Grüße aus Köln", "grüße köln", 4 / 5),
]


def test_f1_of_bags_of_words_by_hand_its_mean_over_pairs_and_the_command(tmp_path):
    for first, second, f1 in CASES:
        assert lexical_overlap([first], [second]) == lexical_overlap([second], [first]) == pytest.approx(f1)
    assert lexical_overlap(["a b", "a a b b"], ["a b", "c d"]) == 0.5
    with pytest.raises(ValueError, match="longer"):
        lexical_overlap(["a"], ["a", "b"])
    pairs, rows = tmp_path / "pairs.csv", ["a b,a b,entailment"] * 1200 + ["a b,c d,neutral"] * 1200
    pairs.write_text("\n".join(["sent0,sent1,label", *rows]) + "\n")
    assert call("overlap", pairs).stdout == "50.0% mean F1 of 2,400 pairs\n"
    assert call("overlap", pairs, "--positives", "entailment").stdout == "100.0% mean F1 of 1,200 pairs\n"
    pairs.write_text(pairs.read_text().replace("sent1,label", "other,gold"))
    done = call("overlap", pairs, "--anchor=other", "--positive=sent0", "--label=gold", "--positives=neutral")
    assert done.stdout == "0.0% mean F1 of 1,200 pairs\n"
    (tmp_path / "single.txt").write_text("a\nb\n")
    refused(call("overlap", tmp_path / "single.txt"), "single.txt: has one column")
