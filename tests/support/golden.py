"""The resolved configs of `configs/` as texts, kept in `tests/configs/golden/`: `make golden` writes them again.

`defaults.txt` has every field. A recipe's text has, for each of its variants, the fields that differ from the
defaults. So a changed default changes one line there, and one in each recipe that no longer has the same value. A
sweep's text has a line for each of its rows too: the fields that differ from its base, and the paper's values.
"""

from collections.abc import Iterator
from pathlib import Path

from ml_collections import config_dict

from simcse_jax.config.fields import default_config, flatten
from simcse_jax.config.flags import parse
from simcse_jax.config.recipes import list_recipes
from simcse_jax.training.sweeps.variants import load_variants, read_sweep
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
                config = parse([f"--config={argument}"], needs_workdir=False)[0]
                fields = flatten(config)
                changed = [line(item) for item in fields.items() if item not in defaults.items()]
                rows = rows_of(config, argument) if "sweep" in config else ()
                parts.append("".join([f"[{variant}]\n" if variant else "", *changed, *rows]))
            texts[recipe.file.relative_to(CONFIGS).with_suffix(".txt")] = "\n".join(parts)
    return texts


def rows_of(config: config_dict.ConfigDict, argument: str) -> Iterator[str]:
    base = flatten(config)
    for row, resolved in read_sweep(config, load_variants(argument)):
        changed = {name: value for name, value in flatten(resolved).items() if value != base[name]}
        others = {"paper": dict(row.paper), "baseline": row.baseline, "chosen on": row.chosen_on, "quoted": row.quoted}
        ends = "".join(f", {name}: {value!r}" for name, value in others.items() if value)
        yield f"row {row.name!r}: {changed}{ends}\n"


def line(item: tuple[str, object]) -> str:
    return f"{item[0]} = {item[1]!r}\n"


def read_golden() -> dict[Path, str]:
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
