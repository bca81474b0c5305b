"""Prepared corpora as the data of a run: opened, or copied from their bucket first."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from simcse_jax.choices import ROLES
from simcse_jax.config.source_fields import LEFT_OUT, ONE_SOURCE
from simcse_jax.data.corpus.local_copy import local_copy
from simcse_jax.data.corpus.manifest import NAME, Manifest, corpus_path, is_prepared, read_manifest
from simcse_jax.data.corpus.prepared import Prepared
from simcse_jax.data.corpus.prepared_batches import PreparedCorpus, hashed_texts
from simcse_jax.data.examples import prefix_of
from simcse_jax.data.files import READERS
from simcse_jax.data.mixture import Mixture, share_out
from simcse_jax.data.sources import kind_of, same_kind
from simcse_jax.devices import processes
from simcse_jax.errors import UserError
from simcse_jax.host.hidden import PLAN
from simcse_jax.host.names import split_sources
from simcse_jax.host.storage import Folder, is_remote
from simcse_jax.huggingface.load import Pretrained
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.training.data_spec import DataSpec


def open_prepared(data: DataSpec, model: Pretrained, tokenizer: Tokenizer) -> dict[str, PreparedCorpus]:
    """Opens the prepared corpora that `data.train` names, and prints their sizes; {} if it names other data.

    Several are one, whose rows follow one another, unless a batch has rows of one source alone.

    Raises:
      UserError: naming the field that does not fit a corpus, or the file of it that is missing, cut or changed.
    """
    folders = find_folders(data.train)
    paths = {}
    for name, folder in folders.items():
        if is_remote(folder) and not data.local_cache:
            raise UserError(
                f"config.data.train={name}: every batch needs rows of the whole corpus, which a bucket gives too "
                "slowly; set data.local_cache to a folder on this host's disk, into which it is copied first"
            )
    remote = {name: folder for name, folder in folders.items() if is_remote(folder)}
    columns = {name: read_manifest(folder).columns for name, folder in folders.items()} if remote else {}
    for name, folder in folders.items():
        if name in remote:
            most = (
                columns[name] if data.one_source else max(columns.values())
            )  # where rows lack columns, they are read too
            wanted = data.keeps_apart or data.leaves_equal_out(most)
            paths[name] = local_copy(folder, data.local_cache, processes.is_first(), texts=wanted)
        else:
            paths[name] = Path(folder)
    if paths and not data.one_source:
        first, *other_paths = paths.values()
        if other_paths:
            check_compatible({name: read_manifest(path) for name, path in paths.items()})
        return {data.train: _open(data, data.train, [first, *other_paths], model, tokenizer)}
    return {name: _open(data, name, [path], model, tokenizer) for name, path in paths.items()}


def _open(data: DataSpec, name: str, paths: Sequence[Path], model: Pretrained, tokenizer: Tokenizer) -> PreparedCorpus:
    """The corpus in one folder, or that of several."""
    prepared = Prepared(*paths)
    manifest = prepared.manifest
    for path in paths:  # every one: two may agree where a third differs
        check_corpus_fits(data, read_manifest(path), model, tokenizer, name)
    if not all(same_kind(shard.columns, manifest.columns) for shard in manifest.shards):
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
    if data.labels and not manifest.labels:
        raise UserError(f"{name}: was prepared without labels; prepare it again with --labels")
    if data.scores:
        raise UserError(
            f"config.data.train={name}: a prepared corpus has no scores, which an objective needs; name the "
            "files themselves"
        )
    if data.teacher:
        raise UserError(
            f"config.data.train={name}: a prepared corpus has no text, which a teacher reads; name the files themselves"
        )
    if data.subsample > len(prepared):
        raise UserError(
            f"data.subsample={data.subsample}: must be from 1 to {len(prepared)}, the examples in {name}, or 0 for all"
        )
    if data.subsample and data.several and (data.weights or data.one_source):
        raise UserError(
            f"config.data.subsample={data.subsample}: draws from all rows of {data.train} together; set it to 0, or "
            "leave out data.weights and data.batching"
        )
    processes.say(f"{name}: {describe_kinds(manifest)}, prepared")
    return PreparedCorpus(
        prepared,
        tokenizer.pad_token_id,
        data.labels,
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
    if (folder / PLAN).is_file():
        raise UserError(f"config.data.train={name}: is not complete; run the command that prepared it again")
    if is_remote(name):
        raise UserError(f"config.data.train={name}: no {NAME} there, so it is not a prepared corpus")
    return None


def check_compatible(manifests: Mapping[str, Manifest]) -> None:
    """Refuses corpora whose rows cannot be in one batch.

    Raises:
      UserError: naming two of them and what differs.
    """
    (first, first_manifest), *other_manifests = manifests.items()
    for name, other in other_manifests:
        columns = min(first_manifest.columns, other.columns)
        pairs = {
            "--model": (
                (first_manifest.key["tokenizer"], first_manifest.token_bytes),
                (other.key["tokenizer"], other.token_bytes),
            ),
            "--max-length": (first_manifest.lengths[:columns], other.lengths[:columns]),
            "--labels": (first_manifest.labels, other.labels),
        }
        for option in (option for option, (ours, theirs) in pairs.items() if ours != theirs):
            apart = f", or set data.batching={ONE_SOURCE}" if option == "--labels" else ""
            raise UserError(
                f"config.data.train: {first} and {name} were prepared with another {option} each; prepare them "
                f"alike{apart}"
            )


def check_corpus_fits(data: DataSpec, manifest: Manifest, model: Pretrained, tokenizer: Tokenizer, name: str) -> None:
    """Refuses a corpus of another tokenizer or length, and fields that were chosen when it was prepared.

    Raises:
      UserError: naming the field.
    """
    if hashlib.sha256(tokenizer.content()).hexdigest() != manifest.key["tokenizer"]:
        raise UserError(
            f"config.data.train={name}: was prepared with another tokenizer than that of "
            f"{model.name}; prepare it again with --model {model.name}"
            + (f" --template {model.template!r:.100}" if model.template else "")
        )
    lengths, built = data.lengths, manifest.lengths
    if lengths[: manifest.columns] != built[: manifest.columns]:
        if len(set(lengths)) == len(set(built)) == 1:
            raise UserError(
                f"config.data.max_length={data.max_length}: {name} was prepared with {built.anchor}; set it "
                f"to that, or prepare the corpus again with --max-length {data.max_length}"
            )
        raise UserError(
            f"config.data.lengths: {lengths.anchor} tokens of anchors and {lengths.positive} of others, but {name} was "
            f"prepared with {built.anchor} and {built.positive}; set data.lengths.anchor and data.lengths.positive "
            f"to these, or prepare the corpus again with --max-length {lengths.anchor} {lengths.positive}"
        )
    augmentation = data.augment.name if data.augment else ""
    if data.spans or augmentation == "mlm":
        field, chosen = ("positives", data.positives) if data.spans else ("augment.name", augmentation)
        raise UserError(
            f"config.data.{field}={chosen!r}: needs the text in memory, which a prepared corpus such as "
            f"{name} cannot give; name the files themselves, or leave this field as it is by default"
        )
    prompts = zip(*data.prompts, strict=True)
    options = {  # of fields that were chosen when it was prepared: their values, and the options of prepare
        "positives": (data.positives, "--positives"),
        "mixed": (data.mixed and not data.several, "--mixed"),
        **{f"columns.{role}": (column, "--columns") for role, column in data.columns.items()},
        **{f"prompts.{role}": (max(texts), "--prompt") for role, texts in zip(ROLES, prompts, strict=False)},
        "augment.name": (augmentation, "--augment"),
    }
    for field, (value, option) in options.items():
        if value:
            raise UserError(
                f"config.data.{field}={value!r}: {name} is a prepared corpus, with no other columns and no text; "
                f"prepare it with {option}, and leave this field as it is by default"
            )


def describe_kinds(manifest: Manifest) -> str:
    """The number of examples of each kind: "3 sentences and 2 triplets"; where some lack negatives, the most."""
    numbers = {width: 0 for width in range(1, manifest.columns + 1)}
    for shard in manifest.shards:
        numbers[shard.columns] += shard.rows
    rows = " and ".join(f"{count} {kind_of(width)}" for width, count in numbers.items() if count)
    return f"{rows}, some with fewer hard negatives" if manifest.lacking else rows
