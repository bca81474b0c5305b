"""The resolved configs of `configs/` as texts, kept in `tests/configs/golden/`: `make golden` writes them again.

`defaults.txt` has every field. A recipe's text has, for each of its variants, the fields that differ from the
defaults. So a changed default changes one line there, and one in each recipe that no longer has the same value.
"""

from pathlib import Path

from simcse_jax.config.fields import default_config, flatten
from simcse_jax.config.flags import parse
from simcse_jax.config.recipes import list_recipes
from support import ROOT

CONFIGS = ROOT / "configs"
GOLDEN = ROOT / "tests" / "configs" / "golden"


def golden_texts() -> dict[Path, str]:
    """The text of each file, by its path in `GOLDEN`."""
    defaults = flatten(default_config())
    texts = {Path("defaults.txt"): "".join(map(line, defaults.items()))}
    for folder in (CONFIGS, CONFIGS / "ablations"):
        for recipe in list_recipes(folder):
            parts = []
            for variant in recipe.variants or ("",):
                argument = f"{recipe.file}:{variant}" if variant else str(recipe.file)
                fields = flatten(parse([f"--config={argument}"], needs_workdir=False)[0])
                changed = [line(item) for item in fields.items() if item not in defaults.items()]
                parts.append("".join([f"[{variant}]\n" if variant else "", *changed]))
            texts[recipe.file.relative_to(CONFIGS).with_suffix(".txt")] = "\n".join(parts)
    return texts


def line(item: tuple[str, object]) -> str:
    return f"{item[0]} = {item[1]!r}\n"


def read_golden() -> dict[Path, str]:
    """The stored texts."""
    return {file.relative_to(GOLDEN): file.read_text(encoding="utf-8") for file in GOLDEN.rglob("*.txt")}


def main() -> None:
    """Writes the texts, and removes those of deleted recipes."""
    texts = golden_texts()
    for path in read_golden().keys() - texts.keys():
        (GOLDEN / path).unlink()
    for path, text in texts.items():
        (GOLDEN / path).parent.mkdir(parents=True, exist_ok=True)
        (GOLDEN / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
