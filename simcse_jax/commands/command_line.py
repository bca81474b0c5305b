"""What all commands share: names of models, what follows a command, and the handling of errors."""

import contextlib
import errno
import gc
import itertools
import os
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from simcse_jax.choices import POOLERS, pooler_of
from simcse_jax.errors import Preempted, UserError, in_command, reason
from simcse_jax.host import report, streams
from simcse_jax.host.storage import local_path

if TYPE_CHECKING:
    from simcse_jax.encoding.cross_encoder import CrossEncoder

SCRIPT, PACKAGE = PROGRAMS = ("simcse-jax", "python -m simcse_jax")


def module_name(command: str) -> str:
    """The module whose `main` a command runs, such as `simcse_jax.commands.build_data`."""
    return "simcse_jax.main" if command == "train" else f"simcse_jax.commands.{command.replace('-', '_')}"


def invocation(command: str) -> str:
    """The words that start a command, as this one was started: `simcse-jax train`, or `python -m simcse_jax train`."""
    program, _, _ = sys.argv[0].rpartition(" ")  # simcse_jax.__main__ writes "simcse-jax encode"
    if program in PROGRAMS:
        return f"{program} {command}"
    return f"{PACKAGE}.main" if command == "train" else f"{PACKAGE} {command}"


def say_next(command: str, *arguments: str) -> None:
    """Prints the command that usually follows, on standard error: standard output has results alone."""
    streams.say(f"next: {invocation(command)} {shlex.join(arguments)}")


MODEL = (
    "A folder, a hub id, package:NAME, a workdir (its best checkpoint; WORKDIR@step=200 is that of a step), or "
    "glove:FILE, the average of word vectors."
)


class ModelArgument(NamedTuple):
    """A model on the command line: NAME[@LAYERS][@POOLER][@METHOD][=LABEL]; labels and methods for some commands."""

    name: str  # with the step of a run's checkpoint, or a revision
    num_layers: int = 0  # 0: all
    pooler: str | None = None  # None: the model's own
    postprocess: str = ""  # a method; empty: none
    label: str = ""  # for pictures; empty: none was given

    @property
    def details(self) -> str:
        """The layers, the pooler and the post-processing, for a picture's legend."""
        layers = [f"{self.num_layers} layer{'s' * (self.num_layers > 1)}"] if self.num_layers else []
        return "".join(f", {part}" for part in (*layers, self.pooler, self.postprocess) if part)


def parse_model(spec: str, methods: Collection[str] = ()) -> ModelArgument:
    """Reads NAME[@LAYERS][@POOLER][@METHOD]; NAME may be OWNER/NAME@REVISION or WORKDIR@step=N.

    Args:
      spec: as given.
      methods: the post-processings that may be named; none for commands that have none.
    """
    parts = spec.split("@")
    num_layers, pooler, postprocess = 0, None, ""
    while len(parts) > 1 and not local_path("@".join(parts)).exists():  # from the end: NAME may have a revision
        if re.fullmatch("[1-9][0-9]*", parts[-1]) and not num_layers:
            num_layers = int(parts.pop())
        elif pooler_of(parts[-1]) in POOLERS and pooler is None:
            pooler = pooler_of(parts.pop())
        elif parts[-1] in methods and not postprocess:
            postprocess = parts.pop()
        else:
            break
    return ModelArgument("@".join(parts), num_layers, pooler, postprocess)


WRONG = 2
UNEXPECTED = 70  # EX_SOFTWARE of sysexits.h
PREEMPTED = 75  # EX_TEMPFAIL of sysexits.h: try again
INTERRUPTED = 130
CLOSED = 141
LONGEST = 1000  # characters of an error
EXIT_CODES = {
    0: "done",
    WRONG: "a mistake that you can fix, described in one line on standard error",
    UNEXPECTED: "an error of the program; one line names the file of a full report",
    PREEMPTED: "pre-empted after saving; the same command resumes",
    INTERRUPTED: "interrupted",
    CLOSED: "the reader of the output closed the pipe",
}
HELP = ("-h", "--help")
MINILM = "--model sentence-transformers/all-MiniLM-L6-v2"
EXAMPLES = {  # the options of one call of each command, for its help
    "train": "--config unsup_bert --data sentences.txt --workdir runs/first",
    "tune": f"{MINILM} --data pairs.csv --workdir runs/mine",
    "runs": "runs",
    "export": "--workdir runs/mine --output model",
    "merge": "--models runs/seed0 runs/seed1 --output model",
    "sweep": "--config unsup_bert --over train.learning_rate=1e-5,3e-5 --data sentences.txt --workdir runs/rates",
    "mine": f"{MINILM} --pairs pairs.csv --corpus passages.txt --output mined.jsonl",
    "prepare": "--model bert-base-uncased --data 'articles/*.parquet' --output corpus",
    "aot": "--config unsup_bert --topology v5e:2x4",
    "encode": f"{MINILM} --data sentences.txt --output embeddings.npy",
    "search": f"{MINILM} --data sentences.txt --query 'How do I reset it?'",
    "search build": "--embeddings embeddings.parquet --output index.lance",
    "serve": f"{MINILM} --port 8000",
    "demo": f"{MINILM} --data sentences.txt",
    "evaluate": f"{MINILM} --data SentEval/data/downstream",
    "analyze": "--pair runs/first bert-base-uncased --data sentences.txt --output report",
    "geometry": "--models runs/first bert-base-uncased --data SentEval/data/downstream --output pictures",
    "build-data": "wiki1m --source wiki.xml.bz2 --output wiki1m.txt",
    "overlap": "pairs.csv --positives entailment",
}
# Errors of the system that the user can mend, wherever they come from.
OF_THE_MACHINE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EMFILE, errno.ENFILE),
}


def describe_end(command: str) -> str:
    """The end of a command's help: the exit codes, and an example."""
    codes = (f"  {code:<4} {meaning}" for code, meaning in EXIT_CODES.items())
    return "\n".join(["exit codes:", *codes, "", f"example:\n  {invocation(command)} {EXAMPLES[command]}"])


def print_help(argv: Sequence[str], text: Callable[[], str]) -> bool:
    """Prints the help if the arguments ask for it: `text`, or the fields and sections whose names follow `--help`."""
    rest = list(itertools.dropwhile(lambda arg: arg not in HELP, argv))
    names = list(itertools.takewhile(lambda arg: not arg.startswith("-"), rest[1:]))
    if names:
        from simcse_jax.config.fields import FIELDS
        from simcse_jax.config.help import describe_named
        from simcse_jax.training.sweeps.variants import FIELDS as OF_SWEEPS

        print("\n".join(describe_named(name, {**FIELDS, **OF_SWEEPS}) for name in names))
    elif rest:
        print(text())
    return bool(rest)


@contextlib.contextmanager
def shorten_warnings() -> Iterator[None]:
    """Prints each warning for the user (`UserWarning`) at once as a line on standard error, and each text once."""
    printed: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not issubclass(category, UserWarning):
            show_before(message, category, *place, **more)
        elif str(message) not in printed:
            printed.add(str(message))
            print(f"warning: {message}", file=sys.stderr, flush=True)

    with warnings.catch_warnings():
        show_before, warnings.showwarning = warnings.showwarning, show
        warnings.simplefilter("always", UserWarning)
        yield


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """A command never looks for garbage in modules that are imported in this block, neither here nor later.

    A search through the half million objects of JAX and its libraries takes a tenth of a second, and there are several
    before the first step.
    """
    if not in_command.get():  # a caller's own program collects as it likes
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def run_command(main: Callable[[], None]) -> NoReturn:
    """Runs a command's `main` and ends the process with one of `EXIT_CODES`.

    An error that nobody expected ends in one line, which names the file of a full report. With the variable
    SIMCSE_JAX_TRACEBACK in the environment it is raised instead.
    """
    token = in_command.set(True)
    streams.prepare()
    try:
        with shorten_warnings():
            code = _run(main)
    finally:
        in_command.reset(token)
    with contextlib.suppress(UserError, BrokenPipeError):  # the error that counts was reported
        streams.flush()
    sys.exit(code)


def _run(main: Callable[[], None]) -> Any:
    """Runs `main`, and reports its error. Returns the exit code."""
    try:
        code: Any = 0
        try:
            main()
        except SystemExit as end:  # as `--help` ends
            code = end.code
        streams.flush()
        return code
    except UserError as error:
        return _report_mistake(error.message, error.listed)
    except Preempted as stop:
        streams.say(str(stop))
        return PREEMPTED
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        return CLOSED
    except KeyboardInterrupt as stop:  # with a text where something was saved
        streams.say(f"{stop}\n  {repeat_command()}" if str(stop) else "interrupted")
        return INTERRUPTED
    except OSError as error:
        if error.errno not in OF_THE_MACHINE:
            return _report_unexpected(error)
        where = "standard output or a file" if error.filename is None else error.filename  # a write gives no name
        return _report_mistake(f"{where}: {error.strerror}")
    except BaseException as error:  # a panic of a library in Rust is no Exception
        return _report_unexpected(error)


def _report_mistake(text: str, listed: Sequence[str] = ()) -> int:
    _say_error("\n".join([_one_line(text), *(f"  {_one_line(line)}" for line in listed)]))
    return WRONG


def _say_error(text: str) -> None:
    streams.say(f"{streams.paint('error:', streams.RED, sys.stderr)} {text}")


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    if len(line) > LONGEST:  # the mistake stands at the beginning, the remedy at the end
        line = f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
    return line


def _report_unexpected(error: BaseException) -> int:
    """Prints a line about an error that nobody expected, and writes the full report."""
    if os.environ.get("SIMCSE_JAX_TRACEBACK"):
        raise error
    text = report.describe(error, repeat_command())
    name = report.write(text)
    if name is None:
        streams.say(text)
    problem = f"{type(error).__name__}: {reason(error)}"
    if report.out_of_memory(error):
        problem = f"not enough memory; smaller batches, shorter sentences or a smaller model need less ({problem})"
    else:
        problem = f"simcse_jax did not expect this: {problem}"
    _say_error(f"{problem}; the full report is {f'in {name}' if name else 'above'}")
    return UNEXPECTED


def open_reranker(name: str, batch_size: int, dtype: str) -> "CrossEncoder":
    """The cross-encoder of `--rerank`.

    Raises:
      UserError: when it is none, cannot be read, or has several labels.
    """
    from simcse_jax.encoding.cross_encoder import CrossEncoder

    try:
        return CrossEncoder(name, batch_size=batch_size, dtype=dtype).check_one_label("reranking")
    except UserError as error:
        raise UserError(f"--rerank {error}") from None


def repeat_command() -> str:
    """The command that started this process, to be given again."""
    arguments = sys.orig_argv
    if len(arguments) > 1 and os.path.basename(arguments[1]) == SCRIPT:  # a script of the interpreter's
        script = shutil.which(SCRIPT)
        if script and os.path.realpath(script) == os.path.realpath(arguments[1]):
            arguments = [SCRIPT, *arguments[2:]]
    return shlex.join(arguments)
