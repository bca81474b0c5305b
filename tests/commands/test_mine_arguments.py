import pytest
from support import call, refused

GIVEN = ["--model=m", "--pairs=p.csv", "--corpus=c.txt", "--output=o.jsonl"]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--num-negatives=0"], ["--num-negatives 0", "from 1"]),
        (["--range-min=5", "--range-max=6"], ["--num-negatives 3", "only 1 ranks", "--range-max 6"]),
        (["--max-score=nan"], ["--max-score nan", "must be a number"]),
        (["--judge=m"], ["--judge", "--relative-margin"]),
        (["--seed=1"], ["--seed", "--sampling random"]),
        (["--sampling=random", "--seed=-1"], ["--seed -1", "from 0"]),
        (["--at-least=4"], ["--at-least 4", "--num-negatives 3"]),
        (["--columns", "negative=x"], ["--columns negative=x", "anchor=NAME"]),
        (["--columns", "anchor=x"], ["give both"]),
        (["--columns", "anchor=x", "positive=x"], ["--columns", "both x"]),
        (["--block-rows=0"], ["--block-rows 0", "from 1"]),
    ],
)
def test_what_cannot_be_is_refused_before_a_file_is_read(options, parts):
    refused(call("mine", *GIVEN, *options), *parts)
