"""A verb is one typed function: programs import it, and the command line is made from it.

Names, defaults and bounds stand in its signature, the help in its docstring. Its errors name an option as the command
line does, `--top-k`; those that a program sees, as Python does, `top_k`.
"""

import functools
import importlib
import inspect
import itertools
import re
import sys
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import cyclopts
from cyclopts import App, Parameter
from cyclopts.help import DefaultFormatter, PanelSpec
from cyclopts.validators import Number
from rich.box import Box

from simcse_jax.choices import POOLERS
from simcse_jax.commands.command_line import EXAMPLES, MODEL, SCRIPT, describe_end, invocation, module_name
from simcse_jax.errors import KINDS, UserError, in_command, right_value
from simcse_jax.host import streams

SHELLS = ("bash", "zsh", "fish")

P = ParamSpec("P")
R = TypeVar("R")


def _parts(text: str) -> list[str]:
    return [part for part in map(str.strip, text.split(",")) if part]


def _split(_: Any, tokens: Sequence[cyclopts.Token]) -> list[str]:
    return [part for token in tokens for part in _parts(token.value)]


def _numbers(_: Any, tokens: Sequence[cyclopts.Token]) -> list[int]:
    return [int(value) for value in _split(_, tokens)]


def _readable(_: Any, tokens: Sequence[cyclopts.Token]) -> str:
    return streams.argument(tokens[0].value)


def _all_readable(_: Any, tokens: Sequence[cyclopts.Token]) -> list[str]:
    return [streams.argument(token.value) for token in tokens]


Names = Annotated[Sequence[str], Parameter(consume_multiple=1, converter=_split)]  # with spaces or commas
Texts = Annotated[Sequence[str], Parameter(consume_multiple=1)]  # which may have commas
Numbers = Annotated[Sequence[int], Parameter(consume_multiple=1, converter=_numbers)]  # with spaces or commas
Seed = Annotated[int, Parameter(validator=Number(gte=0, lt=2**32))]
Count = Annotated[int, Parameter(validator=Number(gte=1, lt=2**31))]
Counts = Annotated[Numbers, Parameter(validator=Number(gte=1, lt=2**31))]
Text = Annotated[str, Parameter(converter=_readable)]
Queries = Annotated[Sequence[str], Parameter(converter=_all_readable)]
Prompts = Annotated[Sequence[str], Parameter(consume_multiple=1, converter=_all_readable)]
Fields = Annotated[Sequence[str], Parameter(parse=False)]  # of a config; on a command line --config.FIELD=VALUE
WITH_NO = Parameter(negative=None)  # for a switch that has a --no-

ModelName = Annotated[str, Parameter(help=MODEL)]
Pooler = Annotated[
    str | None, Parameter(help=f"From tokens to an embedding: {', '.join(POOLERS)}. By default as the model says.")
]
NumLayers = Annotated[
    int, Parameter(validator=Number(gte=0), show_default=False, help="Keep the first n layers. By default all.")
]
BatchSize = Annotated[Count, Parameter(help="Sentences encoded together on each device.")]
Dtype = Annotated[Literal["float32", "bfloat16"], Parameter(help="The type to compute in.")]
Prompt = Annotated[Text | None, Parameter(help="Text to put before each sentence. By default as the model says.")]
PromptName = Annotated[str | None, Parameter(help="The same, by its name among the model's prompts.")]
TruncateDim = Annotated[
    Count | None, Parameter(help="Keep the first elements of each embedding. By default as the model says.")
]


def verb(function: Callable[P, R]) -> Callable[P, R]:
    """A function that checks the arguments that a program gives it, as the command line does.

    Raises:
      UserError: naming an argument that is not one of its choices, or out of its bounds.
    """

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if in_command.get():
            return function(*args, **kwargs)
        bound = inspect.signature(function).bind(*args, **kwargs)
        hints = get_type_hints(function, include_extras=True)
        for name, value in bound.arguments.items():
            bound.arguments[name] = _argument(name, value, hints[name])
        try:
            return function(*bound.args, **bound.kwargs)
        except UserError as error:
            raise UserError(_as_keywords(error.message, bound.signature.parameters), error.listed) from None

    return checked


def _argument(name: str, value: Any, hint: Any) -> Any:
    """An argument in the form that the function expects, if it is one of its choices and within its bounds."""
    hints, kinds, choices, items, parameters = [hint], list[Any](), list[Any](), list[Any](), list[Parameter]()
    while hints:
        hint = hints.pop()
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            hints.append(arguments[0])
            parameters += hint.__metadata__
        elif origin in (Union, types.UnionType):
            hints += arguments
        elif origin is Literal:
            choices += arguments
        elif origin is Sequence:
            items += arguments
        else:
            kinds.append(hint)
    if value is None:
        return value
    if choices and value not in choices:
        raise UserError(f"{name} {value!r:.60}: must be one of {', '.join(choices)}")
    if isinstance(value, Path):
        value = str(value)
    if items and isinstance(value, str) and str not in kinds:
        value = _parts(value) if any(parameter.converter is _split for parameter in parameters) else [value]
    elif items and not isinstance(value, Iterable):
        value = [value]
    if items and not isinstance(value, str):
        value = [_argument(name, item, items[0]) for item in value]
    for check in itertools.chain.from_iterable(cast(Any, parameter.validator) for parameter in parameters):
        try:
            check(type(value), value)
        except ValueError as error:
            raise UserError(f"{name} {value}: {error}") from None
    return value


def _as_keywords(message: str, names: Collection[str]) -> str:
    """A message whose options are keywords: `top_k` in place of `--top-k`, `normalize=False` of `--no-normalize`."""

    def keyword(option: re.Match[str]) -> str:
        name = option[1].replace("-", "_")
        without = name.removeprefix("no_")
        return name if name in names else f"{without}=False" if without in names else option[0]

    return re.sub(r"--([a-z][a-z0-9-]*)", keyword, message)


def import_verb(command: str) -> Callable[..., Any]:
    """The function that a command runs."""
    name = "list_runs" if command == "runs" else command.replace("-", "_")  # simcse_jax.runs is a package
    return getattr(importlib.import_module(module_name(command)), name)


def app(command: str) -> App:
    """The command line of a verb and of the `SUBCOMMANDS` of its module."""
    function = import_verb(command)
    made = make_app(function, invocation(command))
    for name, part in getattr(sys.modules[function.__module__], "SUBCOMMANDS", {}).items():
        made.command(make_app(part, name))
    return made


def make_app(function: Callable[..., Any], name: str) -> App:
    """The command line of a function, on which all arguments but those that are positional alone are options."""

    @functools.wraps(function)
    def options(*args: Any, **kwargs: Any) -> None:
        function(*args, **kwargs)

    signature = inspect.signature(function)
    options.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[
            argument.replace(kind=argument.KEYWORD_ONLY)
            if argument.kind is argument.POSITIONAL_OR_KEYWORD
            else argument
            for argument in signature.parameters.values()
        ]
    )
    made = App(
        name=name,
        default_parameter=Parameter(negative="", show_default=_format_default, allow_repeating=True),
        version_flags=[],
        config=_check_numbers,
        help_formatter=DefaultFormatter(panel_spec=PanelSpec(box=Box("    \n" * 8), padding=(0, 0))),
        result_action="return_value",
    )
    made.default(options)
    made["--help"].group = "Parameters"
    return made


def _check_numbers(app: App, commands: tuple[str, ...], arguments: cyclopts.ArgumentCollection) -> None:
    """Refuses what is not a number, and a fraction for a whole one, which cyclopts would round."""
    for argument in arguments:
        kinds = {argument.hint, *get_args(argument.hint)}
        kinds |= {kind for several in kinds for kind in get_args(several)}
        number: Any = int if int in kinds else float if float in kinds else None
        default = argument.field_info.default
        example = default[0] if isinstance(default, tuple) and default else default
        for token in argument.tokens if number else ():
            stands_alone = isinstance(token.implicit_value, list)  # without a number
            try:
                list(map(number, () if stands_alone else token.value.split(",")))
            except ValueError:
                right = right_value(example if type(example) in (int, float) else number(1))
                raise UserError(f"{argument.name} {token.value[:40]!r}: must be {right}") from None


def _format_default(default: Any) -> Any:
    """A default for the help; None where there is nothing to show."""
    if isinstance(default, tuple):
        default = " ".join(map(str, default))
    return None if default is False or default == "" else default


def completion(shell: str, commands: Mapping[str, str]) -> str:
    """The script by which a shell completes commands and options, such as `source <(simcse-jax --completion bash)`.

    Args:
      shell: bash, zsh or fish.
      commands: all of them, and a line about each.

    Raises:
      UserError: for another shell.
    """
    if shell not in SHELLS:
        raise UserError(f"--completion {shell}".rstrip() + f": must be one of {', '.join(SHELLS)}")
    program = App(name=SCRIPT, version_flags=[])
    for name, about in commands.items():
        fields = hasattr(importlib.import_module(module_name(name)), "main")  # in place of options
        program.command(App(help=about) if fields else app(name), name=name)
    return program.generate_completion(shell=cast(Any, shell))


def parse(command: str, argv: Sequence[str]) -> tuple[Callable[..., None], inspect.BoundArguments]:
    """The function to call for a command line, which may be the help, and its arguments.

    Raises:
      UserError: for options that are wrong.
    """
    made, fields = app(command), list[str]()
    if takes_fields := "fields" in inspect.signature(import_verb(command)).parameters:
        from simcse_jax.config.fields import FIELDS
        from simcse_jax.config.flags import no_such_option, split_fields

        fields, argv = split_fields(argv)
    try:
        function, bound, _ = made.parse_args(argv, exit_on_error=False, print_error=False)
    except cyclopts.CycloptsError as error:
        if takes_fields and isinstance(error, cyclopts.UnknownOptionError):
            at = argv.index(next(arg for arg in argv if arg.startswith(str(error.token.keyword))))
            options = [name for argument in error.argument_collection for name in argument.names]
            defaults = {name: field.default for name, field in FIELDS.items()}
            raise UserError(no_such_option(argv[at:], defaults, options)) from None
        message = re.sub("unable to convert .* into bool", f"must be {KINDS[bool]}", str(error))
        if isinstance(error, cyclopts.UnusedCliTokensError):
            message = f"what is {' '.join(map(repr, error.unused_tokens or ()))} for? No option takes it"
        started = " ".join([invocation(command), *(error.command_chain or ())])
        if isinstance(error, cyclopts.MissingArgumentError) and not error.keyword:
            message = message.replace("requires an argument", "is missing")  # not only its value
        raise UserError(f"{message} (see {started} --help)") from None
    if console := bound.arguments.get("console"):
        console.on_broken_pipe = _raise_broken_pipe  # in place of exit code 1
        return functools.partial(_help, function, " ".join([command, *argv[:1]])), bound
    if fields:
        bound.arguments["fields"] = fields
    return function, bound


def _help(shown: Callable[..., None], words: str, *args: Any, **kwargs: Any) -> None:
    """The help, with its end, whose lines must stay whole: they are copied."""
    shown(*args, **kwargs)
    print(f"\n{describe_end(words if words in EXAMPLES else words.partition(' ')[0])}")


def _raise_broken_pipe() -> None:
    raise BrokenPipeError


def make_main(command: str) -> Callable[[], None]:
    """A function that runs a command on `sys.argv`: its module's `main`, or its verb."""
    if main := getattr(importlib.import_module(module_name(command)), "main", None):
        return main

    def main_of_verb() -> None:
        function, bound = parse(command, sys.argv[1:])
        function(*bound.args, **bound.kwargs)

    return main_of_verb
