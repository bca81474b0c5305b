"""Whether a source has anything to train on: found before hours of tokenizing, mostly from its first rows."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from simcse_jax.data.corpus.items import Items
from simcse_jax.data.documents import REACH
from simcse_jax.data.examples import nothing_in
from simcse_jax.errors import UserError


def check_usable(key: Mapping[str, Any]) -> None:
    """Reads each source as far as its first row that is used, and where documents count, as far as the second one.

    Args:
      key: of the corpus, see `plan.make_plan`.

    Raises:
      UserError: naming the source of which no row is used, or which has no blank line between its sentences.
    """
    for number, source in enumerate(key["sources"]):
        _check(key, number, source["name"])


def _check(key: Mapping[str, Any], number: int, source: str) -> None:
    positives = key["positives"]
    needed = 2 if positives in REACH else 0  # documents, where sentences are in some
    left_out: Counter[str] = Counter()
    used, documents, inside = False, 0, False
    for item in Items(key, number, None):
        blank = item.left_out == "blank"
        documents += not blank and not inside
        inside = not blank
        used = used or not item.left_out
        if used and documents >= needed:
            return
        left_out[item.left_out] += 1
    if needed and documents == 1:
        raise UserError(
            f"{source}: no blank line between sentences, so they may be shuffled; "
            f"--positives {positives} needs documents with a blank line between them"
        )
    if left_out["unused"]:
        what = "no document has two sentences" if needed else f"no pair is labelled {positives}"
        raise UserError(f"{source}: {what}; choose another --positives")
    raise nothing_in(source, left_out["blank"], left_out["unlabelled"])
