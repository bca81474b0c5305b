import importlib.util
import os
import re

import numpy as np
import pytest

from simcse_jax.commands.demo import keep_to_this_machine
from simcse_jax.index.index import Result
from simcse_jax.serving import demo_guard, demo_page


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


def test_results_comparisons_and_heat_maps_are_text_and_what_cannot_be_answered_is_said():
    page = demo_page.search(Letters("hhhh", "aaaa", "aab", "x"), " aaaa ", 4)
    rows = "aaaa 1.000 1 aab 0.933 2 x 0.750 3 hhhh 0.500 0"
    assert text_of(page).split() == ["sentence", "cosine", "row", *rows.split()] and page.count("<tr>") == 5
    model = Letters("<script>alert(1)</script>", "a & b")
    page = demo_page.heat_map({"m": model}, "<script>alert('x')</script>\n'onload=\"b\"")
    page += demo_page.search(model, "<b>", 5)
    assert "<script" not in page and "'onload" not in page and "&lt;script&gt;" in demo_page.search(model, "b", 5)
    assert text_of(demo_page.compare(Letters(), "aaaa", "aab")).split()[0] == "0.933"
    assert "width: 0%" in demo_page.bar(-0.3) and "width: 100%" in demo_page.bar(1.0000001)
    page = demo_page.heat_map({"a <b>": Letters(), "second": Letters()}, "aab\nabb\nhhh")
    cosines = Letters().similarity(["aab", "abb", "hhh"], ["aab", "abb", "hhh"])
    low, high = cosines[0, 2], cosines[0, 1]  # that of a line with itself would hide the differences
    assert f"cosine {low:.2f} <span" in page and f"</span> {high:.2f}" in page and "a &lt;b&gt;" in page
    found = re.findall(r"<td class=s(\d+)>([-\d.]+)</td>", page)
    one = [("31", "1.00"), ("31", f"{high:.2f}"), ("0", f"{low:.2f}")]
    assert found[:3] == found[9:12] == one and len(found) == 18 and page.count("<table") == 2
    assert demo_page.cells(["x", "y"], np.array([[1, 0.9], [0.9, 1]]), 0.9, 0.9).count("class=s0") == 2
    scale, *rules = demo_page.shade_rules().split("\n")
    assert scale == ".scale { background: linear-gradient(to right, rgb(247,251,255), rgb(8,48,107)); }"
    assert len(rules) == 32 and rules[31] == ".heat .s31 { background: rgb(8,48,107); color: #fff; }"
    model = Letters("a", "b")
    for page, says in (
        (demo_page.search(model, None, 5), "The query is empty; type one."),
        (demo_page.search(model, "a" * 20_001, 5), "20,001 characters; at most 20,000 are allowed"),
        (demo_page.compare(model, "a", ""), "The second sentence is empty"),
        (demo_page.heat_map({"m": model}, None), "There are no lines; enter two or more to compare."),
        (demo_page.heat_map({"m": model}, "\n one \n\n"), "There is one line; enter two or more to compare."),
        (demo_page.heat_map({"m": model}, "a\n" * 201), "There are 201 lines; at most 200 are allowed."),
        (demo_page.heat_map({"m": model}, "a\n" + "b" * 20_001), "Line 2 has 20,001 characters"),
    ):
        assert 'class="message"' in page and says in page, page
    assert "<table>" in demo_page.search(model, "a b " * 5000, 5)
    page = demo_page.heat_map({"m": model}, "\n".join(["c d" * 100, *("abcdefgh"[n % 8] * n for n in range(1, 200))]))
    assert page.count("<td") == 200 * 200 and len(page) < 2_000_000
    for wrong, says in (
        (demo_page.count_problem(True), "top_k is True; it must be"),
        (demo_page.count_problem(0), "top_k is 0; it must be"),
        (demo_page.sentence_problem(7, "The query"), "The query is 7; it must be a text."),
        (demo_page.pair_problem("a", ["b"]), "The second sentence is ['b']; it must be a text."),
        (demo_page.lines_problem("ab"), "The sentences are 'ab'; they must be a list of texts."),
        (demo_page.lines_problem(["a", ["b"]]), "Line 2 is ['b']; it must be a text."),
    ):
        assert wrong.startswith(says)
    assert demo_page.count_problem(50) is None


@pytest.fixture(scope="module")
def client():
    if importlib.util.find_spec("gradio") is None:
        pytest.skip("Gradio is not installed: pip install 'simcse_jax[demo]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.environ", dict(os.environ))
        keep_to_this_machine()
        import gradio_client

        page = demo_page.build({"letters": Letters("hhhh", "aaaa", "aab")}, 3, ["aab", "hhhh"])
        guard = demo_guard.launch_options(demo_guard.HostNames("127.0.0.1"))
        page.launch(server_name="127.0.0.1", quiet=True, prevent_thread_lock=True, **guard)
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
        ("search", [" "], "The query is empty"),
        ("search", ["a", 51], "top_k is 51; it must be a whole number from 1 to 50."),
        ("compare", ["a", ""], "The second sentence is empty"),
        ("similarities", [["a", " "]], "Line 2 is empty"),
    ):
        with pytest.raises(Exception, match=re.escape(says)):
            client.predict(*arguments, api_name=f"/{name}")


@pytest.mark.slow
def test_a_running_page_refuses_other_hosts_other_sites_and_uploads(client):
    import httpx

    with httpx.Client(base_url=client.src) as http:

        def status(method, path, **headers):
            return http.request(method, path, headers=headers, content=b"{}" if method == "POST" else None).status_code

        assert status("GET", "") == 200 and status("GET", "config") == 200
        assert status("GET", "", Host="evil.com") == 403
        assert status("GET", "gradio_api/queue/data?session_hash=a", Host="evil.com:7860") == 403
        assert status("POST", "gradio_api/call/search", Origin="http://evil.com") == 403
        assert status("POST", "gradio_api/call/search", **{"Sec-Fetch-Site": "cross-site"}) == 403
        assert status("GET", "gradio_api/file=/etc/passwd") == 403
        assert status("GET", "monitoring/summary") == 403
        answer = http.post("gradio_api/upload", files={"files": b"x" * 100})
        assert answer.status_code == 403 and answer.text == "refused: POST '/gradio_api/upload' is off\n"
