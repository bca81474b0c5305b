import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from support import ROOT, call, refused, xla_flags
from support.chromium import chromium

from simcse_jax import errors
from simcse_jax.commands import demo
from simcse_jax.errors import UserError
from simcse_jax.index.lance import LanceIndex

# Runs the command, which reports every connection to another machine that Python opens.
WATCHED = """
import runpy, signal, sys

def watch(event, args):
    if event == "socket.connect" and isinstance(args[1], tuple) and args[1][0] not in ("127.0.0.1", "::1", "0.0.0.0"):
        print("connects to", args[1], flush=True)
    if event == "socket.getaddrinfo" and args[0] not in (None, "", "127.0.0.1", "::1", "localhost", "0.0.0.0"):
        print("connects to", args[0], flush=True)

sys.addaudithook(watch)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
runpy.run_module("simcse_jax", run_name="__main__", alter_sys=True)
"""


def test_the_command_serves_models_and_sentences_and_mistakes_are_reported_before_a_model_is_loaded(
    tmp_path, monkeypatch, tiny_bert, corpus
):
    monkeypatch.setattr(errors, "installed", lambda name: False)
    refused(call("demo", "--model", "m", "--data", "s.txt"), "not installed: gradio", 'pip install "simcse_jax[demo]"')
    monkeypatch.setattr(errors, "installed", lambda name: True)
    refused(call("demo", "--model", "m", "--index", "i", "--data", "s.txt"), "--data, --index: give one of them")
    (tmp_path / "s.txt").write_text("\n\n")
    refused(call("demo", "--model", "m", "--data", tmp_path / "s.txt"), "holds no sentences")
    (tmp_path / "s.txt").write_text("a\nb\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = call("demo", "--model", "/nowhere", "--data", tmp_path / "s.txt", "--port", port)
    refused(done, f"--port {port}: Address already in use")
    sentences = [f"sentence {number}" for number in range(60)]
    assert demo.pick_examples(["", *sentences, *sentences]) == [f"sentence {number}" for number in range(0, 60, 10)]
    assert demo.pick_examples(["a", "a", "b", " "]) == ["a", "b"] and len(demo.pick_examples(sentences[:11])) == 6
    bare = type("Bare", (LanceIndex,), {"__init__": lambda self: None, "first_sentences": lambda self, count: []})
    model = SimpleNamespace(index=bare(), open_index=lambda folder: None)
    with pytest.raises(UserError, match="--index i: its rows have no sentences that the page could show"):
        demo.open_index(model, "i")
    served = []
    monkeypatch.setattr(errors, "installed", lambda name: True)
    monkeypatch.setattr(demo, "serve", lambda *given: served.extend(given))
    twice = ("--model", tiny_bert, "--pooler", "avg", "--compare", tiny_bert)
    refused(call("demo", *twice, "--index", "i"), "--compare: each model searches an index of its own; give --data")
    done = call("demo", *twice, "--data", corpus["txt"], "--port", 0)
    assert (done.returncode, done.stdout) == (0, f"{corpus['txt']}: encoding 40 sentences\n"), done.stderr
    assert done.stderr == ""
    models, count, sentences, host, port, _, share = served
    assert list(models) == ["tiny-bert, avg", "tiny-bert, cls"] and count == len(sentences) == 40
    assert [model.search(sentences[3], 1)[0].row for model in models.values()] == [3, 3]
    names = [SimpleNamespace(name=name) for name in ("runs/a/model", "runs/b/model")]
    assert list(demo.titled(names)) == ["a/model", "b/model"]
    assert [*map(demo.make_query, ("Reset my password!", "the cat", "?"))] == ["Reset password", "cat", "?"]
    assert (host, share) == ("127.0.0.1", False) and port > 0


@pytest.fixture
def address(tiny_bert, corpus):
    if importlib.util.find_spec("gradio") is None:
        pytest.skip("Gradio is not installed: pip install 'simcse_jax[demo]'")
    command = [sys.executable, "-c", WATCHED, "demo", "--model", str(tiny_bert), "--data", str(corpus["txt"])]
    environment = {**os.environ, "XLA_FLAGS": xla_flags()}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen([*command, "--port", "0"], cwd=ROOT, env=environment, **pipes) as server:
        said = []
        for line in server.stdout:
            said.append(line)
            if found := re.match(r"open (http://127\.0\.0\.1:\d+/) \(this machine alone\)", line):
                break
        else:
            pytest.fail("".join(said))
        rest = threading.Thread(target=lambda: said.extend(server.stdout), daemon=True)
        rest.start()
        yield found[1]
        server.send_signal(signal.SIGINT)
        rest.join(timeout=30)
    assert (server.returncode, said[-1]) == (130, "interrupted\n")
    assert not re.search("Traceback|connects to", "".join(said)), "".join(said)


@pytest.mark.slow
def test_the_page_in_a_browser(address, corpus, tmp_path):
    with chromium(tmp_path / "chromium", "--window-size=1280,900") as browser:
        use_the_page(browser, address, corpus["txt"].read_text().splitlines())


def use_the_page(browser, address, lines):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    def every(selector: str) -> list:
        return browser.find_elements(By.CSS_SELECTOR, selector)

    def wait(condition) -> None:
        WebDriverWait(browser, 60).until(lambda _: condition())

    def type_into(name: str, text: str) -> None:
        # As a paste does it: the value at once, and the event that the page listens to.
        script = (
            "const box = arguments[0], kind = Object.getPrototypeOf(box);"
            "Object.getOwnPropertyDescriptor(kind, 'value').set.call(box, arguments[1]);"
            "box.dispatchEvent(new Event('input', {bubbles: true}));"
        )
        browser.execute_script(script, every(f"#{name} textarea, #{name} input")[0], text)

    def tab(name: str) -> None:
        next(button for button in every("button[role=tab]") if button.text.strip() == name).click()

    def ask(button: str, answer: str) -> None:
        every(f"#{button}")[0].click()
        wait(lambda: every(answer))

    browser.get(address)
    wait(lambda: every("#search"))
    browser.get_log("performance")  # what the browser's first, own page asked for
    browser.get(address)
    wait(lambda: every("#search"))
    opening = every("#query textarea, #query input")[0].get_attribute("value")
    assert opening not in lines and len(every("#found tbody tr")) == 10  # the page opens with its results
    type_into("query", "")
    ask("search", ".toast-body")
    wait(lambda: "sentence 1 is empty" in every(".toast-body")[0].text)  # it is shown empty first
    type_into("query", lines[6])
    every("#search")[0].click()
    wait(lambda: [cell.text for cell in every("#found tbody tr:first-child td:first-child")] == [lines[6]])
    rows = [[cell.text for cell in row.find_elements(By.TAG_NAME, "td")] for row in every("#found tbody tr")]
    assert len(rows) == 10 and rows[0] == [lines[6], "1.000", "6"]
    scores = [float(row[1]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    tab("Compare")
    wait(lambda: every("#compare")[0].is_displayed())
    type_into("first", "the cat sat")
    type_into("second", "the cat sat")
    ask("compare", "#score .one")
    assert every("#score .one")[0].text.strip() == "1.000"
    tab("Heat map")
    wait(lambda: every("#draw")[0].is_displayed())
    type_into("lines", "\n".join(lines * 5))  # 200 lines
    ask("draw", "#picture table")
    wait(lambda: len(every("#picture tbody tr")) == 200)
    for width in (1280, 390):  # a desktop's and a phone's: nothing is wider than the window
        size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        wait(lambda width=width: browser.execute_script("return window.innerWidth") == width)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    asked += [event["params"]["url"] for event in events if event["method"] == "Network.webSocketCreated"]
    assert len(asked) > 20 and [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
