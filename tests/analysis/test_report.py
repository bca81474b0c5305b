import html
import json
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from simcse_jax.analysis import pictures, report
from simcse_jax.analysis.map import project
from simcse_jax.analysis.protocol import CHOICES

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


def metrics(compare: str | None = "a/base", model: str = NAME) -> dict:
    """Made-up numbers of a report."""
    found = {"model": model, "compare": compare, "data": "STS-B test", "sentences": 1359, "tokens": 19_000}
    found |= {"protocol": {"special_tokens": "out", "max_length": 256}, **measured(0)}
    if compare:
        changes = np.random.default_rng(2).normal(size=400) / 10
        words = ["[SEP]", "<b>", *(f"word{n}" for n in range(398))]
        tokens = [{"token": word, "count": 900 - n, "change": float(changes[n])} for n, word in enumerate(words)]
        by_change = sorted(tokens, key=lambda token: token["change"])
        found["base"] = measured(1)
        found["self_similarity_change"] = {
            "tokens": tokens,
            "more_contextualized": [token["token"] for token in by_change[:10]],
            "less_contextualized": [token["token"] for token in by_change[:-11:-1]],
        }
    return found


def a_map(names: list[str]) -> object:
    generator = np.random.default_rng(3)
    return project({name: generator.normal(size=(50, 8)) + 3 * n for n, name in enumerate(names)}, umap=False)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "new" / "folder"
    found = metrics() | {"correlation": {"by_n": [None, 1.0, 0.5, 0.875], "best_n": 4, "best": 0.875}}
    names = report.write(found, folder, versions={"jax": "1.2.3"}, embedding_map=a_map(list(report.models_of(found))))
    return folder, names, found


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
        "map",
    }
    for name in pictures:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        ElementTree.fromstring((folder / f"{name}.svg").read_text())
    label, base = report.models_of(found)
    assert json.loads((folder / "anisotropy.json").read_text())[base][2] == {
        "layer": 2,
        "anisotropy": found["base"]["layers"][2]["anisotropy"],
    }
    assert json.loads((folder / "dimensions.json").read_text())[label] == found["dimensions"]["cumulated"]
    assert len(json.loads((folder / "map.json").read_text())["points"][label]) == 50


def cells(page: str, caption: str) -> list[list[str]]:
    """The rows of a table of the page, with its head."""
    table = next(
        part for part in re.findall("<table.*?</table>", page, re.S) if f"<caption>{caption}</caption>" in part
    )
    rows = re.findall("<tr>(.*?)</tr>", table)
    return [[html.unescape(cell) for cell in re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]


def test_the_page_has_the_numbers(written):
    folder, _, found = written
    page = (folder / "report.html").read_text()
    label, base = report.models_of(found)
    last, before = found["layers"][-1], found["base"]["layers"][-1]
    summary = cells(page, "The last layer in numbers")
    assert summary[0] == ["", label, base]
    assert ["Anisotropy", f"{last['anisotropy']:.3f}", f"{before['anisotropy']:.3f}"] in summary
    assert len(summary) == 1 + 6 + 1
    own = found["dimensions_random_pairs"]
    assert cells(page, "Share of the top dimensions, and how many are needed: random pairs")[1] == [
        label,
        *(f"{100 * share:.1f}%" for share in own["top_share"]),
        *(str(own["needed"][share]) for share in ("10", "20", "50")),
    ]
    r2 = cells(page, "r² without the top k dimensions")
    assert r2[0][-1] == "k\u00a0=\u00a0300" and r2[1][-1] == f"{found['informativity'][-1]['r2']:.3f}"
    changed = cells(page, "The tokens that changed most")
    change = found["self_similarity_change"]
    by_token = {token["token"]: token["change"] for token in change["tokens"]}
    first, other = change["more_contextualized"][0], change["less_contextualized"][0]
    assert changed[1] == ["1", first, f"{by_token[first]:+.3f}", other, f"{by_token[other]:+.3f}"]
    assert len(changed) == 11
    layers = cells(page, html.escape(label))
    assert [row[0] for row in layers[1:]] == [str(n) for n in range(7)]
    assert ["jax", "1.2.3"] in cells(page, "Versions") and ["max length", "256"] in cells(page, "Protocol")
    assert ["special tokens", f"out: {CHOICES['special_tokens']['out']}"] in cells(page, "Protocol")


def lead(page: str) -> list[str]:
    """The paragraphs before the contents."""
    return [html.unescape(part) for part in re.findall("<p>(.*?)</p>", page.split("<nav")[0])]


def test_the_page_begins_with_the_change(written):
    folder, _, found = written
    first, second = lead((folder / "report.html").read_text())
    label, base = report.models_of(found)
    before, after = (rows[-1]["anisotropy"] for rows in (found["base"]["layers"], found["layers"]))
    word = "rose" if after > before else "fell"
    start = f"In the last layer, from {base} to {label}, anisotropy {word} from {before:.3f} to {after:.3f},"
    assert first.startswith(start)
    assert "19,000 tokens of 1,359 sentences of STS-B test" in second


def test_names_and_tokens_are_text_not_html(written):
    folder, *_ = written
    page = (folder / "report.html").read_text()
    assert "<script" not in page and "<b>" not in page
    assert html.escape(NAME) in page
    assert "runs/<" not in page


def test_the_page_needs_nothing_but_itself(written):
    folder, names, _ = written
    page = (folder / "report.html").read_text()
    sources = re.findall(r'\b(?:src|href)="([^"#][^"]*)"', page)
    assert all(source.startswith("data:") for source in sources)
    pictures = re.findall(r'<img src="data:image/svg\+xml;base64,[^"]+" alt="([^"]+)">', page)
    assert len(pictures) == sum(name.endswith(".svg") for name in names)
    assert all(len(alt) > 40 for alt in pictures) and len(set(pictures)) == len(pictures)
    assert "url(" not in page and "default-src 'none'" in page


def test_the_same_numbers_give_the_same_bytes(written):
    folder, _, found = written
    models = report.models_of(found)
    change = pictures.self_similarity_change(found["self_similarity_change"]["tokens"], *models)
    drawn = {"self_similarity_change": change, "map": pictures.embedding_map(a_map(list(models)), found["data"])}
    for name, kinds in drawn.items():
        assert {kind: (folder / f"{name}.{kind}").read_bytes() for kind in kinds} == kinds


def test_a_report_of_one_model_says_nothing_of_another(tmp_path):
    found = metrics(compare=None)
    names = report.write(found, tmp_path, versions={})
    page = (tmp_path / "report.html").read_text()
    assert not {"self_similarity_change.png", "map.png", "correlation.png"} & set(names)
    assert "a/base" not in page and "contextualized" not in page
    assert lead(page)[0].startswith(f"In the last layer of {report.short_names([NAME])[0]}, anisotropy is ")
    assert len(cells(page, "The last layer in numbers")[0]) == 2


def test_the_correlation_of_two_pairs_of_models_is_drawn(written):
    folder, *_ = written
    assert "best: 0.875 at n = 4" in (folder / "correlation.svg").read_text()
    assert "0.875, where n = 4" in (folder / "report.html").read_text()


def test_two_models_of_one_name_are_distinguished():
    names = list(report.models_of(metrics(compare="runs/b/model", model="runs/a/model")))
    assert names == ["a/model", "b/model"]


def test_nothing_is_written_of_a_number_that_is_none(tmp_path):
    found = metrics(compare=None)
    found["layers"][2]["anisotropy"] = float("nan")
    with pytest.raises(ValueError, match="JSON compliant"):
        report.write(found, tmp_path / "out", versions={})
    assert not (tmp_path / "out").exists()
