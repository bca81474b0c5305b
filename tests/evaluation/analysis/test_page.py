"""The page of a report, and that of runs, in a browser."""

import itertools
import json

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.action_chains import ActionChains
from support.chromium import chromium

from simcse_jax.evaluation.analysis import dynamics, page, report, sentences
from simcse_jax.evaluation.sts import Pairs

MODEL, BASE = "runs/<img src=x onerror=alert(1)>", "package:base_MODEL_WITH_A_NAME_THAT_IS_WIDER_THAN_LONG_WWW@3"


def layers(seed: int) -> list[dict]:
    generator = np.random.default_rng(seed)
    fields = ("anisotropy", "self_similarity", "intra_sentence_similarity", "l2_norm")
    fields += ("adjusted_self_similarity", "adjusted_intra_sentence_similarity")
    return [{"layer": n, **{field: float(generator.uniform()) for field in fields}} for n in range(7)]


def of_a_model(seed: int) -> dict:
    shares = {"top_share": [0.1, 0.2, 0.3], "needed": {"10": 1, "20": 2, "50": 5}}
    shares["cumulated"] = np.linspace(0.1, 1, 10).tolist()
    r2 = [{"k": k, "r2": 1 / k} for k in (1, 2, 3, 5, 10, 20, 50, 100, 300)]
    return {"layers": layers(seed), "dimensions": shares, "dimensions_random_pairs": shares, "informativity": r2}


def the_sentences(models: tuple[str, ...], changes: list[list[str]]) -> dict:
    """Of made-up embeddings: each model's are a little narrower than those of the one before."""
    generator = np.random.default_rng(0)
    texts = [f"</script><b>sentence {n}" for n in range(40)]
    sample = sentences.sample([], Pairs(texts[:20], texts[20:], np.linspace(0, 5, 20), {}))
    rows = {name: generator.normal(size=(40, 6)) + 0.5 * n for n, name in enumerate(models)}
    return sentences.compare(sample, rows, [tuple(pair) for pair in changes], "STS-B test")[0]


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict:
    """The folders of a report and of the dynamics of runs."""
    folder = tmp_path_factory.mktemp("pages")
    tokens = [{"token": f"<i>{n}", "count": 99 - n, "change": (n - 30) / 100, "special": False} for n in range(60)]
    named = [token["token"] for token in tokens]
    models = (MODEL, BASE, "the other model, tuned", "the other model")
    change = {"tokens": tokens, "more_contextualized": named[:10], "less_contextualized": named[:-11:-1]}
    size = {"tokens": 18345, "types": 400, "samples": 1000}
    metrics = {"data": "STS-B test", "sentences": 1359, "protocol": {"a_choice": "of some length " * 9}}
    metrics["models"] = [
        {"model": label, "label": label, **size, **of_a_model(seed)} for seed, label in enumerate(models)
    ]
    pairs = [list(models[:2]), list(models[2:])]
    metrics["pairs"] = [{"model": model, "base": base, **change} for model, base in pairs]
    metrics["correlations"] = [{"pairs": pairs, "by_n": [None, 0.5, 0.7], "best_n": 3, "best": 0.7}]
    compared = the_sentences(models, pairs)
    report.write(metrics, folder / "report", versions={"jax": "1"}, compared=compared, maps={})
    steps = {
        value: [{"step": step} | dict.fromkeys(dynamics.FIELDS, step * value) for step in range(9)]
        for value in (0.025, 0.05, 0.1)
    }
    runs = {f"temperature {value}": points for value, points in steps.items()}
    workdirs = {name: f"runs/{name}" for name in runs}
    dynamics.write(
        runs,
        folder / "dynamics",
        data="STS-B test",
        about={"sentences": 1359},
        workdirs=workdirs,
        versions={"jax": "1"},
    )
    return {name: folder / name / "report.html" for name in ("report", "dynamics")}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium without a window."""
    with chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.mark.parametrize("name", ["report", "dynamics"])
def test_a_page_in_a_browser(browser, pages, name):
    address = pages[name].as_uri()
    svgs = len(list(pages[name].parent.glob("*.svg")))
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
        apart = [
            a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
            for place, a in enumerate(boxes)
            for b in boxes[:place]
        ]
        assert all(apart)
        beside = any(a[1] == b[1] for a, b in itertools.pairwise(boxes))
        assert beside == (width > 600 and name == "report")

        # The page is no wider than the window; what is wider can be scrolled to, by keyboard too.
        assert look("return document.documentElement.scrollWidth") <= width
        tables = browser.find_elements("css selector", ".scroll")
        assert all(table.get_attribute("tabindex") == "0" for table in tables)
        if width < 600 and name == "report":
            reach = "arguments[0].scrollLeft = 99999; return arguments[0].scrollLeft"
            assert any(look(reach, table) > 0 for table in tables)

        # Nothing but the page itself is asked for.
        events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
        asked = [
            event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"
        ]
        assert [url for url in asked if not url.startswith(("data:", address))] == []
        assert address in asked

    # Its parts are named, every table has its heads, and every link leads somewhere.
    assert look("return document.querySelectorAll('h1').length") == 1
    assert look("return [...document.querySelectorAll('table')].every(table => table.caption.textContent.length > 3)")
    assert look("return [...document.querySelectorAll('tbody tr')].every(row => row.cells[0].scope == 'row')")
    assert look("return [...document.querySelectorAll('nav a')].every(a => document.querySelector(a.hash))")
    count = "return document.querySelectorAll(arguments[0]).length"
    assert look(count, "nav a") == look(count, "section") > 2
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    if name == "report":
        assert MODEL in browser.find_element("tag name", "main").text
        assert "<i>0" in browser.find_element("tag name", "main").text


def contrast(first: str, second: str) -> float:
    """Of two colours, `rgb(r, g, b)` (WCAG 2)."""

    def luminance(colour: str) -> float:
        parts = np.array([float(part) for part in colour.partition("(")[2].rstrip(")").split(",")[:3]]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_can_be_read_in_light_and_dark(browser, pages, scheme):
    features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
    browser.get(pages["report"].as_uri())
    script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    paper = browser.execute_script(script, "body", "backgroundColor")
    assert (contrast(paper, "rgb(0, 0, 0)") > 10) == (scheme == "light")
    for part in ("h1", "td", "a", ".note"):
        assert contrast(browser.execute_script(script, part, "color"), paper) > 4.5
    head = [browser.execute_script(script, "thead th", style) for style in ("color", "backgroundColor")]
    assert contrast(*head) > 4.5
    assert browser.execute_script(script, "img", "backgroundColor") == "rgb(255, 255, 255)"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", **features})
    assert browser.execute_script(script, "body", "backgroundColor") == "rgb(255, 255, 255)"
    assert contrast(browser.execute_script(script, "td", "color"), "rgb(255, 255, 255)") > 10
    a4 = {"width": 720, "height": 1000, "deviceScaleFactor": 1, "mobile": False}  # less its margins
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", a4)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 720  # paper cannot be scrolled
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def test_the_sentences_stand_under_the_pointer_before_and_after(browser, pages):
    desktop = {"width": 1200, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", desktop)
    browser.get(pages["report"].as_uri())
    title = browser.find_element("class name", "title").text
    assert title.startswith(f"{BASE} → {MODEL}: unrelated sentences ")
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
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_parts_of_other_commands_stay_in_the_page(tmp_path):
    def part(name: str, title: str) -> dict:
        return {name: page.part(name, title, [], [page.Section(f"part of {title}", "", "")])}

    page.write(tmp_path, {}, part("geometry", "the old one"))
    page.write(tmp_path, {"a.json": "{}"}, part("sentences", "second"))
    found = page.write(tmp_path, {}, part("geometry", "third"))
    text = (tmp_path / "report.html").read_text()
    assert found == ["report.html"] and "the old one" not in text
    assert text.index('<h2 class="title">second</h2>') < text.index('<h2 class="title">third</h2>')
    assert text.count("<h2 id=") == 2 and "<title>second</title>" in text
    page.write(tmp_path, {}, {"sentences": ""})  # not measured this time
    assert ">second<" not in (tmp_path / "report.html").read_text()
    (tmp_path / "report.html").write_bytes(b"another page \xff")
    page.write(tmp_path, {}, part("rank", "ranks"))
    assert "another page" not in (tmp_path / "report.html").read_text()


def test_a_script_in_a_page_would_not_run(browser, tmp_path):
    """Should a name ever come through unescaped, the page's policy refuses what it would do."""
    evil = (
        "<script>document.title = 'run'</script><img src='http://198.51.100.7/x.png' onerror=\"document.title='run'\">"
    )
    page.write(tmp_path, {}, {"rank": page.part("rank", "still", ["A page."], [page.Section("Part", "", evil)])})
    browser.get((tmp_path / "report.html").as_uri())
    assert browser.title == "still"
    asked = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [event for event in asked if event["method"] == "Network.responseReceived"]
    assert not any("198.51.100.7" in event["params"]["response"]["url"] for event in sent)
    browser.get_log("browser")  # which reports the refusal


def test_the_pictures_have_nothing_at_their_edges(pages):
    """What reached the border of a picture would be cut off there."""
    for path in sorted(pages["report"].parent.glob("*.png")):
        pixels = np.asarray(Image.open(path).convert("L"))
        edges = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
        assert edges.min() == 255, path.name
