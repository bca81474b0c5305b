import json

import pyarrow.parquet
import pytest
from support.earlier import as_earlier
from support.readers import JSONL_READERS, READERS, rows_read

from simcse_jax.bulk.mining.output import Output, check_begun
from simcse_jax.errors import UserError

RECORD = {"anchor": "a é\u2028", "positive": "p", "negative": ["n", "m"], "row": 0, "negative_rows": [4, 2]}
RECORD |= {"positive_score": 0.5, "negative_scores": [0.25, 0.125]}
EMPTY = RECORD | {"row": 1, "negative": [], "negative_rows": [], "negative_scores": []}


def test_records_are_those_given_in_either_kind_of_file(tmp_path, monkeypatch):
    monkeypatch.setattr("simcse_jax.bulk.mining.output.AT_ONCE", 1)
    for kind in ("jsonl", "parquet"):
        output = Output(tmp_path / f"out.{kind}", {"--pairs": "x"})
        output.append([RECORD], 2, {"pairs": 1})
        output.append([EMPTY], 1, {"pairs": 1})
        assert (output.done, output.counted) == (3, {"pairs": 2})
        output.finish(has_text=True, judged=False)
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").open(newline="\n")] == [RECORD, EMPTY]
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist() == [RECORD, EMPTY]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "out.parquet"]


@pytest.mark.parametrize("earlier", [False, True])
def test_a_killed_one_goes_on_after_the_last_block_that_is_safe(tmp_path, earlier):
    path, about = tmp_path / "out.jsonl", {"--pairs": "x", "--seed": None}
    Output(path, about).append([RECORD], 2, {"pairs": 1})
    partial, state = tmp_path / ".out.jsonl.partial", tmp_path / ".out.jsonl.state.json"
    with partial.open("a") as file:
        file.write('{"anchor": "half a rec')
    for other in ({"--pairs": "y", "--seed": None}, about | {"--more": 1}):
        with pytest.raises(UserError, match=r"begun with another --(pairs|more)"):
            Output(path, other)
    with pytest.raises(UserError, match="begun with another --seed"):
        check_begun(path, {"--seed": 1})
    assert check_begun(path, {"--pairs": "x"})["done"] == 2 and check_begun(tmp_path / "none.jsonl", about) is None
    if earlier:
        as_earlier(tmp_path)
    again = Output(path, about)
    assert (again.done, again.counted) == (2, {"pairs": 1})
    again.append([EMPTY], 1, {"pairs": 1})
    again.finish(has_text=True, judged=False)
    assert [json.loads(line) for line in path.open(newline="\n")] == [RECORD, EMPTY]
    Output(path, about).append([RECORD], 2, {})
    whole = state.read_text()
    for text, message in (("{}", "damaged"), (whole.replace('"bytes": ', '"bytes": 9'), "shorter than")):
        state.write_text(text)
        with pytest.raises(UserError, match=message):
            Output(path, about)


@pytest.mark.parametrize(
    ("reader", "kind"), [*((name, "parquet") for name in READERS), *((name, "jsonl") for name in JSONL_READERS)]
)
def test_others_read_the_files_that_are_there_while_one_is_made(reader, kind, tmp_path):
    folder = tmp_path / "mined"
    folder.mkdir()
    for name in ("a", "b"):
        output = Output(folder / f"{name}.{kind}", {"--pairs": "x"})
        output.append([RECORD, RECORD | {"row": 1}], 2, {"pairs": 2})
        if name == "a":
            output.finish(has_text=True, judged=False)
    assert len(list(folder.iterdir())) == 3
    assert [row["row"] for row in rows_read(reader, folder, kind)] == [0, 1]
