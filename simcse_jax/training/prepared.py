"""Prepared corpora as the data of a run: opened, or copied from their bucket first."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from simcse_jax.choices import ROLES
from simcse_jax.config.source_fields import LEFT_OUT, ONE_SOURCE
from simcse_jax.data.corpus.local_copy import local_copy
from simcse_jax.data.corpus.manifest import NAME, Manifest, corpus_path, is_prepared
from simcse_jax.data.corpus.prepared import Prepared
from simcse_jax.data.corpus.prepared_batches import PreparedCorpus, hashed_texts
from simcse_jax.data.examples import prefix_of
from simcse_jax.data.files import READERS
from simcse_jax.data.mixture import Mixture, share_out
from simcse_jax.data.sources import kind_of, same_kind
from simcse_jax.devices import processes
from simcse_jax.errors import UserError
from simcse_jax.host.names import split_sources
from simcse_jax.host.storage import Folder, is_remote
from simcse_jax.huggingface.load import Pretrained
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.objectives.objective import CLASSES, RELATIONS
from simcse_jax.training.data_spec import DataSpec


def open_prepared(data: DataSpec, model: Pretrained, tokenizer: Tokenizer) -> dict[str, PreparedCorpus]:
    """Opens the prepared corpora that `data.train` names, and prints their sizes; {} if it names other data.

    Several are one, whose rows follow one another, unless a batch has rows of one source alone.

    Raises:
      UserError: naming the field that does not fit a corpus, or the file of it that is missing, cut or changed.
    """
    paths = {}
    for name, folder in find_folders(data.train).items():
        if is_remote(folder) and not data.local_cache:
            raise UserError(
                f"config.data.train={name}: every batch needs rows of the whole corpus, which a bucket gives too "
                "slowly; set data.local_cache to a folder on this host's disk, into which it is copied first"
            )
        paths[name] = local_copy(folder, data.local_cache, processes.is_first()) if is_remote(folder) else Path(folder)
    if paths and not data.one_source:
        return {data.train: _open(data, data.train, [*paths.values()], model, tokenizer)}
    return {name: _open(data, name, [path], model, tokenizer) for name, path in paths.items()}


def _open(data: DataSpec, name: str, paths: Sequence[Path], model: Pretrained, tokenizer: Tokenizer) -> PreparedCorpus:
    """The corpus in one folder, or that of several."""
    prepared = Prepared(*paths)
    for path, manifest in zip(paths, prepared.manifests, strict=True):
        check_corpus_fits(data, manifest, model, tokenizer, name if len(paths) == 1 else str(path))
    if not all(same_kind(shard.columns, prepared.num_columns) for shard in prepared.shards):
        if paths[1:] and not data.mixed:
            raise UserError(
                f"config.data.train={name}: these corpora have different columns; set data.mixed=True, or "
                f"data.batching={ONE_SOURCE}"
            )
        if data.no_gaps:
            how, (why, remedy) = "of different columns" if paths[1:] else "prepared with --mixed", data.no_gaps
            raise UserError(
                f"config.data.train={name}, {how}: {why}; prepare its sources of one kind alone, or {remedy}"
            )
    for unavailable, what in (
        (data.scores, "scores, which an objective needs"),
        (data.labels == CLASSES, "classes, which an objective needs"),
        (data.teacher, "text for a teacher"),
    ):
        if unavailable:
            raise UserError(f"config.data.train={name}: a prepared corpus has no {what}; name the files themselves")
    if data.subsample > len(prepared):
        raise UserError(
            f"data.subsample={data.subsample}: must be from 1 to {len(prepared)}, the examples in {name}, or 0 for all"
        )
    if data.subsample and data.several and (data.weights or data.one_source):
        raise UserError(
            f"config.data.subsample={data.subsample}: draws from all rows of {data.train} together; set it to 0, or "
            "leave out data.weights and data.batching"
        )
    processes.say(f"{name}: {describe_kinds(prepared)}, prepared")
    return PreparedCorpus(
        prepared,
        tokenizer.pad_token_id,
        bool(data.labels),
        data.subsample,
        mixture=mix_by_weight(data.weights, split_sources(name), prepared.sizes)
        if data.weights and paths[1:]
        else None,
        texts=compares_texts(data, prepared, name),
        apart=hashed_texts(prepared) if data.keeps_apart else None,
    )


def compares_texts(data: DataSpec, prepared: Prepared, name: str) -> bool:
    """Whether equal texts are left out of the negatives; prints a note if they are not, for want of the texts.

    Raises:
      UserError: where it was asked for, or batches without equal texts were, and the text was not kept.
    """
    why, remedy = f"{name} was prepared without its text, by which texts are compared", "prepare it with --keep-text"
    if data.keeps_apart and not prepared.has_text:
        raise UserError(f"config.data.no_duplicates: {why}; {remedy}, or set it to False")
    if not data.leaves_equal_out(prepared.num_columns):
        return False
    if prepared.has_text:
        return True
    if data.equal_texts == LEFT_OUT:
        raise UserError(f"config.data.equal_texts={LEFT_OUT}: {why}; {remedy}, or set it to negatives")
    processes.say(f"{why}: equal texts are negatives of each other; {remedy}, and they are not")
    return False


def mix_by_weight(weights: Sequence[float], names: Sequence[str], sizes: Sequence[int]) -> Mixture:
    """Shares an epoch of as many rows as the sources have among them by weight, and prints the shares.

    Raises:
      UserError: naming a source whose weight gives it no row.
    """
    mixture = Mixture(share_out(sum(sizes), weights))
    for name, count, times in zip(names, mixture.counts, mixture.times(sizes), strict=True):
        if not count:
            raise UserError(f"config.data.weights: {name} would have no row of an epoch; give it a larger weight")
        processes.say(f"{name}: {count:,} of the {mixture.total:,} rows of an epoch ({times:.3g} times each row)")
    return mixture


def find_folders(name: str) -> dict[str, Folder]:
    """The folders of prepared corpora by name; {} if the name is another source's.

    Raises:
      UserError: when only some sources are corpora, one is not complete, or its bucket cannot be reached.
    """
    names = split_sources(name) if "," in name else [name]
    folders = {path: folder for path in names if (folder := _find_folder(path)) is not None}
    if other := next((path for path in names if folders and path not in folders), None):
        raise UserError(
            f"config.data.train={name}: {next(iter(folders))} is a prepared corpus, {other} is not; prepare that too"
        )
    return folders


def _find_folder(name: str) -> Folder | None:
    """The folder of a prepared corpus; None if the name is another source's."""
    if prefix_of(name) or (is_remote(name) and any(name.lower().endswith(kind) for kind in READERS)):
        return None
    folder = corpus_path(name)
    if is_prepared(folder):
        return folder
    if is_remote(name):
        raise UserError(f"config.data.train={name}: no {NAME} there, so it is not a prepared corpus")
    if folder.is_dir() and next(Path(folder).glob("*data-00000.arrow*"), None):
        raise UserError(f"config.data.train={name}: is not complete; run the command that prepared it again")
    return None


def check_corpus_fits(data: DataSpec, manifest: Manifest, model: Pretrained, tokenizer: Tokenizer, name: str) -> None:
    """Refuses a corpus of another tokenizer or length, and fields that were chosen when it was prepared.

    Raises:
      UserError: naming the field.
    """
    settings = manifest.settings
    if hashlib.sha256(tokenizer.content()).hexdigest() != settings["tokenizer"]:
        raise UserError(
            f"config.data.train={name}: was prepared with another tokenizer than that of "
            f"{model.name}; prepare it again with --model {model.name}"
            + (f" --template {model.template!r:.100}" if model.template else "")
        )
    lengths, built = data.lengths, manifest.lengths
    if lengths[: manifest.columns] != built[: manifest.columns]:
        field = "max_length" if len(set(lengths)) == len(set(built)) == 1 else "lengths"
        raise UserError(
            f"config.data.{field}: {lengths.anchor} tokens of anchors and {lengths.positive} of others, but {name} was "
            f"prepared with {built.anchor} and {built.positive}; set these, or prepare it again with --max-length"
        )
    if data.labels == RELATIONS and not settings["labels"]:
        raise UserError(f"{name}: was prepared without labels; prepare it again with --labels")
    prompts = zip(*data.prompts, strict=True)
    chosen = {  # when it was prepared: the values of fields, and the options of prepare
        "positives": (data.positives, "--positives"),
        "mixed": (data.mixed and not data.several, "--mixed"),
        **{f"columns.{role}": (column, "--columns") for role, column in data.columns.items()},
        **{f"prompts.{role}": (max(texts), "--prompt") for role, texts in zip(ROLES, prompts, strict=False)},
        "augment.name": (data.augment.name if data.augment else "", "--augment"),
    }
    for field, (value, option) in chosen.items():
        if value:
            raise UserError(
                f"config.data.{field}={value!r}: {name} is a prepared corpus; leave this field as it is by default, "
                f"and prepare with {option}, or name the files themselves"
            )


def describe_kinds(prepared: Prepared) -> str:
    """The number of examples of each kind: "3 sentences and 2 triplets"; where some lack negatives, the most."""
    numbers = dict.fromkeys(range(1, prepared.num_columns + 1), 0)
    for shard in prepared.shards:
        numbers[shard.columns] += shard.rows
    rows = " and ".join(f"{count} {kind_of(width)}" for width, count in numbers.items() if count)
    lacking = any(manifest.lacks_negatives for manifest in prepared.manifests)
    return f"{rows}, some with fewer hard negatives" if lacking else rows
