"""python -m benchmarks.structure [FOLDER]: how a package is built: its files, its longest pieces, its import circles.

A function's length includes its docstring. A circle is a group of files that import each other, functions included.
"""

import ast
import sys
from pathlib import Path


def main() -> None:
    """Prints the figures."""
    package = Path(sys.argv[1] if len(sys.argv) > 1 else "simcse_jax")
    files = {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in files.items()}
    top = [path for path in files if path.parent == package]
    lines, longest = max((text.count("\n"), path) for path, text in files.items())
    every = sum(len(text.splitlines()) for text in files.values())
    print(f"files: {len(files)}, of which {len(top)} are at the top; lines: {every}")
    print(f"longest file: {longest}, {lines} lines")
    functions = [
        (node.end_lineno - node.lineno + 1, f"{path}: {node.name}")
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]
    size, name = max(functions)
    over = {limit: sum(size > limit for size, _ in functions) for limit in (40, 60)}
    print(f"longest function: {name}, {size} lines; above 40 lines: {over[40]}, above 60: {over[60]}")
    graph = {module(path, package): imports(tree, package) for path, tree in trees.items()}
    rooms, arrows = find_rooms(graph)
    print(f"rooms, folders and files at the top: {len(rooms)}; imports from one to another: {len(arrows)}")
    circles = find_circles(graph)
    print("\n".join([f"import circles: {len(circles)}", *map(" ".join, circles)]))


def module(path: Path, package: Path) -> str:
    """The dotted name of a file."""
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST, package: Path) -> set[str]:
    """All names of the package that a file imports, of modules and of names in them."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == package.name:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def find_rooms(graph: dict[str, set[str]]) -> tuple[set[str], set[tuple[str, str]]]:
    """The first names below the package, and the pairs of them of which one imports the other."""

    def room(name: str) -> str:
        return [*name.split("."), "__init__"][1]

    arrows = {(room(name), room(other)) for name, found in graph.items() for other in found & graph.keys()}
    return {room(name) for name in graph}, {(one, other) for one, other in arrows if one != other}


def find_circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that reach each other."""
    graph = {name: {other for other in found if other in graph and other != name} for name, found in graph.items()}

    def reached(start: str) -> set[str]:
        found, left = set(), [start]
        while left:
            for other in graph[left.pop()] - found:
                found.add(other)
                left.append(other)
        return found

    reach = {name: reached(name) for name in graph}
    groups = {frozenset(other for other in reach[name] if name in reach[other]) for name in graph}
    return sorted(sorted(group) for group in groups if group)


if __name__ == "__main__":
    main()
