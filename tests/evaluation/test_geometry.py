import math

import numpy as np
import pytest
import scipy.stats
from support.data import raises

from simcse_jax.evaluation import geometry
from simcse_jax.evaluation.analysis import spectrum
from simcse_jax.evaluation.sts import Pairs

# In the plane, of other lengths than 1: at 0°, 90°, 180° and 270°.
CROSS = np.array([[2.0, 0.0], [0.0, 0.5], [-1.0, 0.0], [0.0, -3.0]])


def vectors(rows: int, size: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, size)) + 0.5


def write_sts_b(folder, **splits):
    """Of lines like STS-B's, whose sentences are their own numbers: `3 a` and `3 b` are the third pair."""
    target = folder / "STS" / "STSBenchmark"
    target.mkdir(parents=True)
    for first, (split, scores) in zip(range(0, 300, 100), splits.items(), strict=False):
        lines = [f"g\tf\ty\t{n}\t{score}\t{n} a\t{n} b\n" for n, score in enumerate(scores, first)]
        (target / f"sts-{split}.csv").write_text("".join(lines))
    return folder


def test_alignment_and_uniformity_are_their_formulas_whatever_rotation_lengths_and_blocks():
    # Squared distances on the circle: 0° to 90° 2, 90° to 90° 0, 180° to 0° 4. Their mean is 2.
    first, second = CROSS[[0, 1, 2]], CROSS[[1, 1, 0]]
    assert geometry.alignment(first, second) == pytest.approx(2.0, abs=1e-12)
    assert geometry.alignment(first, first) == pytest.approx(0.0, abs=1e-12)
    # Of six pairs four are at 90° (squared distance 2), two at 180° (4).
    expected = math.log((4 * math.exp(-4) + 2 * math.exp(-8)) / 6)
    assert geometry.uniformity(CROSS) == pytest.approx(expected, abs=1e-12)
    assert geometry.uniformity(np.ones((5, 3))) == pytest.approx(0.0, abs=1e-12)
    rows = vectors(17)
    unit = [row / math.sqrt(sum(row * row)) for row in rows]
    terms = [math.exp(-2 * sum((a - b) ** 2)) for i, a in enumerate(unit) for b in unit[i + 1 :]]
    for blocks in ((), (1,), (2,), (16,), (17,), (40,)):
        assert geometry.uniformity(rows, *blocks) == pytest.approx(math.log(sum(terms) / len(terms)), abs=1e-12)
    rows = vectors(30)
    for changed in (
        rows @ np.linalg.qr(np.random.default_rng(9).normal(size=(5, 5)))[0],
        rows * np.linspace(0.1, 9, 30)[:, None],
        rows[[*range(14, -1, -1), *range(29, 14, -1)]],  # within the halves, so that the pairs stay
    ):
        found, expected = (geometry.alignment(each[:15], each[15:]) for each in (changed, rows))
        assert found == pytest.approx(expected, abs=1e-12)
        assert geometry.uniformity(changed) == pytest.approx(geometry.uniformity(rows), abs=1e-12)
        ours, theirs = (spectrum.measure(each, (each[:15], each[15:]), 0.05) for each in (changed, rows))
        assert ours.numbers == pytest.approx(theirs.numbers, abs=1e-9)
        assert ours.singular_values == pytest.approx(theirs.singular_values, abs=1e-9)


def test_all_is_measured_on_the_right_sentences_and_pairs_grouped_by_gold_score():
    """Of three pairs one is rated above 4, one at 4; all six sentences count for uniformity, repeated ones too."""
    pairs = Pairs(["east", "east", "east"], ["north", "west", "east"], np.array([4.5, 4.0, 1.0]), {})
    directions = dict(zip(["east", "north", "west", "south"], CROSS.astype(np.float32), strict=True))
    seen = []

    def encode(sentences):
        seen.extend(sentences)
        return np.stack([directions[sentence] for sentence in sentences])

    found = geometry.measure(encode, pairs)
    assert sorted(seen) == ["east", "north", "west"]
    assert found.alignment == pytest.approx(2.0, abs=1e-6)
    # East occurs four times, north and west once: of 15 pairs 6 are equal, 4 + 1 at 90°, 4 at 180°.
    assert found.uniformity == pytest.approx(math.log((6 + 5 * math.exp(-4) + 4 * math.exp(-8)) / 15), abs=1e-6)
    assert found.spearman == pytest.approx(100 * scipy.stats.spearmanr([0, -1, 1], [4.5, 4.0, 1.0]).statistic)
    assert [group.pairs for group in found.groups.values()] == [0, 1, 0, 0, 2]
    assert found.spectrum.singular_values == pytest.approx([1.0, math.sqrt(1 / 5)], abs=1e-6)  # five on one axis
    gold = np.array([0.0, 0.99, 1.0, 2.5, 3.999, 4.0, 5.0])
    cosines = np.array([-0.5, 0.1, 0.2, 0.3, 0.4, 0.8, 1.0])
    groups = geometry.cosine_groups(cosines, gold)
    assert list(groups) == ["0–1", "1–2", "2–3", "3–4", "4–5"]
    assert [group.pairs for group in groups.values()] == [2, 1, 1, 1, 2]
    assert groups["0–1"].mean == pytest.approx(-0.2) and groups["0–1"].std == pytest.approx(0.3)
    assert groups["4–5"].mean == pytest.approx(0.9) and groups["4–5"].std == pytest.approx(0.1)
    assert geometry.cosine_groups(cosines[:1], gold[:1])["4–5"] == (0, None, None, None)
    cosines = np.random.default_rng(0).normal(0.3, 0.1, 200)
    assert geometry.density(cosines) == pytest.approx(scipy.stats.gaussian_kde(cosines)(geometry.GRID), abs=1e-9)
    grid = np.linspace(-1, 1, 4001)
    for some in ([1.0], [1.0, 1.0, 1.0], [-1.0, 1.0], [0.99, 0.9, 0.97, 1.0], [0.2, -0.1]):
        assert np.trapezoid(geometry.density(np.array(some), grid), grid) == pytest.approx(1.0, abs=1e-4)


def test_a_split_or_all_three_together_are_read_if_the_scores_fit(tmp_path):
    data = str(write_sts_b(tmp_path, train=[5, 1, 2], dev=[4.2, 0], test=[3, 4.1]))
    assert geometry.read(data).first == ["200 a", "201 a"]
    assert geometry.read(data, "dev").second == ["100 b", "101 b"]
    everything = geometry.read(data, "all")
    assert everything.gold.tolist() == [5, 1, 2, 4.2, 0, 3, 4.1]
    assert everything.second == ["0 b", "1 b", "2 b", "100 b", "101 b", "200 b", "201 b"]
    lines = ["sentence1\tsentence2\tscore", *(f"a {n}\tb {n}\t{n % 6}" for n in range(12))]
    for name in ("mine.tsv", "STSBenchmark.tsv"):  # a file is read once, whatever its name
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        for split in geometry.SPLITS:
            assert len(geometry.read(str(tmp_path / name), split).gold) == 12
    beyond = ([4.5, 6.0], "scores from 4.5 to 6"), ([-1, 5], "scores from -1 to 5")
    for scores, message in (([4.0, 1.0], "no pair is rated above 4"), *beyond):
        folder = str(write_sts_b(tmp_path / message, test=scores))
        raises(message, geometry.read, folder)
        raises("STSBenchmark", geometry.read, folder, "all")  # of which some are not there


def test_the_plane_alone_is_that_of_the_whole_measurement_after_the_post_processing_of_the_task():
    rng = np.random.default_rng(3)
    vectors, sentences = rng.normal(size=(40, 6)) + 1, [str(number) for number in range(40)]
    pairs = Pairs(sentences[:20], sentences[20:], rng.uniform(0, 5, 20), {})
    embed = lambda sentences: vectors[[*map(int, sentences)]]  # noqa: E731
    whole = geometry.measure(embed, pairs).numbers()
    assert geometry.Plane({"pairs": pairs})(embed) == {name: whole[name] for name in ("alignment", "uniformity")}

    class Embed:
        def __call__(self, sentences):
            raise AssertionError("without the post-processing")

        def for_task(self, name, task):
            return lambda sentences: np.eye(len(sentences))

    pairs = Pairs(["a", "b"], ["c", "d"], np.array([5.0, 0.0]), {})
    assert geometry.Plane({"pairs": pairs})(Embed())["alignment"] == 2.0
