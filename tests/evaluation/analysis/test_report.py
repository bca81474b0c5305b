import html
import itertools
import json
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from support.fake_encoder import LAYERS, FakeEncoder

from simcse_jax.evaluation.analysis import pictures, report
from simcse_jax.evaluation.analysis.map import project
from simcse_jax.evaluation.analysis.measure import measure
from simcse_jax.evaluation.analysis.tokens import CHOICES, Protocol, survey

FIELDS = ("anisotropy", "self_similarity", "intra_sentence_similarity", "l2_norm")
NAME = "runs/<script>alert(1) & $x$"


def measured(seed: int, layers: int = 6, size: int = 384) -> dict:
    """Made-up numbers of one model."""
    generator = np.random.default_rng(seed)
    rows = []
    for layer in range(layers + 1):
        row = {"layer": layer} | {name: round(float(generator.uniform(0.05, 0.95)), 6) for name in FIELDS}
        row |= {f"adjusted_{name}": round(row[name] - row["anisotropy"], 6) for name in FIELDS[1:3]}
        rows.append(row)

    def dimensions() -> dict:
        shares = np.sort(generator.exponential(size=size))[::-1]
        cumulated = np.cumsum(shares) / shares.sum()
        needed = {str(share): int(np.argmax(cumulated >= share / 100)) + 1 for share in (10, 20, 50)}
        return {"top_share": cumulated[:3].tolist(), "needed": needed, "cumulated": cumulated.tolist()}

    ks = [k for k in (1, 2, 3, 5, 10, 20, 50, 100, 300, 700) if k < size]
    return {
        "layers": rows,
        "dimensions": dimensions(),
        "dimensions_random_pairs": dimensions(),
        "informativity": [{"k": k, "r2": round(1 / (1 + k / 100), 6)} for k in ks],
    }


def changes(model: str, base: str, seed: int = 2) -> dict:
    """Made-up changes of 400 tokens."""
    values = np.random.default_rng(seed).normal(size=400) / 10
    words = ["[SEP]", "<b>", *(f"word{n}" for n in range(398))]
    tokens = [
        {"token": word, "count": 900 - n, "change": float(values[n]), "special": n == 0} for n, word in enumerate(words)
    ]
    by_change = sorted(tokens, key=lambda token: token["change"])
    return {
        "model": model,
        "base": base,
        "tokens": tokens,
        "more_contextualized": [token["token"] for token in by_change[:10]],
        "less_contextualized": [token["token"] for token in by_change[:-11:-1]],
    }


def metrics(models: tuple[str, ...] = ("base", NAME), pairs: tuple[tuple[str, str], ...] = ((NAME, "base"),)) -> dict:
    """Made-up numbers of a report."""
    return {
        "data": "STS-B test",
        "sentences": 1359,
        "protocol": {"special_tokens": "out", "max_length": 256},
        "models": [
            {"model": f"path/of/{label}", "label": label, "tokens": 19_000, "types": 400, "samples": 1000}
            | measured(seed, layers=6 + 6 * (seed % 2), size=384 + 384 * (seed % 2))
            for seed, label in enumerate(models)
        ],
        "pairs": [changes(*pair, seed) for seed, pair in enumerate(pairs)],
        "correlations": [
            {"pairs": [list(one), list(other)], "by_n": [None, 1.0, 0.5, 0.875], "best_n": 4, "best": 0.875}
            for one, other in itertools.combinations(pairs, 2)
        ],
    }


FOUR = ("minilm", NAME, "mpnet", "mpnet tuned")
PAIRS = ((NAME, "minilm"), ("mpnet tuned", "mpnet"))


def a_map(names: list[str]) -> object:
    generator = np.random.default_rng(3)
    return project({name: generator.normal(size=(50, 8)) + 3 * n for n, name in enumerate(names)}, umap=False)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The report on two pairs of models."""
    folder = tmp_path_factory.mktemp("report") / "new" / "folder"
    found = metrics(FOUR, PAIRS)
    maps = {"map_384": a_map(list(FOUR[:2])), "map_768": a_map(list(FOUR[2:]))}
    return folder, report.write(found, folder, versions={"jax": "1.2.3"}, compared=None, maps=maps), found


def test_every_file_of_the_report_is_there(written):
    folder, names, found = written
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert names[0] == "metrics.json" and names[-1] == "report.html"
    assert json.loads((folder / "metrics.json").read_text()) == found
    pictures = {name.removesuffix(".png") for name in names if name.endswith(".png")}
    assert pictures == {
        *FIELDS,
        "adjusted_self_similarity",
        "adjusted_intra_sentence_similarity",
        "dimensions",
        "dimensions_random_pairs",
        "informativity",
        "self_similarity_change",
        "correlation",
        "map_384",
        "map_768",
    }
    for name in pictures:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        ElementTree.fromstring((folder / f"{name}.svg").read_text())
    assert tuple(report.models_of(found)) == FOUR


def cells(page: str, caption: str) -> list[list[str]]:
    """The rows of a table of the page, with its head."""
    table = next(
        part for part in re.findall("<table.*?</table>", page, re.S) if f"<caption>{caption}</caption>" in part
    )
    rows = re.findall("<tr>(.*?)</tr>", table)
    return [[html.unescape(cell) for cell in re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]


def test_the_page_has_the_numbers_of_all_models(written):
    folder, _, found = written
    page, models = (folder / "report.html").read_text(), report.models_of(found)
    summary = cells(page, "The last layer in numbers")
    assert summary[0] == ["", *FOUR]
    assert ["Anisotropy", *(f"{found['layers'][-1]['anisotropy']:.3f}" for found in models.values())] in summary
    assert len(summary) == 1 + 6 + 1
    table = cells(page, "Share of the top dimensions, and how many are needed: random pairs")
    r2 = cells(page, "r² without the top k dimensions")
    assert r2[0][-1] == "k\u00a0=\u00a0700" and r2[1][-1] == "–"  # of 384 dimensions
    for row, other, (label, numbers) in zip(table[1:], r2[1:], models.items(), strict=True):
        own = numbers["dimensions_random_pairs"]
        assert row == [
            label,
            *(f"{100 * share:.1f}%" for share in own["top_share"]),
            *(str(own["needed"][share]) for share in ("10", "20", "50")),
        ]
        assert (other[0], other[1]) == (label, f"{numbers['informativity'][0]['r2']:.3f}")
        layers = cells(page, html.escape(label))
        assert [row[0] for row in layers[1:]] == [str(n) for n in range(len(numbers["layers"]))]
    assert ["jax", "1.2.3"] in cells(page, "Versions") and ["max length", "256"] in cells(page, "Protocol")
    assert ["special tokens", f"out: {CHOICES['special_tokens']['out']}"] in cells(page, "Protocol")
    listed = cells(page, "The models")
    assert [row[:3] for row in listed[1:3]] == [["minilm", "path/of/minilm", "–"], [NAME, f"path/of/{NAME}", "minilm"]]


def test_table_2_has_two_columns_a_pair(written):
    folder, _, found = written
    table = cells((folder / "report.html").read_text(), "The tokens that changed most")
    kinds = ("more contextualized", "less contextualized")
    assert table[0] == ["", *(f"{model}: {kind}" for model, _ in PAIRS for kind in kinds)]
    assert len(table) == 11
    expected = []
    for pair in found["pairs"]:
        by_token = {token["token"]: token["change"] for token in pair["tokens"]}
        for kind in ("more_contextualized", "less_contextualized"):
            expected.append(f"{pair[kind][0]} ({by_token[pair[kind][0]]:+.3f})")
    assert table[1] == ["1", *expected]


def lead(page: str) -> list[str]:
    """The paragraphs before the contents."""
    return [html.unescape(part) for part in re.findall('<p class="lead">(.*?)</p>', page.split("<section")[0])]


def test_the_page_says_what_was_measured(written):
    folder, *_ = written
    (about,) = lead((folder / "report.html").read_text())
    assert "19,000 tokens of 1,359 sentences of STS-B test" in about and f"{NAME}, mpnet and mpnet tuned" in about


def test_names_and_tokens_are_text_not_html(written):
    folder, *_ = written
    page = (folder / "report.html").read_text()
    assert "<script>alert" not in page and "<b>" not in page
    assert html.escape(NAME) in page
    assert "runs/<" not in page


def test_the_page_needs_nothing_but_itself(written):
    folder, names, _ = written
    page = (folder / "report.html").read_text()
    sources = re.findall(r'\b(?:src|href)="([^"#][^"]*)"', page.split("<script")[0])
    assert all(source.startswith("data:") for source in sources)
    pictures = re.findall(r'<img src="data:image/svg\+xml;base64,[^"]+" alt="([^"]+)">', page)
    # The page draws the maps itself.
    assert len(pictures) == sum(name.endswith(".svg") and not name.startswith("map") for name in names)
    assert all(len(alt) > 40 for alt in pictures) and len(set(pictures)) == len(pictures)
    assert "url(" not in page and "://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "default-src 'none'" in page


def test_the_same_numbers_give_the_same_bytes(written):
    folder, _, found = written
    change = pictures.self_similarity_change(found["pairs"])
    drawn = {"self_similarity_change": change}
    drawn["map_384"] = pictures.embedding_map(a_map(list(FOUR[:2])), found["data"])
    for name, kinds in drawn.items():
        assert {kind: (folder / f"{name}.{kind}").read_bytes() for kind in kinds} == kinds


def test_a_report_of_one_model_says_nothing_of_another(tmp_path):
    names = report.write(metrics((NAME,), ()), tmp_path, versions={}, compared=None, maps={})
    page = (tmp_path / "report.html").read_text().split("<script")[0]
    assert not {"self_similarity_change.png", "map.png", "correlation.png"} & set(names)
    assert "contextualized" not in page and "→" not in page
    assert len(cells(page, "The last layer in numbers")[0]) == 2


def test_the_correlation_of_two_pairs_of_models_is_drawn(written):
    folder, *_ = written
    assert "best: 0.875 at n = 4" in (folder / "correlation.svg").read_text()
    page = (folder / "report.html").read_text()
    row = [f"minilm → {NAME} and mpnet → mpnet tuned", "0.875", "4", "4", "0.875"]
    assert cells(page, "Correlation of the changes")[1] == row


def test_nothing_is_written_of_a_number_that_is_none(tmp_path):
    found = metrics((NAME,), ())
    found["models"][0]["layers"][2]["anisotropy"] = float("nan")
    with pytest.raises(ValueError, match="JSON compliant"):
        report.write(found, tmp_path / "out", versions={}, compared=None, maps={})
    assert not (tmp_path / "out").exists()


SENTENCES = ["ab ac", "ab", "bc ab a", "a" * 41]


def test_the_data_are_named_with_what_is_less_than_expected(tmp_path):
    found = survey(FakeEncoder(), SENTENCES, Protocol(min_count=2))
    first, *others = report.data_lines("some.txt", {"a": found, "b": found}, 41).splitlines()
    types = f"{len(found.names)} token types that occur 2 times or more"
    assert first == f"some.txt: 4 sentences, {found.units.sum()} tokens, {types}"
    assert others == [
        "some.txt: the anisotropy baseline has 4 tokens, one from each sentence",
        "some.txt: 1 of the sentences are longer than 41 tokens and are cut",
    ]
    found = survey(FakeEncoder(), SENTENCES[:3], Protocol(min_count=2, samples=3))
    others = {"a": found, "b": found._replace(digest="another tokenizer's")}
    lines = report.data_lines("some.txt", others, 41).splitlines()
    assert [line.split(":")[0] for line in lines] == ["some.txt (a)", "some.txt (b)"]
    assert "\n" not in report.data_lines("some.txt", {"a": found, "b": found}, 41)


def test_a_table_has_a_line_a_layer():
    found = measure(FakeEncoder(), survey(FakeEncoder(), SENTENCES, Protocol(min_count=2)))
    header, _, *rows, same, random, r2 = report.table(found).splitlines()
    assert header.split(" | ")[0].strip() == "layer" and len(rows) == LAYERS + 1
    assert [float(cell) for cell in rows[-1].split(" | ")][:2] == [LAYERS, round(float(found.anisotropy[-1]), 3)]
    assert same.startswith("pairs of the same token: the top 1, 2, 3 dimensions make up ")
    assert random.startswith("random pairs: ") and r2.startswith("r² without the top k dimensions: ")
    found = found._replace(dimensions=-np.ones_like(found.dimensions))
    assert "pairs of the same token: their mean cosine is not positive" in report.table(found)


def test_changes_are_said_where_there_are_any():
    assert report.change_lines({"pairs": [], "correlations": []}) == ""
    pair = {"model": "tuned", "base": "base", "more_contextualized": ["a", "b"], "less_contextualized": ["c"]}
    said = "\nbase → tuned\nmore contextualized: a b\nless contextualized: c"
    assert report.change_lines({"pairs": [pair], "correlations": []}) == said
    same = pair | {"more_contextualized": [], "less_contextualized": []}
    said_of_same = "\nbase → tuned\nmore contextualized: none\nless contextualized: none"
    assert report.change_lines({"pairs": [same], "correlations": []}) == said_of_same
    assert "No token" in report._changes([same | {"tokens": []}])
    both = {"pairs": [["tuned", "base"], ["x", "y"]], "best": 0.98765, "best_n": 12, "by_n": [None] * 30}
    line = "base → tuned and y → x: correlation of the changes: at best 0.988, over the 12 most frequent of 30 tokens"
    assert report.change_lines({"pairs": [pair], "correlations": [both]}) == f"{said}\n\n{line}"


def test_pictures_are_counted_once(tmp_path):
    names = ["dynamics.json", "a.png", "a.svg", "b.png", "b.svg", "report.html"]
    line = report.files_line(tmp_path, "dynamics.json", names)
    assert line == f"{tmp_path}: dynamics.json, report.html and 2 pictures (PNG and SVG)"
