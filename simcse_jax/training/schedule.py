"""The work that is due after each step of a run."""

from typing import NamedTuple


class Due(NamedTuple):
    """The work after a step."""

    log: bool  # write the step's metrics
    measure: bool  # the last layer (`analysis.every`)
    score: bool  # the development pairs (`eval.every`)
    save: bool  # a checkpoint: with every score, and every `checkpoint.keep_every`-th step

    @property
    def pause(self) -> bool:
        """Whether the steps must wait for it."""
        return self.measure or self.score or self.save


class Schedule(NamedTuple):
    """The steps after which something is due. An interval of 0 means never, except for the score at the end."""

    total: int  # steps of the run
    log_every: int
    score_every: int
    measure_every: int
    keep_every: int
    keep_start: bool = False

    def due(self, step: int) -> Due:
        """The work after `step` updates; the start and the end are measured and scored in any case."""
        last, ends = step == self.total, step in (0, self.total)

        def every(steps: int) -> bool:
            return steps > 0 and step % steps == 0

        score = ends or every(self.score_every)
        return Due(
            log=step > 0 and (step == 1 or last or every(self.log_every)),
            measure=self.measure_every > 0 and (ends or every(self.measure_every)),
            score=score,
            save=last or (self.keep_start if step == 0 else score or every(self.keep_every)),
        )
