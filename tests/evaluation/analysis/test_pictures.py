import io
import itertools

import numpy as np
import pytest
from PIL import Image, ImageColor
from support.pictures import texts as texts_of

from simcse_jax.evaluation.analysis import pictures
from simcse_jax.evaluation.analysis.map import project
from simcse_jax.evaluation.plotting import COLOURS


def texts(drawn: dict) -> list[str]:
    return texts_of(drawn["svg"])


def rows(field: str, *values: float) -> list[dict]:
    return [{"layer": layer, field: value} for layer, value in enumerate(values)]


@pytest.mark.slow
def test_pictures_name_models_axes_data_dimensions_and_the_tokens_that_stand_out():
    found = {"the $first$ model": rows("anisotropy", 0.1, 0.4, 0.2), "x" * 90: rows("anisotropy", 0.3, 0.2)}
    drawn = pictures.layers(found, "anisotropy", "STS-B test")
    there = texts(drawn)
    assert {"the $first$ model", "…" + "x" * 43, "Anisotropy of the tokens, by layer", "STS-B test"} <= set(there)
    assert {"layer   (0: the embedding layer)", "mean cosine similarity", "0", "1", "2"} <= set(there)
    colours = [ImageColor.getrgb(colour) for colour in COLOURS[:2]]
    shades = [Image.new("RGB", (1, 1), colour).convert("L").getpixel((0, 0)) for colour in colours]
    assert abs(shades[0] - shades[1]) > 50
    grey = np.asarray(Image.open(io.BytesIO(drawn["png"])).convert("L"), int)
    assert all(np.sum(np.abs(grey - shade) <= 1) > 300 for shade in shades)
    for values in ((0.4, 0.5, 0.2), (0.4, 0.5, -0.3)):
        field = "adjusted_self_similarity"
        there = texts(pictures.layers({"a": rows(field, *values), "b": rows(field, values[-1])}, field, "s"))
        ticks = [float(text.replace("−", "-")) for text in there if text.lstrip("−").startswith("0.")]
        assert 0.0 in ticks
        assert (min(ticks) == 0.0) == (min(values) > 0)
        assert min(ticks) <= min(values) + 0.1 and max(ticks) >= max(values) - 0.1
    shares = np.cumsum([0.4, 0.05, 0.05, *[0.01] * 50])
    there = texts(pictures.dimensions({"a": shares.tolist()}, "random pairs", "s"))
    assert {"of random pairs, last layer", "10", "20", "50", "100", "% of the mean cosine, cumulated"} <= {*there}
    tokens = [{"token": f"w{n}", "change": 0.001 * (n % 7), "special": False} for n in range(60)]
    tokens[1] |= {"token": "[CLS]", "change": -0.4, "special": True}
    tokens[2] |= {"token": "[SEP]", "special": True}
    tokens[40] |= {"token": "far", "change": 0.3}
    pairs = [{"model": f"after {n}", "base": f"before {n}", "tokens": tokens} for n in range(2)]
    there = texts(pictures.self_similarity_change(pairs))
    assert {"Self-similarity change of the 60 most frequent tokens", "mean of 25 tokens"} <= set(there)
    assert {"before 0", "→ after 0", "before 1", "→ after 1", "[CLS]", "[SEP]", "far"} <= set(there)
    assert sum(text.startswith("w") for text in there) < 17
    assert "mean of 3 tokens" in texts(pictures.self_similarity_change([pairs[0] | {"tokens": tokens[:3]}]))


@pytest.mark.slow
def test_pairs_have_curves_models_colours_maps_panels_and_runs_their_steps():
    names = [["A", "a"], ["B", "b"], ["C", "c"]]
    found = [
        {"pairs": [one, other], "by_n": [None, 1.0, 0.5], "best_n": n, "best": n / 4}
        for n, (one, other) in enumerate(itertools.combinations(names, 2), 1)
    ]
    expected = {"A and B, best: 0.250 at n = 1", "A and C, best: 0.500 at n = 2", "B and C, best: 0.750 at n = 3"}
    assert expected <= set(texts(pictures.correlation(found)))
    assert "best: 0.250 at n = 1" in texts(pictures.correlation(found[:1]))
    long = [f"{kind}sup-simcse-bert-base-uncased" for kind in ("", "un")]  # their ends are the same
    alike = [{**found[0], "pairs": [[name, "a"], ["B", "b"]]} for name in long]
    assert {f"{name} and B, best: 0.250 at n = 1" for name in long} <= set(texts(pictures.correlation(alike)))
    styles = pictures.line_styles(["a", "A", "b", "B", "C", "alone"], [("A", "a"), ("B", "b"), ("C", "a")])
    assert len({style["color"] for style in styles.values()}) == 6
    assert {name for name, style in styles.items() if style["linestyle"] == "--"} == {"a", "b"}
    chain = pictures.line_styles(["a", "b", "c"], [("b", "a"), ("c", "b")])  # a base that is a model, too
    assert [chain[name]["linestyle"] for name in "abc"] == ["--", "-", "-"]
    generator = np.random.default_rng(0)
    wide, narrow = generator.normal(size=(60, 5)), generator.normal(size=(60, 5)) / 10 + 1
    there = texts(pictures.embedding_map(project({"narrow": narrow, "wide": wide}, umap=False), "STS-B"))
    assert {"Sentence embeddings of STS-B, PCA", "narrow", "wide", "pale: the other model"} <= set(there)
    assert not any("-0.00" in text for text in there)
    assert sum("mean cosine of two sentences" in text for text in there) == 2
    three = {"narrow": narrow, "wide": wide, "more": -wide, "most": wide / 2, "last": -narrow}
    there = texts(pictures.embedding_map(project(three, umap=False), "STS-B"))
    assert {*three, "pale: the other models"} <= set(there)
    found = {"temperature 0.05": [(0, 0.9), (10, 0.5), (20, 0.2)], "temperature 0.1": [(0, 0.9), (20, 0.1)]}
    there = texts(pictures.over_steps(found, "uniformity", "STS-B test"))
    assert {*found, "Uniformity, by training step", "STS-B test", "training step"} <= set(there)
    assert any("lower is better" in text for text in there)
    assert "2.5" not in there  # a step is whole
    assert "a" in texts(pictures.over_steps({"a": [(0, 0.5)]}, "anisotropy", "s.txt"))  # a point
