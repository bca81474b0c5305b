"""Small changes of the package, which the tests of its room that reach the line must find: `make mutants`."""
# mutmut and cosmic-ray know no axes, collectives and keys.

import ast
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

import numpy as np
from coverage import CoverageData

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "mutants"
ROOMS = ("models", "objectives", "training", "data", "vectors", "encoding", "index", "evaluation", "runs")
TURNED = dict(Lt="LtE", Gt="GtE", Eq="NotEq", In="NotIn", Is="IsNot", And="Or", Add="Sub", Mult="Div")
TURNED |= {other: name for name, other in TURNED.items()} | {"FloorDiv": "Div", "Mod": "Mult", "Pow": "Mult"}
COLLECTIVES = ("psum", "pmean", "pmax", "all_gather", "gather", "stop_gradient")


class Mutant(NamedTuple):
    """`text` in place of a node of a file's syntax."""

    kind: str
    path: str
    node: ast.AST
    text: str
    statement: int  # the first line of the one that the node is in

    def apply(self, source: bytes) -> bytes:
        before = source.splitlines(keepends=True)[: self.node.lineno]
        after = source.splitlines(keepends=True)[self.node.end_lineno - 1 :]
        before[-1], after[0] = before[-1][: self.node.col_offset], after[0][self.node.end_col_offset :]
        return b"".join([*before, self.text.encode(), *after])


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """The changes of a node: their kind, what is changed, and the new text."""

    def text(**fields: object) -> str:
        return f"({ast.unparse(type(node)(**vars(node) | fields))})"

    name = type(getattr(node, "op", None)).__name__
    if isinstance(node, ast.Compare) and (other := TURNED.get(type(node.ops[0]).__name__)):
        yield "comparison", node, text(ops=[getattr(ast, other)(), *node.ops[1:]])
    elif isinstance(node, (ast.BinOp, ast.BoolOp)) and name in TURNED:
        yield "operator", node, text(op=getattr(ast, TURNED[name])())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "operator", node, f"bool({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        yield "constant", node, f"({not node.value})" if isinstance(node.value, bool) else f"({node.value * 2 or 1})"
    elif isinstance(node, ast.Call):
        function = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if function in COLLECTIVES and node.args:
            yield "collective", node, ast.unparse(node.args[0])
        if function == "fold_in":
            yield "key", node, text(args=[node, *node.args[1:]])
        for keyword in node.keywords:
            if keyword.arg == "axis" and isinstance(keyword.value, (ast.Constant, ast.UnaryOp)):
                yield "axis", keyword.value, "-1" if ast.unparse(keyword.value) == "0" else "0"
    target = isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Attribute, ast.Subscript))
    call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if target or call or isinstance(node, (ast.AugAssign, ast.Raise, ast.Continue, ast.Break)):
        yield "statement", node, "pass"


def mutants_of(path: str, node: ast.AST, statement: int = 1) -> Iterator[Mutant]:
    """Every change of a file, given its syntax tree."""
    statement = node.lineno if isinstance(node, ast.stmt) else statement
    yield from (Mutant(kind, path, place, text, statement) for kind, place, text in changes(node))
    if not isinstance(node, (ast.JoinedStr, ast.Raise)):  # messages
        for child in ast.iter_child_nodes(node):
            yield from mutants_of(path, child, statement)


def draw(count: int, seed: int) -> list[Mutant]:
    """`count` mutants, the kinds in turn, at most one of a line."""
    generator, kinds = np.random.default_rng(seed), {}
    for file in sorted(path for room in ROOMS for path in (ROOT / "simcse_jax" / room).rglob("*.py")):
        for mutant in mutants_of(str(file.relative_to(ROOT)), ast.parse(file.read_text())):
            kinds.setdefault(mutant.kind, []).append(mutant)
    shuffled = [[mutants[i] for i in generator.permutation(len(mutants))] for _, mutants in sorted(kinds.items())]
    drawn: dict[tuple[str, int], Mutant] = {}
    while len(drawn) < count:
        for mutant in [mutants.pop() for mutants in shuffled if mutants]:
            drawn.setdefault((mutant.path, mutant.node.lineno), mutant)
    return list(drawn.values())[:count]


def tests_of(mutant: Mutant, reached: CoverageData) -> list[str]:
    """The test file that mirrors the mutant's, then the other tests of the room that reach its statement."""
    _, room, *folders, name = mutant.path.split("/")
    mirror = "/".join(["tests", room, *folders, f"test_{name}"])
    by_line = reached.contexts_by_lineno(str(ROOT / mutant.path))
    tests = {test for line in range(mutant.statement, mutant.node.end_lineno + 1) for test in by_line.get(line, [])}
    if tests <= {""}:  # no test, or an import
        return [mirror, f"tests/{room}"]
    ids = {test.partition("|")[0] for test in tests if test.startswith(f"tests/{room}/")}
    return [mirror, *sorted(test for test in ids if not test.startswith(f"{mirror}::"))]


def passes(tree: Path, *arguments: str) -> bool:
    """Whether pytest ends well within 20 minutes."""
    command = ["timeout", "1200", sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=no", *arguments]
    types = {"TYPES": "1"} if "-m" in arguments else {}  # as the Makefile has them
    done = subprocess.run(command, cwd=tree, env=os.environ | types, capture_output=True, text=True)
    assert "not found:" not in done.stdout + done.stderr, "tests were renamed: rm -r .cache/mutants, and again"
    return done.returncode in (0, 5)


def find(mutant: Mutant, trees: Queue[Path], reached: CoverageData) -> str:
    """Prints by which command the mutant is found, in one of the copies of the tree."""
    source = (file := (tree := trees.get()) / mutant.path).read_bytes()
    (tree / "tests.args").write_text("\n".join(tests_of(mutant, reached)))
    file.write_bytes(mutant.apply(source))
    tiers = {"make test": [], "make test-all": ["-m", "slow or not slow"]}
    by = next((tier for tier, marks in tiers.items() if not passes(tree, "-x", *marks, "@tests.args")), "survives")
    file.write_bytes(source)
    trees.put(tree)
    line = mutant.node.lineno
    print(f"{by:<14}{mutant.path}:{line}: {source.decode().splitlines()[line - 1].strip()}: {mutant.text}", flush=True)
    return by


def main() -> None:
    count, seed = map(int, sys.argv[1:])
    trees: Queue[Path] = Queue()
    shutil.rmtree(CACHE / "trees", ignore_errors=True)
    for tree in (CACHE / "trees" / name for name in ("one", "two")):
        subprocess.run(["git", "checkout-index", "-a", f"--prefix={tree}/"], cwd=ROOT, check=True)
        (tree / ".cache").symlink_to(ROOT / ".cache")  # of compiled programs
        trees.put(tree)
    (CACHE / "trees" / "shared").symlink_to(ROOT.parent / "shared")
    if not (CACHE / "map").exists():  # which tests reach a line
        coverage = ["--cov", "--cov-context=test", "--cov-report=", "-n2", "-m", "slow or not slow"]
        passes(ROOT, *(f"tests/{room}" for room in ROOMS), *coverage)
    (reached := CoverageData(str(CACHE / "map"))).read()
    with ThreadPoolExecutor(2) as pool:
        ends = Counter(pool.map(lambda mutant: find(mutant, trees, reached), draw(count, seed)))
    print(f"of {count} mutants, make test finds {ends['make test']}, make test-all {count - ends['survives']}")


if __name__ == "__main__":
    main()
