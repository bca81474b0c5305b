"""The sentences that a space is measured on."""

from typing import NamedTuple

from simcse_jax.data.sentences import read_sentences
from simcse_jax.errors import UserError
from simcse_jax.evaluation import sts
from simcse_jax.storage import local_path


class Data(NamedTuple):
    """What to measure on."""

    sentences: list[str]
    name: str
    pairs: sts.Pairs | None  # the graded pairs that the sentences were taken from, if they were


def read_data(name: str, column: str | None) -> Data:
    """The sentences of a file; of graded pairs the first ones, since the second ones repeat their words.

    Args:
      name: a file of sentences or of graded pairs, or SentEval's folder.
      column: the column of the sentences, where its name is not a usual one.

    Raises:
      UserError: in one line, for any mistake in the data.
    """
    path = local_path(name)
    if not sts.is_graded(path):
        return Data(read_sentences(name, column), path.name, None)
    if column:
        raise UserError(f"--column {column}: of graded pairs the first sentences are taken; leave it out")
    pairs = next(iter(sts.read(name, ["STSBenchmark"])[0].values()))
    return Data(pairs.first, "STS-B test" if path.is_dir() else path.name, pairs)
