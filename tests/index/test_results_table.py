from rich.cells import cell_len

from simcse_jax.index.index import Result
from simcse_jax.index.results_table import WIDTH, table, wrap


def test_a_table_is_aligned_whatever_the_sentences_are_and_text_wrapped_by_its_columns():
    long = "word " * 60 + "x" * 150
    results = [
        [Result("猫が屋根の上で眠っています。" * 6, 12345, 0.9), Result(long, 1, 0.5), Result("", 2, 0.25)],
        [Result("tab\tand\x1b[31m escape\n", 7, 1.0)],
    ]
    lines = table("q " * 100, ["a/very/long/folder/name/" * 4, "short"], results).splitlines()
    assert max(map(cell_len, lines)) <= WIDTH
    body = lines[2:]
    assert len({cell_len(line[: line.index(" | ")]) for line in body if " | " in line}) == 1
    text = "\n".join(body)
    assert "\x1b" not in text and "\t" not in text and "tab and" in text
    assert "".join(line.split(" | ")[0] for line in body).count("眠") == 6
    assert [line[:2] for line in body if line.startswith("#")] == ["#1", "#2", "#3"]
    assert wrap("one two three", 7) == ["one two", "three"]
    assert wrap("abcdefghij", 4) == ["abcd", "efgh", "ij"]
    assert wrap("猫猫猫", 5) == ["猫猫", "猫"]
    assert wrap("a abcdefgh", 4) == ["a", "abcd", "efgh"]
    assert wrap(" ", 4) in ([], [""])
