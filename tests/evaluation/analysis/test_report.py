import html
import itertools
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.action_chains import ActionChains
from support.chromium import chromium
from support.fake_encoder import LAYERS, FakeEncoder

from simcse_jax.evaluation.analysis import page, pictures, report, sentences
from simcse_jax.evaluation.analysis.map import project
from simcse_jax.evaluation.analysis.measure import measure
from simcse_jax.evaluation.analysis.tokens import Protocol, survey
from simcse_jax.evaluation.sts import Pairs

FIELDS = ("anisotropy", "self_similarity", "intra_sentence_similarity", "l2_norm")
NAME = "runs/<script>alert(1) & $x$"


def measured(seed: int) -> dict:
    """Made-up numbers of one model."""
    layers, size, generator = 6 + 6 * (seed % 2), 384 + 384 * (seed % 2), np.random.default_rng(seed)
    values = generator.uniform(0.05, 0.95, (layers + 1, len(FIELDS))).round(6).tolist()
    rows = [{"layer": layer, **dict(zip(FIELDS, row, strict=True))} for layer, row in enumerate(values)]
    for row in rows:
        row |= {f"adjusted_{name}": round(row[name] - row["anisotropy"], 6) for name in FIELDS[1:3]}

    def dimensions() -> dict:
        shares = np.sort(generator.exponential(size=size))[::-1]
        cumulated = np.cumsum(shares) / shares.sum()
        needed = {str(share): int(np.argmax(cumulated >= share / 100)) + 1 for share in (10, 20, 50)}
        return {"top_share": cumulated[:3].tolist(), "needed": needed, "cumulated": cumulated.tolist()}

    r2 = [{"k": k, "r2": round(1 / (1 + k / 100), 6)} for k in (1, 2, 3, 5, 10, 20, 50, 100, 300, 700) if k < size]
    both = {"dimensions": dimensions(), "dimensions_random_pairs": dimensions()}
    return {"layers": rows, **both, "informativity": r2}


def changes(model: str, base: str, seed: int = 2) -> dict:
    """Made-up changes of 400 tokens."""
    values = np.random.default_rng(seed).normal(size=400) / 10
    words = ["[SEP]", "<b>", *(f"word{n}" for n in range(398))]
    rows = zip(words, range(900, 500, -1), values.tolist(), strict=True)
    tokens = [{"token": word, "count": n, "change": change, "special": n == 900} for word, n, change in rows]
    names = [token["token"] for token in sorted(tokens, key=lambda token: token["change"])]
    found = {"model": model, "base": base, "tokens": tokens, "more_contextualized": names[:10]}
    return found | {"less_contextualized": names[:-11:-1]}


def metrics(models: tuple[str, ...], pairs: tuple[tuple[str, str], ...]) -> dict:
    """Made-up numbers of a report."""
    size = {"tokens": 19_000, "types": 400, "samples": 1000}
    found = {"data": "STS-B test", "sentences": 1359, "protocol": {"special_tokens": "out", "max_length": 256}}
    named = [{"model": f"path/of/{label}", "label": label} for label in models]
    found["models"] = [each | size | measured(seed) for seed, each in enumerate(named)]
    found["pairs"] = [changes(*pair, seed) for seed, pair in enumerate(pairs)]
    best = {"by_n": [None, 1.0, 0.5, 0.875], "best_n": 4, "best": 0.875}
    both = itertools.combinations(map(list, pairs), 2)
    return found | {"correlations": [{"pairs": list(each), **best} for each in both]}


FOUR = ("minilm", NAME, "mpnet", "mpnet tuned")
PAIRS = ((NAME, "minilm"), ("mpnet tuned", "mpnet"))


def a_map(names: list[str]) -> object:
    generator = np.random.default_rng(3)
    return project({name: generator.normal(size=(50, 8)) + 3 * n for n, name in enumerate(names)}, umap=False)


def drawn_once(draw):
    """The first picture of a kind stands for all, which take long to draw."""
    first = []
    return lambda *args: (first or first.append(draw(*args)) or first)[0]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The report on two pairs of models."""
    folder = tmp_path_factory.mktemp("report") / "new" / "folder"
    found = metrics(FOUR, PAIRS)
    maps = {"map_384": a_map(list(FOUR[:2])), "map_768": a_map(list(FOUR[2:]))}
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("layers", "dimensions", "embedding_map"):
            patch.setattr(pictures, kind, drawn_once(getattr(pictures, kind)))
        names = report.write(found, folder, versions={"jax": "1.2.3"}, compared=None, maps=maps)
    return folder, names, found


@pytest.mark.slow
def test_every_file_is_there_and_the_page_needs_nothing_but_itself(written):
    folder, names, found = written
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert names[0] == "metrics.json" and names[-1] == "report.html"
    assert json.loads((folder / "metrics.json").read_text()) == found
    more = {"informativity", "self_similarity_change", "correlation", "map_384", "map_768"}
    more |= {"adjusted_self_similarity", "adjusted_intra_sentence_similarity", "dimensions", "dimensions_random_pairs"}
    drawn = {name.removesuffix(".png") for name in names if name.endswith(".png")}
    assert drawn == {*FIELDS, *more}
    for name in drawn:
        ElementTree.fromstring((folder / f"{name}.svg").read_text())
        pixels = np.asarray(Image.open(folder / f"{name}.png").convert("L"))
        edges = (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1])
        assert np.concatenate(edges).min() == 255, name  # what reaches the border would be cut off there
    for kind, content in pictures.self_similarity_change(found["pairs"]).items():  # the same bytes
        assert (folder / f"self_similarity_change.{kind}").read_bytes() == content
    assert tuple(report.models_of(found)) == FOUR
    folder, names, _ = written
    page = (folder / "report.html").read_text()
    sources = re.findall(r'\b(?:src|href)="([^"#][^"]*)"', page.split("<script")[0])
    assert all(source.startswith("data:") for source in sources)
    shown = re.findall(r'<img src="data:image/svg\+xml;base64,[^"]+" alt="([^"]+)">', page)
    # The page draws the maps itself.
    assert len(shown) == sum(name.endswith(".svg") and not name.startswith("map") for name in names)
    assert all(len(alt) > 40 for alt in shown) and len(set(shown)) == len(shown)
    assert "url(" not in page and "://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "default-src 'none'" in page


def cells(page: str, caption: str) -> list[list[str]]:
    """The rows of a table of the page, with its head."""
    tables = re.findall("<table.*?</table>", page, re.S)
    rows = re.findall("<tr>(.*?)</tr>", next(part for part in tables if f"<caption>{caption}</caption>" in part))
    return [[html.unescape(cell) for cell in re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]


def test_the_page_has_the_numbers_of_all_models_and_pairs_and_names_are_text_not_html(written):
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
        shares = [f"{100 * share:.1f}%" for share in own["top_share"]]
        assert row == [label, *shares, *(str(own["needed"][share]) for share in ("10", "20", "50"))]
        assert (other[0], other[1]) == (label, f"{numbers['informativity'][0]['r2']:.3f}")
    assert ["jax", "1.2.3"] in cells(page, "Versions") and ["max length", "256"] in cells(page, "Protocol")
    assert ["special tokens", "out"] in cells(page, "Protocol")
    listed = cells(page, "The models")
    assert [row[:2] for row in listed[1:3]] == [["minilm", "path/of/minilm"], [NAME, f"path/of/{NAME}"]]
    folder, _, found = written
    table = cells((folder / "report.html").read_text(), "The tokens that changed most")
    kinds, first = ("more contextualized", "less contextualized"), ["1"]
    assert table[0] == ["", *(f"{model}: {kind}" for model, _ in PAIRS for kind in kinds)] and len(table) == 11
    for pair in found["pairs"]:
        by_token = {token["token"]: token["change"] for token in pair["tokens"]}
        first += [f"{name} ({by_token[name]:+.3f})" for name in (pair[kind.replace(" ", "_")][0] for kind in kinds)]
    assert table[1] == first
    folder, *_ = written
    assert "best: 0.875 at n = 4" in (folder / "correlation.svg").read_text()
    page = (written[0] / "report.html").read_text()
    (about,) = re.findall('<p class="lead">(.*?)</p>', page.split("<section")[0])
    assert "19,000 tokens of 1,359 sentences of STS-B test" in about
    assert f"{NAME}, mpnet, mpnet tuned" in html.unescape(about)
    assert "<script>alert" not in page and "<b>" not in page and "runs/<" not in page
    assert html.escape(NAME) in page


def test_a_report_of_one_model_says_nothing_of_another_and_numbers_that_are_none_are_refused(tmp_path, monkeypatch):
    for name in ("layers", "dimensions", "informativity"):
        monkeypatch.setattr(pictures, name, lambda *_: {"png": b"", "svg": b"<svg/>"})
    found = metrics((NAME,), ())
    names = report.write(found, tmp_path, versions={}, compared=None, maps={})
    page = (tmp_path / "report.html").read_text().split("<script")[0]
    assert not {"self_similarity_change.png", "map.png", "correlation.png"} & set(names)
    assert "contextualized" not in page and "→" not in page
    assert len(cells(page, "The last layer in numbers")[0]) == 2
    found["models"][0]["layers"][2]["anisotropy"] = float("nan")
    with pytest.raises(ValueError, match="JSON compliant"):
        report.write(found, tmp_path / "out", versions={}, compared=None, maps={})
    assert not (tmp_path / "out").exists()


SENTENCES = ["ab ac", "ab", "bc ab a", "a" * 41]


def test_the_lines_of_a_report_name_the_data_the_layers_and_the_changes(tmp_path):
    found = survey(FakeEncoder(), SENTENCES, Protocol(min_count=2))
    types = f"{len(found.names)} token types that occur 2 times or more"
    assert report.data_lines("some.txt", {"a": found, "b": found}, 41).splitlines() == [
        f"some.txt, {label}: 4 sentences, {found.units.sum()} tokens, {types}; the anisotropy baseline has 4 tokens, "
        "one from each sentence; 1 of the sentences are longer than 41 tokens and are cut"
        for label in "ab"
    ]
    found = survey(FakeEncoder(), SENTENCES[:3], Protocol(min_count=2, samples=3))
    assert report.data_lines("some.txt", {"a": found}, 41).endswith("2 times or more")
    found = measure(FakeEncoder(), survey(FakeEncoder(), SENTENCES, Protocol(min_count=2)))
    header, _, *rows = report.table(found).splitlines()
    assert header.split(" | ")[0].strip() == "layer" and len(rows) == LAYERS + 1
    assert [float(cell) for cell in rows[-1].split(" | ")][:2] == [LAYERS, round(float(found.anisotropy[-1]), 3)]
    assert report.change_lines({"pairs": [], "correlations": []}) == ""
    pair = {"model": "tuned", "base": "base", "more_contextualized": ["a", "b"], "less_contextualized": ["c"]}
    said = "\nbase → tuned\nmore contextualized: a b\nless contextualized: c"
    assert report.change_lines({"pairs": [pair], "correlations": []}) == said
    both = {"pairs": [["tuned", "base"], ["x", "y"]], "best": 0.98765, "best_n": 12, "by_n": [None] * 30}
    line = "base → tuned and y → x: correlation of the changes: at best 0.988, over the 12 most frequent of 30 tokens"
    assert report.change_lines({"pairs": [pair], "correlations": [both]}) == f"{said}\n\n{line}"
    names = ["dynamics.json", "a.png", "a.svg", "b.png", "b.svg", "report.html"]
    line = report.files_line(Path("out"), names[0], names)
    assert line == "out: dynamics.json, report.html and 2 pictures (PNG and SVG)"


WIDE = "package:base_MODEL_WITH_A_NAME_THAT_IS_WIDER_THAN_LONG_WWW@3"


@pytest.fixture(scope="module")
def in_browser(tmp_path_factory):
    """A report whose page has made-up sentences: each model's are a little narrower than those of the one before."""
    models = (NAME, WIDE, "the other model, tuned", "the other model")
    pairs = (models[:2], models[2:])
    texts = [f"</script><b>sentence {n}" for n in range(40)]
    sample = sentences.sample([], Pairs(texts[:20], texts[20:], np.linspace(0, 5, 20), {}))
    generator = np.random.default_rng(0)
    rows = {name: generator.normal(size=(40, 6)) + 0.5 * n for n, name in enumerate(models)}
    compared, _ = sentences.compare(sample, rows, pairs, "STS-B test")
    found, folder = metrics(models, pairs), tmp_path_factory.mktemp("browser")
    found["protocol"]["a_choice"] = "of some length " * 9
    report.write(found, folder, versions={"jax": "1"}, compared=compared, maps={})
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium without a window."""
    with chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


def severe(browser) -> list[dict]:
    return [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.mark.slow
def test_a_page_in_a_browser(browser, in_browser):
    address = in_browser.as_uri()
    svgs = len(list(in_browser.parent.glob("*.svg")))
    for width in (1200, 390):  # a desktop's and a phone's
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get_log("performance")
        browser.get(address)
        look = browser.execute_script
        # Every picture is drawn, has a text beside it, and none lies on another.
        images = look(
            "return [...document.images].map(image => { const box = image.getBoundingClientRect();"
            "return {width: image.naturalWidth, alt: image.alt, box: [box.left, box.top, box.right, box.bottom]} })"
        )
        assert len(images) == svgs > 5
        assert all(image["width"] > 300 and len(image["alt"]) > 40 for image in images)
        boxes = [image["box"] for image in images]
        for a, b in itertools.combinations(boxes, 2):
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert any(a[1] == b[1] for a, b in itertools.pairwise(boxes)) == (width > 600)
        # The page is no wider than the window; what is wider can be scrolled to, by keyboard too.
        assert look("return document.documentElement.scrollWidth") <= width
        tables = browser.find_elements("css selector", ".scroll")
        assert all(table.get_attribute("tabindex") == "0" for table in tables)
        if width < 600:
            reach = "arguments[0].scrollLeft = 99999; return arguments[0].scrollLeft"
            assert any(look(reach, table) > 0 for table in tables)
        # Nothing but the page itself is asked for.
        events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
        sent = [event["params"]["request"] for event in events if event["method"] == "Network.requestWillBeSent"]
        asked = [each["url"] for each in sent]
        assert address in asked and all(url.startswith(("data:", address)) for url in asked)

    # Its parts are named, every table has its heads, and every link leads somewhere.
    assert look("return document.querySelectorAll('h1').length") == 1
    assert look("return [...document.querySelectorAll('table')].every(table => table.caption.textContent.length > 3)")
    assert look("return [...document.querySelectorAll('tbody tr')].every(row => row.cells[0].scope == 'row')")
    assert look("return [...document.querySelectorAll('nav a')].every(a => document.querySelector(a.hash))")
    count = "return document.querySelectorAll(arguments[0]).length"
    assert look(count, "nav a") == look(count, "section") > 2
    assert not severe(browser)
    assert NAME in browser.find_element("tag name", "main").text


def brightness(colour: str) -> float:
    """Of `rgb(r, g, b)`, from 0 to 1."""
    return float(np.dot([*map(float, re.findall(r"[\d.]+", colour)[:3])], [0.299, 0.587, 0.114])) / 255


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_can_be_read_in_light_and_dark_and_printed(browser, in_browser, scheme):
    def style(part: str, name: str) -> str:
        script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
        return browser.execute_script(script, part, name)

    features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
    browser.get(in_browser.as_uri())
    paper = brightness(style("body", "backgroundColor"))
    assert (paper > 0.5) == (scheme == "light")
    assert all(abs(brightness(style(part, "color")) - paper) > 0.5 for part in ("h1", "td", "a", ".note"))
    head = [brightness(style("thead th", name)) for name in ("color", "backgroundColor")]
    assert abs(head[0] - head[1]) > 0.5
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", **features})
    assert style("body", "backgroundColor") == style("img", "backgroundColor") == "rgb(255, 255, 255)"
    assert brightness(style("td", "color")) < 0.3
    a4 = {"width": 720, "height": 1000, "deviceScaleFactor": 1, "mobile": False}  # less its margins
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", a4)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 720  # paper cannot be scrolled
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


@pytest.mark.slow
def test_the_sentences_stand_under_the_pointer_before_and_after(browser, in_browser):
    desktop = {"width": 1200, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", desktop)
    browser.get(in_browser.as_uri())
    title = browser.find_element("class name", "title").text
    assert title.startswith(f"{WIDE} → {NAME}: unrelated sentences ")
    tiles = browser.find_elements("css selector", ".tile")
    numbers = [tile.find_element("css selector", ".change").text for tile in tiles]
    assert numbers[0] in title and len(numbers) == 5 and numbers[4].endswith("%")
    verdicts = [tile.find_elements("css selector", ".verdict") for tile in tiles]
    assert [len(found) > 0 and found[0].text in ("better", "worse") for found in verdicts][2]  # Spearman alone
    panels = browser.find_elements("css selector", "#maps svg")
    boxes = [panel.rect for panel in panels]
    assert len(panels) == 2 and boxes[0]["y"] == boxes[1]["y"]  # next to each other, over the whole width
    assert boxes[1]["x"] + boxes[1]["width"] - boxes[0]["x"] > 0.9 * 1200
    for picture, count in (("#maps svg", 3), ("#pairs svg", 3)):
        svg = browser.find_element("css selector", picture)
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", svg)
        circle = svg.find_elements("tag name", "circle")[7]
        ActionChains(browser).move_to_element(circle).perform()
        tip = browser.find_element("id", "tip")
        assert tip.is_displayed() and len(tip.text.splitlines()) == count
        assert "</script><b>sentence " in tip.text
    assert browser.execute_script("return document.querySelectorAll('#pairs .pair').length") == 6
    # Any two models can be chosen.
    browser.find_element("css selector", "#choose-after option:last-child").click()
    captions = [caption.text for caption in browser.find_elements("css selector", "#maps figcaption")]
    assert captions[1].startswith("the other model: mean cosine ")
    assert not severe(browser)


@pytest.mark.slow
def test_a_script_in_a_page_would_not_run(browser, tmp_path):
    """Should a name ever come through unescaped, the page's policy refuses what it would do."""
    evil = "<script>document.title = 'run'</script><img src='http://198.51.100.7/x' onerror=\"document.title = 'run'\">"
    page.write(
        tmp_path, {}, {}, {"rank": page.part("rank", "still", ["A page."], [page.PageSection("Part", "", evil)])}
    )
    browser.get_log("performance")
    browser.get((tmp_path / "report.html").as_uri())
    assert browser.title == "still"
    answers = [entry for entry in browser.get_log("performance") if "Network.responseReceived" in entry["message"]]
    assert answers and not any("198.51.100.7" in entry["message"] for entry in answers)
    browser.get_log("browser")  # which reports the refusal
