"""The sentences of the target data: of the train, development and test sets of similarity tasks together."""

from simcse_jax.data.sts import SINGLE_FILES, SUBSETS, files_of, read_pairs
from simcse_jax.errors import UserError
from simcse_jax.evaluation.sts import Pairs, read_task
from simcse_jax.host.storage import local_path


def read_all_splits(data: str) -> dict[str, list[str]]:
    """The sentences of all splits by task, for all tasks that a SentEval folder has.

    BERT-flow's code trains on these in its target setting (`use_full_for_training` in its run_siamese.py): for STS-B
    and SICK-R on the train, development and test sets. For STS12 to STS16, which have a test set alone, it reads the
    same file, `full.txt`, as each of the three, so every sentence is there three times; for a flow, this is three
    passes. The file is not published. Its columns are the sentences, without scores, so we take all pairs of the year's
    files, also those without a score (STS15, STS16). Whitening's code fits on the three sets too.

    Args:
      data: SentEval's `data/downstream`.

    Raises:
      UserError: when there is no such folder, or a split is missing or damaged.
    """
    folder = local_path(data)
    if not data or not folder.is_dir():
        raise UserError(
            f"target_all: {data or 'nothing'} is no folder of SentEval, whose tasks have several sets; take target"
        )
    found = {}
    for task in SUBSETS:
        if inputs := files_of(folder, task):
            found[task] = 3 * [str(row.fields[0]) for file in inputs for row in read_pairs(file, task)]
    for task, files in SINGLE_FILES.items():
        if (folder / files["test"]).is_file():
            splits = {name: read_task(folder, task, name) for name in files}
            if missing := [name for name, pairs in splits.items() if pairs is None]:
                raise UserError(f"target_all: {folder / files[missing[0]]} is missing; take target")
            found[task] = [sentence for pairs in splits.values() if pairs for sentence in _sides(pairs)]
    return found


def _sides(pairs: Pairs) -> list[str]:
    return [*pairs.first, *pairs.second]
