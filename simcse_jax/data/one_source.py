"""Batches that each come from one of several sources: the source of each step, and the programs for their shapes."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from simcse_jax.data.corpora import AnyBatches, AnyCorpus, MixedCorpus, Programs
from simcse_jax.data.mixture import Mixture, share_out
from simcse_jax.errors import UserError

KEPT = 2  # epochs whose order of sources is kept


@dataclasses.dataclass(frozen=True, eq=False)
class OneSource(AnyCorpus):
    """The sources of a run whose batches have rows of one source each."""

    names: tuple[str, ...]
    parts: tuple[MixedCorpus, ...]
    weights: tuple[float, ...] = ()  # of the sources; () for weights by their number of batches

    def mixture(self, batch_size: int) -> Mixture:
        """The sources' turns in an epoch, a batch each; refuses sources that would have none."""
        turns = [part.steps_per_epoch(batch_size) for part in self.parts]
        for name, part, batches in zip(self.names, self.parts, turns, strict=True):
            if not batches:
                raise UserError(
                    f"{name}: {part.num_examples} examples are fewer than a batch of this source alone; set "
                    f"train.batch_size to {max(part.num_examples, 2)} or less, or data.batching=mixed"
                )
        counts = share_out(sum(turns), self.weights) if self.weights else tuple(turns)
        for name, count in zip(self.names, counts, strict=True):
            if not count:
                raise UserError(
                    f"config.data.weights: {name} would have none of the {sum(turns)} batches of an epoch; give it a "
                    "larger weight, or set a smaller train.batch_size"
                )
        return Mixture(counts)

    def batches(self, batch_size: int, seed: int) -> "OneSourceBatches":
        """The batches of a run."""
        by_source = [part.batches(batch_size, seed) for part in self.parts]
        return OneSourceBatches(self, by_source, self.mixture(batch_size), batch_size, seed)


class OneSourceBatches(AnyBatches):
    """The batches of a run, each of one source."""

    def __init__(self, corpus: OneSource, parts: Sequence[AnyBatches], mixture: Mixture, batch_size: int, seed: int):
        self.corpus, self.batch_size = corpus, batch_size
        self._parts, self._mixture = parts, mixture
        self._in_order = functools.lru_cache(KEPT)(functools.partial(mixture.in_order, seed))  # of this object alone

    def rows(self, step: int, part: slice) -> dict[str, np.ndarray]:
        """See `AnyBatches`; columns and lengths are those of the batch's source."""
        source, number = self._turn(step)
        return self._parts[source].rows(number, part)

    def is_reading(self, step: int) -> bool:
        """See `AnyBatches`."""
        source, number = self._turn(step)
        return self._parts[source].is_reading(number)

    def tokens(self, step: int) -> int:
        """See `AnyBatches`."""
        source, number = self._turn(step)
        return self._parts[source].tokens(number)

    def source(self, step: int) -> int:
        """The source of a step."""
        return self._turn(step)[0]

    def sizes(self, steps: int, devices: int, chunk_size: int = 0, *, unpad: bool = True) -> Programs:
        """See `AnyBatches`; sources with batches of the same shape share programs, at most two a shape."""
        turns = self._turns(steps)
        sizes = {
            place: batches.sizes(turns[place], devices, chunk_size) if unpad else None
            for place, batches in enumerate(self._parts)
            if turns[place]
        }
        tokens: list[tuple[int, ...]] = []
        sources: list[int] = []
        program: dict[tuple[int, bool], int] = {}  # of a source's steps that fit the small one, and of the others

        def add(places: list[int], found: list[tuple[int, ...]], is_small: bool) -> None:
            """A program for these sources that has room for each of the sizes found; () is room for all."""
            program.update({(place, is_small): len(tokens) for place in places})
            tokens.append(tuple(map(max, *found, found[0])) if all(found) else ())
            sources.append(places[0])

        for shape in dict.fromkeys(part.shape for part in self.corpus.parts):
            places = [place for place in sizes if self.corpus.parts[place].shape == shape]
            of_each = [() if (size := sizes[place]) is None else size.tokens for place in places]
            if smalls := [size[0] for size in of_each if len(size) > 1 and size[0]]:
                add(places, smalls, True)
            if places:  # the last program of a source has places for any of its batches
                add(places, [size[-1] if size else () for size in of_each], False)

        def of(step: int) -> int:
            source, number = self._turn(step)
            size = sizes[source]
            is_small = size is not None and len(size.tokens) > 1 and bool(size.tokens[0]) and size.of(number) == 0
            return program[source, is_small]

        return Programs(tuple(tokens), of, tuple(sources))

    def repeated(self) -> list[str]:
        """See `AnyBatches`."""
        by_source = zip(self.corpus.names, self._parts, strict=True)
        return [f"{name}: {line}" for name, batches in by_source for line in batches.repeated()]

    def _turn(self, step: int) -> tuple[int, int]:
        """The source of a step, and which of the source's own steps it is."""
        epoch, place = divmod(step, self._mixture.total)
        source, number = self._in_order(epoch)
        return int(source[place]), int(number[place])

    def _turns(self, steps: int) -> list[int]:
        """How many of the first steps each source has."""
        epochs, rest = divmod(steps, self._mixture.total)
        counts = np.array(self._mixture.counts)
        of = self._in_order(epochs)[0][:rest]
        return (epochs * counts + np.bincount(of, minlength=len(counts))).tolist()
