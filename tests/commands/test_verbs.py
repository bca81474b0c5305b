import importlib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pytest
from cyclopts import Parameter
from cyclopts.validators import Number

from simcse_jax.__main__ import COMMANDS
from simcse_jax.commands import verbs
from simcse_jax.commands.command_line import module_name
from simcse_jax.commands.verbs import WITH_NO, Count, Names, Numbers, Queries, verb
from simcse_jax.config.flags import parse_run
from simcse_jax.errors import UserError, in_command

Share = Annotated[float, Parameter(validator=Number(gt=0, lte=1))]


@pytest.fixture(autouse=True)
def example(monkeypatch):
    monkeypatch.setitem(verbs.EXAMPLES, "measure", "pairs.csv --top-k 3")


@verb
def measure(
    data: str,
    /,
    *,
    top_k: Count = 5,
    share: Share | None = None,
    tasks: Names = (),
    sizes: Annotated[Numbers | None, Parameter(consume_multiple=True)] = None,
    seed: int = 0,
    query: Queries = (),
    no_key: bool = False,
    kind: Literal["a", "b"] = "a",
    normalize: Annotated[bool | None, WITH_NO] = None,
    fail: str = "",
    groups: Annotated[Sequence[str | Sequence[str]], Parameter(parse=False)] = (),
):
    """Measures.

    Args:
      data: A file.
      top_k: So many.
    """
    if fail:
        raise UserError(fail)
    return data, top_k, share, list(tasks), list(query), kind, normalize, list(groups)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 0}, "top_k 0: Must be >= 1."),
        ({"top_k": 2**31}, "top_k 2147483648: Must be < 2147483648."),
        ({"share": 0}, "share 0: Must be > 0."),
        ({"kind": "c"}, "kind 'c': must be one of a, b"),
        (
            {"fail": "--top-k 7: more than --no-normalize, --no-key and --unknown"},
            "top_k 7: more than normalize=False, no_key and --unknown",
        ),
    ],
)
def test_a_program_s_arguments_are_checked_and_errors_name_keywords(options, message):
    with pytest.raises(UserError) as error:
        measure("x", **options)
    assert str(error.value) == message


def test_a_program_and_the_command_line_give_the_same_arguments(monkeypatch):
    monkeypatch.setattr(verbs, "import_verb", lambda command: measure)
    line = [
        "x.csv",
        "--tasks",
        "A",
        "B",
        "--tasks",
        "C, D",
        "--query",
        "a, b",
        "--query=-c",
        "--share",
        "1",
        "--no-normalize",
    ]
    expected = ("x.csv", 5, 1.0, ["A", "B", "C", "D"], ["a, b", "-c"], "a", False, [])
    assert (
        measure("x.csv", top_k=np.int64(5), share=np.float32(1), tasks="A, B,C,D,", query=expected[4])[:5]
        == expected[:5]
    )
    for groups in (["a", Path("b")], [["a"], ["b"]], ["a", ["b"]]):
        assert measure("x.csv", groups=groups)[-1] == [str(one) if isinstance(one, Path) else one for one in groups]
    assert measure(Path("x.csv"), tasks="A,B,C,D", query=["a, b", "-c"], share=1, normalize=False) == expected
    _, bound = verbs.parse("measure", line)
    token = in_command.set(True)
    try:
        assert measure(*bound.args, **bound.kwargs) == expected
    finally:
        in_command.reset(token)
    for wrong, message in (
        ("", "DATA is missing"),
        ("x y", "what is 'y' for? No option takes it"),
        ("--data x", "Unknown option: --data"),
        ("x --top-l 3", "Unknown option: --top-l. Did you mean --top-k?"),
        ("x --top-k 0", 'Invalid value "0" for --top-k. Must be >= 1.'),
        ("x --kind c", 'Choose from: "a", "b"'),
        ("x --no-key=x", "Invalid value for --no-key: must be true or false."),
        ("x --kind", "--kind requires an argument"),
        ("x --tasks --top-k 3", "--tasks requires at least 1 element"),
    ):
        with pytest.raises(UserError) as error:
            verbs.parse("measure", wrong.split())
        said = str(error.value)
        assert message in said and said.endswith("measure --help)") and "\n" not in said
    assert verbs.parse("measure", ["x", "--sizes", "--top-k", "3"])[1].arguments["sizes"] == []
    assert verbs.parse("measure", ["x", "--query=--kind"])[1].arguments["query"] == ["--kind"]
    with pytest.raises(UserError, match=r"--query requires an argument"):
        verbs.parse("measure", ["x", "--query", "--kind", "b"])


def test_an_error_names_the_help_of_its_own_command():
    with pytest.raises(UserError, match=r"--output is missing\. \(see .* search build --help\)$"):
        verbs.parse("search", ["build", "--embeddings", "x"])


def test_the_help_has_bounds_defaults_and_exit_codes(monkeypatch, capsys):
    monkeypatch.setattr(verbs, "import_verb", lambda command: measure)
    function, bound = verbs.parse("measure", ["--help"])
    function(*bound.args, **bound.kwargs)
    shown = " ".join(capsys.readouterr().out.split())
    with pytest.raises(BrokenPipeError):
        bound.arguments["console"].on_broken_pipe()
    for part in (
        "So many. [default: 5]",
        "[choices: a, b] [default: a]",
        "--seed INT [default: 0]",
        "--normalize --no-normalize",
        "exit codes: 0 done",
        "example: python -m simcse_jax measure pairs.csv --top-k 3",
    ):
        assert part in shown

    for value in ("1.5", "0x10", "1e3", "", "nan", "9" * 5000):
        with pytest.raises(UserError, match=f"^--top-k '{value[:40]}': must be a whole number, e.g. 5$"):
            verbs.parse("measure", ["x", "--top-k", value])

    for option, value, right in (("--share", "x", "a number, e.g. 1.0"), ("--sizes", "1,x", "a whole number, e.g. 1")):
        with pytest.raises(UserError, match=f"^{option} '{value}': must be {right}$"):
            verbs.parse("measure", ["x", option, value])


def test_each_help_ends_with_an_example_that_can_be_run():
    assert verbs.EXAMPLES.keys() == {*COMMANDS, "search build", "measure"}
    for words, options in verbs.EXAMPLES.items():
        command, *part = words.split()
        if command in VERBS:
            function, _ = verbs.parse(command, [*part, *shlex.split(options)])
            assert callable(function), words
    parse_run(shlex.split(verbs.EXAMPLES["train"]))


def test_an_option_of_a_verb_with_fields_may_be_a_field():
    given = ["--config", "unsup_bert", "--topology", "v5e:2x4"]
    for option, answer in {"--batch-size=3": "write --config.train.batch_size=3", "--fil 1": "one is --fill"}.items():
        with pytest.raises(UserError, match=f"^no option .*{answer}$"):
            verbs.parse("aot", [*given, *option.split()])


VERBS = [name for name in COMMANDS if not hasattr(importlib.import_module(module_name(name)), "main")]


@pytest.mark.parametrize("command", VERBS)
def test_each_option_has_a_help(command):
    made = verbs.app(command)
    assert "Needs" in verbs.import_verb(command).__doc__ or command in (
        "runs",
        "overlap",
        "build-data",
        "mine",
        "prepare",
    )
    for app in (made, *(made[name] for name in made if not name.startswith("-"))):
        for argument in app.assemble_argument_collection(parse_docstring=True):
            assert argument.parameter.help, argument.name
