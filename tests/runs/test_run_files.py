import copy

import pytest
from support.listed import record

from simcse_jax.config import default_config
from simcse_jax.errors import UserError
from simcse_jax.runs.metrics_file import read_metrics
from simcse_jax.runs.run_files import check_line, check_result, check_run

RUN = record(default_config(), sha256={"data.train": "5c", "model.init_from": "ac", "eval.data": "94"})
RETRIEVED = {"tiny": {"mrr@5": 3.5, "queries": 6, "documents": 40, "corpus": 40, "sha256": "0"}}
DEEP: dict = {}
for _ in range(50):
    DEEP = {"a": DEEP}
WRONG = (None, True, "x", 3.5, [1], {}, float("nan"), 10**30)


def changed(path: str, value: object) -> dict:
    run = section = copy.deepcopy(RUN)
    *parts, last = path.split("/")
    for part in parts:
        section = section[part]
    section[last] = value
    return run


def test_a_run_is_as_it_was():
    assert check_run(copy.deepcopy(RUN), "run.json") == RUN
    own = changed("config/objective/own", {"weight": 1.0, "rows": [1]})
    assert check_run(copy.deepcopy(own), "run.json") == own


def test_a_run_of_a_version_with_other_fields_is_refused_with_its_version():
    fewer, more = changed("versions/simcse_jax", "0.1.0"), changed("versions/simcse_jax", "9.1")
    del fewer["config"]["data"]["mixed"]
    more["config"]["new"] = {"field": [1]}
    for run, version in ((fewer, "0.1.0"), (more, "9.1")):
        with pytest.raises(UserError, match=rf"^run\.json: written by simcse_jax {version} in a .*; use that version"):
            check_run(run, "run.json")


DAMAGED = [
    ("config/seed", [value for value in WRONG if value != 10**30], r"config\.seed is"),
    ("config/model", WRONG, "model"), ("config/model/pooler", [*WRONG, "", "mean"], r"config\.model\.pooler"),
    ("config/eval/pooler", [*(value for value in WRONG if value != {}), "mean"], r"config\.eval\.pooler"),
    ("config/model/lora", [5, None, "x", {}, {"rank": 2}], r"config\.model\.lora\..* is missing"),
    ("config/model/freeze", [5, {"layers": 1}], r"config\.model\.freeze\.embeddings is missing"),
    ("config/objective/own", [3, None, {"weight": "x"}], r"config\.objective\.own has no weight"),
    ("config/objective", [None, "x", [1]], "objective"), ("hub", ["x", 3, {"a": 1}, None], "hub is not a list"),
    ("config/objective/info_nce", [3, None], r"config\.objective\.info_nce\.weight is missing"),
    ("config/matryoshka", [3, "x", [1], {"dimensions": [8]}], r"matryoshka"),
    ("config/eval/tasks", ["STS12", [3], None], r"eval\.tasks is"),
    ("config/a.b", [3], r"config\.a\.b is not the name"), ("config/deep", [DEEP], r"config\.deep\.a.* is not the name"),
    ("model", WRONG, r"model|max_length"), ("sha256", [None, 3, [1], {"data.train": 3}], "sha256"),
    ("model/max_length", [value for value in WRONG if value != 10**30] + [2], r"model\.max_length is"),
    ("versions", ["x", 3, [1], {"jax": 3}, {}, None], "versions"), ("device", ["x", 3, {}, {"count": None}], "device"),
    ("config", WRONG, "config"), ("examples", ["x", None, 3.5], "examples not a whole number"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "values", "message"), DAMAGED, ids=[path for path, *_ in DAMAGED])
def test_a_damaged_run_is_refused_with_the_place(path, values, message):
    for value in values:
        with pytest.raises(UserError, match=rf"^run\.json: damaged: .*{message}"):
            check_run(changed(path, value), "run.json")


def test_a_result_is_as_it_was_and_a_damaged_one_is_refused():
    task = {"spearman": 1, "pairs": 3, "mean": {"spearman": 1.5}}
    transfer = {"MR": {"dev_accuracy": 1.5}, "CR": {"accuracy": 80, "folds": [{"accuracy": 80}]}}
    for result in (
        {}, {"average": 1.5, "STS12": task, "transfer": transfer, "transfer_protocol": "pytorch"},
        {"average": None, "development": float("nan")}, {"retrieval": RETRIEVED, "retrieval_average": {"mrr@5": 3.5}},
        {"retrieval": {"spearman": 70.5, "pairs": 9}},
    ):  # fmt: skip
        assert check_result(result, "result.json") is result
    scores = {"spearman": 1, "pairs": 3}
    tiny, averages = RETRIEVED["tiny"], {"retrieval_average": {}}
    for result in (
        {"average": "1.5"}, {"STS12": {}}, {"STS12": {"spearman": "1"}}, {"STS12": [1]},
        {"STS12": scores | {"pearson": "1"}}, {"STS12": scores | {"mean": [1]}},
        {"STS12": scores | {"wmean": {"spearman": None}}}, {"transfer": {"MR": 3}},
        {"transfer": {"MR": {"accuracy": "80"}}}, {"transfer": {"MR": {"dev_accuracy": None}}},
        {"transfer": 3.0, "average": [1]}, {"transfer_protocol": ["pytorch"]}, {"retrieval": 3.0} | averages,
        {"retrieval": {"tiny": [1]}} | averages, {"retrieval": {"tiny": {"queries": 1}}} | averages,
        {"retrieval": {"tiny": tiny | {"mrr@5": "3"}}} | averages, {"retrieval_average": 3.0},
        {"retrieval_average": {"mrr@5": None}}, {"best_step": 2.0}, {"best_step": None},
    ):  # fmt: skip
        with pytest.raises(UserError, match=r"^result\.json: damaged: "):
            check_result(result, "result.json")


def test_damaged_lines_and_metrics_of_another_kind_are_refused(tmp_path):
    values = [("loss", "x"), ("loss", None), ("analysis", 3), ("analysis", {"l2_norm": float("nan")})]
    values += [("analysis", {"anisotropy": "x"})] + [("singular_values", x) for x in (1.0, [1.0, "x"], [float("nan")])]
    lines = [{}, *({"step": step} for step in ("1", -1, True, 10**30)), *({"step": 1, name: x} for name, x in values)]
    for line in lines:
        with pytest.raises(UserError, match=r"^line: damaged: "):
            check_line(line, "line")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": NaN}\n{"step": -1}\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl: line 2: damaged: .*; remove that line$"):
        read_metrics(tmp_path)
    for content in (b"\xff\xfe{\x00", b"[1]\n", b"[" * 10**5 + b"\n", b'{"\\ud800": 1}\n', b"\n"):
        (tmp_path / "metrics.jsonl").write_bytes(content)
        with pytest.raises(UserError, match=r"metrics\.jsonl: (line 1: |not UTF-8)"):
            read_metrics(tmp_path)
