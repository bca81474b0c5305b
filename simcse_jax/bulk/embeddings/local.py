"""Encoding in this process, next to any number of others that do the same."""

import random

from simcse_jax.bulk.embeddings.blocks import is_made, make_block
from simcse_jax.bulk.embeddings.encoder import Encoder
from simcse_jax.bulk.embeddings.manifest import Manifest, complete, finish, missing
from simcse_jax.bulk.embeddings.plan import blocks_of
from simcse_jax.data.corpus.shared_folder import Plan
from simcse_jax.host.progress import Progress
from simcse_jax.host.storage import Folder, is_remote


def encode_here(folder: Folder, plan: Plan, encoder: Encoder) -> Manifest | None:
    """Makes the blocks that are missing, and that no other process is making.

    Args:
      folder: of the embeddings; `corpus.shared_folder.enter` has seen it.
      plan: of the folder.
      encoder: the plan's.

    Returns:
      The manifest; None if other processes are still making blocks, the last of which will write it.
    """
    blocks = blocks_of(folder, plan)
    if manifest := complete(folder, plan, blocks):
        return manifest
    rows = sum(block.rows for block in blocks)
    left, patient, start = missing(folder, blocks), False, 0
    with Progress(rows, done=rows - sum(block.rows for block in left)) as bar:
        while left:
            met = False
            for block in (*left[start:], *left[:start]):
                if met := is_made(folder, block):  # so others were here: many more may be made, see what is left
                    break
                make_block(folder, plan, block, encoder, advance=bar.advance, patient=patient)
            before, left = left, missing(folder, blocks)
            same = left == before and not met
            if same and (patient or not is_remote(folder)):
                return None
            patient = same
            start = random.randrange(len(left)) if left else 0  # elsewhere than they, so as to meet seldom
    return finish(folder, plan, blocks)
