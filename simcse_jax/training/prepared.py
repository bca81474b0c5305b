"""A prepared corpus as the data of a run: opened, or copied from its bucket first."""

import hashlib
from pathlib import Path

from ml_collections import config_dict

from simcse_jax.config.checks import check_mixed
from simcse_jax.corpus.batches import PreparedCorpus
from simcse_jax.corpus.begun import FILE
from simcse_jax.corpus.local_copy import local_copy
from simcse_jax.corpus.manifest import NAME, Manifest, corpus_path, is_prepared
from simcse_jax.corpus.opened import Prepared
from simcse_jax.data.examples import prefix_of
from simcse_jax.data.files import READERS
from simcse_jax.data.sources import kind_of, same_kind, split_sources
from simcse_jax.data.spans import SPANS
from simcse_jax.devices import processes
from simcse_jax.errors import UserError
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.objectives.registry import needs
from simcse_jax.storage import Folder, is_remote

IN_PREPARE = {"positives": "--positives", "mixed": "--mixed"}  # fields whose choice was made then, and its options


def open_prepared(config: config_dict.ConfigDict, tokenizer: Tokenizer) -> PreparedCorpus | None:
    """The prepared corpus that `data.train` names, and prints its size; None if it names something else.

    Raises:
      UserError: naming the field that does not fit the corpus, or the file of it that is missing, cut or changed.
    """
    data = config.data
    folder = _folder_of(data.train)
    if folder is None:
        return None
    if is_remote(folder):
        if not data.local_cache:
            raise UserError(
                f"config.data.train={data.train}: every batch needs rows of the whole corpus, which a bucket gives too "
                "slowly; set data.local_cache to a folder on this host's disk, into which it is copied first"
            )
        folder = local_copy(folder, data.local_cache, processes.is_first())
    prepared = Prepared(Path(folder))
    manifest = prepared.manifest
    check_same(config, manifest, tokenizer)
    if not all(same_kind(shard.columns, manifest.columns) for shard in manifest.shards):
        otherwise = "prepare its sources of one kind alone"
        check_mixed(config, f"config.data.train={data.train}, prepared with --mixed", otherwise)
    labels = needs(config.objective).labels
    if labels and not manifest.labels:
        raise UserError(f"{data.train}: was prepared without labels; prepare it again with --labels")
    if needs(config.objective).scores:
        raise UserError(
            f"config.data.train={data.train}: a prepared corpus has no scores, which an objective needs; name the "
            "files themselves"
        )
    if needs(config.objective).teacher:
        raise UserError(
            f"config.data.train={data.train}: a prepared corpus has no text, which a teacher reads; name the files "
            "themselves"
        )
    if data.subsample > len(prepared):
        raise UserError(
            f"data.subsample={data.subsample}: must be from 1 to {len(prepared)}, the examples in {data.train}, or 0 "
            "for all"
        )
    processes.say(f"{data.train}: {kinds(manifest)}, prepared")
    return PreparedCorpus(prepared, tokenizer.pad_token_id, labels, data.subsample)


def _folder_of(name: str) -> Folder | None:
    """The folder of a prepared corpus; None if the name is another source's.

    Raises:
      UserError: when the corpus is not complete, or its bucket cannot be reached.
    """
    if prefix_of(name) or (is_remote(name) and any(name.lower().endswith(kind) for kind in READERS)):
        return None
    for part in split_sources(name) if "," in name else ():
        if not is_remote(part) and is_prepared(corpus_path(part)):
            raise UserError(
                f"config.data.train={name}: {part} is a prepared corpus, which is trained on alone; prepare the "
                "sources of both together"
            )
    folder = corpus_path(name)
    if is_prepared(folder):
        return folder
    if (folder / FILE).is_file():
        raise UserError(f"config.data.train={name}: is not complete; give the command again that prepared it")
    if is_remote(name):
        raise UserError(f"config.data.train={name}: no {NAME} there, so it is not a prepared corpus")
    return None


def check_same(config: config_dict.ConfigDict, manifest: Manifest, tokenizer: Tokenizer) -> None:
    """Refuses a corpus of another tokenizer or length, and fields that were chosen when it was prepared.

    Raises:
      UserError: naming the field.
    """
    data, key = config.data, manifest.key
    if hashlib.sha256(tokenizer.content()).hexdigest() != key["tokenizer"]:
        raise UserError(
            f"config.data.train={data.train}: was prepared with another tokenizer than that of "
            f"{config.model.init_from}; prepare it again with --model {config.model.init_from}"
        )
    if data.max_length != key["max_length"]:
        raise UserError(
            f"config.data.max_length={data.max_length}: {data.train} was prepared with {key['max_length']}; set it to "
            f"that, or prepare the corpus again with --max-length {data.max_length}"
        )
    set_fields = {field: (data[field], option) for field, option in IN_PREPARE.items() if data[field]}
    set_fields |= {f"columns.{role}": (name, "--columns") for role, name in data.columns.items() if name}
    if data.augment.name:
        set_fields["augment.name"] = (data.augment.name, "--augment")
    for field, value in (("positives", SPANS), ("augment.name", "mlm")):
        if value in set_fields.get(field, ()):
            raise UserError(
                f"config.data.{field}={value!r}: needs the text in memory, which a prepared corpus such as "
                f"{data.train} cannot give; name the files themselves, or leave this field as it is by default"
            )
    for field, (value, option) in set_fields.items():
        raise UserError(
            f"config.data.{field}={value!r}: {data.train} is a prepared corpus, with no other columns and no text; "
            f"prepare it with {option}, and leave this field as it is by default"
        )


def kinds(manifest: Manifest) -> str:
    """The number of examples of each kind: "3 sentences and 2 triplets"; where some lack negatives, the most."""
    numbers = {width: 0 for width in range(1, manifest.columns + 1)}
    for shard in manifest.shards:
        numbers[shard.columns] += shard.rows
    found = " and ".join(f"{count} {kind_of(width)}" for width, count in numbers.items() if count)
    return f"{found}, some with fewer hard negatives" if manifest.lacking else found
