import numpy as np
import pytest

from simcse_jax.evaluation import sts
from simcse_jax.evaluation.analysis import sentences
from simcse_jax.evaluation.sts import Pairs

TEXTS = [f"sentence {n}" for n in range(12)]
GRADED = Pairs(TEXTS[:6], TEXTS[6:], np.array([0.0, 1, 2, 3, 4.5, 5]), {})


def rows(seed: int, cone: float) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(12, 5)) + cone


def compared(about: sentences.SentenceSample, changes=(("after", "before"),), **models: np.ndarray) -> dict:
    found, maps = sentences.compare(about, models, changes, "some.tsv")
    assert found is not None and {label for one in maps.values() for label in one.points} == set(models)
    return found


def test_graded_pairs_are_measured_before_and_after_or_each_sentence_with_its_nearest():
    about = sentences.sample([], GRADED)
    assert about.texts == TEXTS and about.sentences == list(range(6))
    before, after = rows(0, 0.0), rows(1, 4.0)
    found = compared(about, before=before, after=after)
    for label, embeddings in (("before", before), ("after", after)):
        units = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
        cosines = np.sum(units[:6] * units[6:], axis=1)
        numbers = found["models"][label]["numbers"]
        apart = (units[:6] @ units[:6].T)[~np.eye(6, dtype=bool)]
        assert numbers["unrelated"] == pytest.approx(apart.mean(), abs=1e-6)
        assert numbers["related"] == pytest.approx(cosines[4:].mean(), abs=1e-6)
        assert numbers["spearman"] == pytest.approx(sts.spearman(cosines, GRADED.gold), abs=1e-6)
        assert found["models"][label]["cosines"] == pytest.approx(cosines, abs=1e-4)
        own = units[:6] @ units[:6].T - 9 * np.eye(6)
        assert found["models"][label]["nearest"] == own.argmax(axis=1).tolist()
        for density in found["models"][label]["distributions"]:
            assert np.sum(density) * np.diff(sentences.BINS)[0] == pytest.approx(1, abs=1e-2)
    assert found["pairs"] == [[n, n + 6, grade] for n, grade in enumerate(GRADED.gold.tolist())]
    about = sentences.sample([*TEXTS, TEXTS[0], " "])
    assert about.texts == TEXTS and about.pairs == []
    found = compared(about, before=rows(0, 0.0), after=rows(1, 0.0))
    nearest = [enumerate(found["models"][label]["nearest"]) for label in ("before", "after")]
    assert {tuple(pair[:2]) for pair in found["pairs"]} == {tuple(sorted(pair)) for of in nearest for pair in of}
    assert {pair[2] for pair in found["pairs"]} == {None}
    swapped = compared(about, (), after=rows(1, 0.0), before=rows(0, 0.0))  # no model chooses for the others
    assert {tuple(pair) for pair in swapped["pairs"]} == {tuple(pair) for pair in found["pairs"]}
    assert "spearman" not in found["models"]["before"]["numbers"] and found["related"] == "nearest sentences"
    many = [f"s{n}" for n in range(3 * sentences.MOST)]
    assert len(sentences.sample(many).texts) == sentences.MOST and sentences.sample(many).texts[-1] == many[-1]
    pairs = Pairs(many, [f"t{n}" for n in range(len(many))], np.arange(len(many)) / len(many), {})
    about = sentences.sample([], pairs)
    assert len(about.pairs) == sentences.MOST and about.gold[-1] == pairs.gold[-1]
    assert len(about.texts) == 2 * sentences.MOST
    assert sentences.compare(sentences.sample(["a"] * 6), {"m": rows(0, 0.0)[:1]}, [], "some.txt") == (None, {})
    alike = Pairs(["query"] * 6, TEXTS[:6], GRADED.gold, {})  # of pairs whose first sentence is the same
    assert len(sentences.sample([], alike).sentences) == 7


def test_the_headline_says_what_became_of_unrelated_sentences_and_the_lines_where_poolers_differ():
    about = sentences.sample([], GRADED)
    narrow, wide = rows(0, 9.0), rows(0, 0.0)
    text = sentences.headline(compared(about, before=wide, after=narrow))
    assert text.startswith("before → after: unrelated sentences crowd together, mean cosine ") and "; Spearman " in text
    assert "spread out" in sentences.headline(compared(about, before=narrow, after=wide))
    assert "stay about as far apart" in sentences.headline(compared(about, before=wide, after=wide))
    (line,) = sentences.changed(compared(about, before=wide, after=wide))
    assert line.endswith("100% of the sentences have the same nearest sentence as before.")
    alone = compared(about, (), one=wide)
    assert sentences.headline(alone) == "one on some.tsv" and sentences.changed(alone)[0].startswith("one: unrelated ")
    assert "→" not in " ".join(sentences.changed(alone))
    about = sentences.sample([], GRADED)
    assert sentences.headline(compared(about, before=rows(0, 0.0))) == "before on some.tsv"
    assert "crowd" in sentences.headline(compared(about, before=rows(0, 0.0), after=np.c_[rows(0, 9.0), rows(1, 9.0)]))
    both, poolers = {"base": rows(0, 0.0), "run": rows(0, 9.0)}, {"base": "avg", "run": "cls"}
    found, _ = sentences.compare(sentences.sample([], GRADED), both, [("run", "base")], "some.tsv", poolers)
    assert sentences.changed(found)[1].endswith("compare with base@cls")
    assert len(sentences.changed(found | {"poolers": {"base": "cls", "run": "cls"}})) == 1
