"""How fast runs reach their best development score: numbers and a picture, as in section 5.3 of SimCSE++.

The lines are means over the seeds of a group, the bands one standard deviation of the seeds.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from simcse_jax.evaluation.plotting import Pictures, chart, shortened, styles


class Curve(NamedTuple):
    """The development scores of runs that differ in their seed alone."""

    steps: Int[np.ndarray, " S"]  # that all S runs scored
    mean: Float[np.ndarray, " S"]  # × 100
    deviation: Float[np.ndarray, " S"]  # with n − 1; 0 for a single run
    best_steps: list[int]  # of each run: the first step at which its best score was measured, without step 0
    best_scores: list[float]
    last_steps: list[int]  # that each run has scored so far

    def to_json(self) -> dict[str, object]:
        """Everything, for JSON."""
        rounded = {name: np.round(getattr(self, name), 4).tolist() for name in ("mean", "deviation", "best_scores")}
        steps = {name: getattr(self, name) for name in ("best_steps", "last_steps")}
        return {"steps": self.steps.tolist(), **rounded, **steps}

    def __str__(self) -> str:
        score = f"{np.mean(self.best_scores):.2f}"
        if len(self.best_steps) == 1:
            return f"best score {score} at step {self.best_steps[0]}"
        steps = ", ".join(map(str, self.best_steps))
        spread = np.std(self.best_scores, ddof=1)
        text = f"best score {score} ± {spread:.2f} at steps {steps}, {np.mean(self.best_steps):.0f} on average"
        if len(set(self.last_steps)) == 1:
            return text
        return f"{text}, of runs with scores up to steps {', '.join(map(str, self.last_steps))}"


def curve(runs: Sequence[Mapping[int, float]]) -> Curve:
    """The curve of a group, of each run's scores by step; step 0 is never the best: no checkpoint is saved there."""
    steps = sorted(set.intersection(*(set(scores) for scores in runs)))
    values = np.array([[scores[step] for step in steps] for scores in runs], np.float64).reshape(len(runs), -1)
    deviation = values.std(axis=0, ddof=1) if len(runs) > 1 else np.zeros(len(steps))
    best_steps = []
    for scores in runs:
        trained = {step: score for step, score in scores.items() if step} or dict(scores)
        best_steps.append(min(trained, key=lambda step: (-trained[step], step)))
    best = [scores[step] for scores, step in zip(runs, best_steps, strict=True)]
    return Curve(np.array(steps, np.int64), values.mean(axis=0), deviation, best_steps, best, list(map(max, runs)))


def convergence(curves: Mapping[str, Curve], title: str, score: str = "Spearman") -> Pictures:
    """Development scores over steps: mean and band of each group; a star where the best scores are, on average."""
    title = f"Development score on {title} while training"
    across = "training step   (star: the mean of the seeds' best steps and scores)"
    with chart(title, across, f"{score} × 100   (higher is better)", (6.6, 4.2)) as (axes, pictures):
        for (name, style), curve in zip(styles(curves).items(), curves.values(), strict=True):
            count, at = len(curve.best_steps), np.mean(curve.best_steps)
            seeds = f", {count} seeds" if count > 1 else ""
            label = f"{shortened(name)}{seeds}: best {np.mean(curve.best_scores):.2f} at step {at:.0f}"
            axes.plot(curve.steps, curve.mean, markersize=3.5, label=label, zorder=3, **style)
            band = (curve.mean - curve.deviation, curve.mean + curve.deviation)
            axes.fill_between(curve.steps, *band, color=style["color"], alpha=0.18, linewidth=0, zorder=2)
            star: dict[str, Any] = {"marker": "*", "s": 110, "edgecolors": "black", "linewidths": 0.7, "zorder": 4}
            axes.scatter([at], [np.mean(curve.best_scores)], color=style["color"], **star)
    return pictures
