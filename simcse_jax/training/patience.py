"""Early stopping: a run ends after some evaluations without improvement of its development score."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

SINCE_BEST = "evaluations_since_best"  # in the lines of `metrics.jsonl` that have a score
ENDED = "ended_at_step"  # in `result.json`, of a run that ended before its last step


@dataclasses.dataclass
class Patience:
    """Counts evaluations after the start, whose checkpoint is not kept and so cannot be the best.

    It depends on the scores alone, and these are in `metrics.jsonl`, which is cut off at the resumed step. So a resumed
    run ends where it would have ended.
    """

    evaluations: int  # `train.patience`; 0: the run does all of its steps
    best: float = -math.inf  # score
    since_best: int = 0  # evaluations after it
    step: int = 0  # of the last evaluation

    def add(self, step: int, score: float) -> None:
        """Counts an evaluation; a score that is equal to the best one is not better."""
        if step:
            better = score > self.best
            self.best, self.since_best = (score, 0) if better else (self.best, self.since_best + 1)
            self.step = step

    def replay(self, lines: Iterable[Mapping[str, Any]]) -> "Patience":
        """Counts the scores in the lines of `metrics.jsonl`, and returns this patience."""
        for line in lines:
            for name in line:
                if name.startswith("eval/"):
                    self.add(line["step"], line[name])
        return self

    @property
    def is_over(self) -> bool:
        """Whether the run ends, or has ended."""
        return 0 < self.evaluations <= self.since_best

    @property
    def line(self) -> dict[str, int]:
        """The number next to a score in `metrics.jsonl`."""
        return {SINCE_BEST: self.since_best} if self.evaluations and self.step else {}

    @property
    def result(self) -> dict[str, int]:
        """The entry in `result.json`."""
        return {ENDED: self.step} if self.is_over else {}

    def __str__(self) -> str:
        """Why the run ended."""
        times = f"{self.since_best} evaluations" if self.since_best > 1 else "one evaluation"
        return f"ended at step {self.step}: no improvement in {times} (train.patience)"
