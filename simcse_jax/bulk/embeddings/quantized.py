"""How the embeddings of a folder are stored, if not as numbers: found once, and the same in all of its blocks."""

import itertools
import time
from collections.abc import Iterator

from simcse_jax.bulk.embeddings.encoder import Encoder
from simcse_jax.bulk.embeddings.plan import fingerprint
from simcse_jax.data.corpus.shared_folder import Plan, claimed, read_sealed, write_sealed
from simcse_jax.data.sentences import SentenceFile
from simcse_jax.encoding.quantization import PACKED, SCALAR, Quantization
from simcse_jax.errors import UserError
from simcse_jax.host.hidden import RANGES
from simcse_jax.host.storage import Folder

LOOK_SECONDS = 0.5  # between two looks at what another process finds


def quantization_of(folder: Folder, plan: Plan, encoder: Encoder) -> Quantization | None:
    """What the folder's `.quantization.json` says; the first process that needs it writes it, from the first rows.

    Args:
      folder: of the embeddings.
      plan: of the folder.
      encoder: the plan's.

    Returns:
      None: the embeddings are numbers.
    """
    if plan.key["--output-dtype"] not in (*SCALAR, *PACKED):
        return None
    path, mark = plan.own(folder, RANGES), fingerprint(plan)
    while (found := read_sealed(path)) is None:
        with claimed(folder / RANGES, patient=True) as mine:
            if mine and read_sealed(path) is None:
                quantization = encoder.quantization(_sentences(plan))
                assert quantization is not None
                write_sealed(path, {"plan": mark, **quantization.content()})
        if not mine:
            time.sleep(LOOK_SECONDS)
    if found.get("plan") != mark:
        raise UserError(f"{path}: is another command's; remove it, and give the command again")
    return Quantization.from_content(found, str(path))


def _sentences(plan: Plan) -> Iterator[str]:
    """Those of all sources, in their order."""
    sources = plan.key["sources"]
    return itertools.chain.from_iterable(SentenceFile(each["name"], each["column"]).read() for each in sources)
