import numpy as np
from support.fake_encoder import LAYERS, FakeEncoder

from simcse_jax.evaluation.analysis import terminal
from simcse_jax.evaluation.analysis.measure import measure
from simcse_jax.evaluation.analysis.protocol import Protocol
from simcse_jax.evaluation.analysis.tokens import survey

SENTENCES = ["ab ac", "ab", "bc ab a", "a" * 41]


def test_the_data_are_named_with_what_is_less_than_expected(tmp_path):
    found = survey(FakeEncoder(), SENTENCES, Protocol(min_count=2))
    first, *others = terminal.data_lines("some.txt", {"a": found, "b": found}, 41).splitlines()
    types = f"{len(found.names)} token types that occur 2 times or more"
    assert first == f"some.txt: 4 sentences, {found.units.sum()} tokens, {types}"
    assert others == [
        "some.txt: the anisotropy baseline has 4 tokens, one from each sentence",
        "some.txt: 1 of the sentences are longer than 41 tokens and are cut",
    ]
    found = survey(FakeEncoder(), SENTENCES[:3], Protocol(min_count=2, samples=3))
    others = {"a": found, "b": found._replace(digest="another tokenizer's")}
    lines = terminal.data_lines("some.txt", others, 41).splitlines()
    assert [line.split(":")[0] for line in lines] == ["some.txt (a)", "some.txt (b)"]
    assert "\n" not in terminal.data_lines("some.txt", {"a": found, "b": found}, 41)


def test_a_table_has_a_line_a_layer():
    found = measure(FakeEncoder(), survey(FakeEncoder(), SENTENCES, Protocol(min_count=2)))
    header, _, *rows, same, random, r2 = terminal.table(found).splitlines()
    assert header.split(" | ")[0].strip() == "layer" and len(rows) == LAYERS + 1
    assert [float(cell) for cell in rows[-1].split(" | ")][:2] == [LAYERS, round(float(found.anisotropy[-1]), 3)]
    assert same.startswith("pairs of the same token: the top 1, 2, 3 dimensions make up ")
    assert random.startswith("random pairs: ") and r2.startswith("r² without the top k dimensions: ")
    found = found._replace(dimensions=-np.ones_like(found.dimensions))
    assert "pairs of the same token: their mean cosine is not positive" in terminal.table(found)


def test_changes_are_said_where_there_are_any():
    assert terminal.change_lines({"pairs": [], "correlations": []}) == ""
    pair = {"model": "tuned", "base": "base", "more_contextualized": ["a", "b"], "less_contextualized": ["c"]}
    said = "\nbase → tuned\nmore contextualized: a b\nless contextualized: c"
    assert terminal.change_lines({"pairs": [pair], "correlations": []}) == said
    both = {"pairs": [["tuned", "base"], ["x", "y"]], "best": 0.98765, "best_n": 12, "by_n": [None] * 30}
    line = "base → tuned and y → x: correlation of the changes: at best 0.988, over the 12 most frequent of 30 tokens"
    assert terminal.change_lines({"pairs": [pair], "correlations": [both]}) == f"{said}\n\n{line}"


def test_pictures_are_counted_once(tmp_path):
    names = ["dynamics.json", "a.png", "a.svg", "a.json", "b.png", "b.svg", "b.json", "report.html"]
    line = terminal.files_line(tmp_path, "dynamics.json", names)
    assert line == f"{tmp_path}: dynamics.json, report.html and 2 pictures (PNG, SVG and their numbers in JSON)"
