import importlib.util
import os
import re

import numpy as np
import pytest

from simcse_jax.commands.demo import keep_to_this_machine, launch_options
from simcse_jax.index.index import Result
from simcse_jax.serving import demo_page


class Letters:
    max_length = 64

    def __init__(self, *sentences: str):
        self.sentences = sentences

    def encode(self, sentences):
        counts = np.array([[1 + sentence.lower().count(letter) for letter in "abcdefgh"] for sentence in sentences])
        return (counts / np.linalg.norm(counts, axis=1, keepdims=True)).astype(np.float32)

    def similarity(self, first, second):
        return self.encode(first) @ self.encode(second).T

    def search(self, query, top_k=5, threshold=0.6):
        cosines = self.similarity([query], self.sentences)[0]
        found = [Result(self.sentences[row], int(row), float(cosines[row])) for row in np.argsort(-cosines)[:top_k]]
        return [result for result in found if result.score >= threshold]


def text_of(page: str) -> str:
    return re.sub(r"<[^>]*>", " ", page)


def test_results_and_heat_maps_are_text():
    results = [Result("<b>", 1, 1.0000001), Result("aab", 0, -0.3)]
    page = demo_page.found_tables({"m": results})
    assert text_of(page).split() == ["sentence", "cosine", "row", "&lt;b&gt;", "1.000", "1", "aab", "-0.300", "0"]
    assert "width: 100%" in page and "width: 0%" in page and "<figcaption" not in page
    page = demo_page.found_tables({"a <b>": results, "second": results[1:]})
    assert re.findall("<figcaption>(.*?)</figcaption>", page) == ["a &lt;b&gt;", "second"] and page.count("aab") == 2
    page = demo_page.heat_map({"m": Letters()}, ["<script>alert('x')</script>", '\'onload="b"'])
    assert "<script" not in page and "'onload" not in page
    page = demo_page.heat_map({"a <b>": Letters(), "second": Letters()}, ["aab", "abb", "hhh"])
    cosines = Letters().similarity(["aab", "abb", "hhh"], ["aab", "abb", "hhh"])
    assert 'cosine 0.00 <span class="scale"></span> 1.00' in page and "<figcaption>a &lt;b&gt;<" in page
    found = re.findall(r"<td class=s(\d+)>([-\d.]+)</td>", page)
    one = [(f"{31 * cosine:.0f}", f"{cosine:.2f}") for cosine in cosines[0]]
    assert found[:3] == found[9:12] == one and len(found) == 18 and page.count("<table") == 2
    assert page.count("</i> aab<") == 1  # in the first one alone
    page = demo_page.cells(["x", "y"], np.array([[1.0000001, -0.5], [-0.5, 1]]), -0.5, True)
    assert page.count("class=s0") == page.count("class=s31") == 2
    scale, *rules = demo_page.shade_rules().split("\n")
    assert scale == ".scale { background: linear-gradient(to right, rgb(247,251,255), rgb(8,48,107)); }"
    assert len(rules) == 32 and rules[31] == ".heat .s31 { background: rgb(8,48,107); color: #fff; }"
    lines = ["c d" * 100, *("abcdefgh"[n % 8] * n for n in range(1, 200))]
    page = demo_page.heat_map({"m": Letters()}, lines)
    assert page.count("<td") == 200 * 200 and len(page) < 2_000_000


@pytest.fixture(scope="module")
def client():
    if importlib.util.find_spec("gradio") is None:
        pytest.skip("Gradio is not installed: pip install 'simcse_jax[demo]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.environ", dict(os.environ))
        keep_to_this_machine()
        import gradio_client

        page = demo_page.build({"letters": Letters("hhhh", "aaaa", "aab")}, 3, ["aab", "hhhh"], ["ab", "hh"])
        page.launch(**launch_options("127.0.0.1", ["gpu1.lab"]))
        yield gradio_client.Client(page.local_url, verbose=False)
        page.close()


@pytest.mark.slow
def test_programs_search_compare_and_get_similarities(client):
    assert list(client.view_api(return_format="dict")["named_endpoints"]) == ["/search", "/compare", "/similarities"]
    found = client.predict("aaaa", 2, api_name="/search")
    assert [(result["sentence"], result["row"]) for result in found] == [("aaaa", 1), ("aab", 2)]
    assert [result["score"] for result in found] == pytest.approx([1, 0.9327731])
    assert len(client.predict(query="aaaa", api_name="/search")) == 3
    assert client.predict("aaaa", "aab", api_name="/compare") == pytest.approx(0.9327731)
    cosines = client.predict(["aaaa", "aab"], api_name="/similarities")
    assert np.array(cosines) == pytest.approx(np.array([[1, 0.9327731], [0.9327731, 1]]))
    for name, arguments, says in (
        ("search", [" "], "sentence 1 is empty"),
        ("search", ["a" * 20_001], "sentence 1 has more than 20000 characters"),
        ("search", ["a", 51], "top_k must be from 1 to 50"),
        ("compare", ["a", ""], "sentence 2 is empty"),
        ("similarities", [["a", " "]], "sentence 2 is empty"),
        ("similarities", [["a"] * 201], "enter from 2 to 200 lines"),
    ):
        with pytest.raises(Exception, match=re.escape(says)):
            client.predict(*arguments, api_name=f"/{name}")


@pytest.mark.slow
def test_a_running_page_refuses_names_that_are_not_this_machine_s(client):
    import httpx

    with httpx.Client(base_url=client.src) as http:
        assert http.get("config").status_code == 200
        assert http.get("config", headers={"Host": "gpu1.lab"}).status_code == 200
        for host in ("evil.com", "evil.com:7860", "localhost.evil.com"):
            assert http.get("config", headers={"Host": host}).status_code == 400
        foreign = {"Origin": "http://evil.com"}
        assert "access-control-allow-origin" not in http.get("config", headers=foreign).headers
