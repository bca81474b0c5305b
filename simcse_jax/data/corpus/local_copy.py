"""Local copies of corpora in buckets: every batch needs rows from the whole corpus."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from filelock import FileLock

from simcse_jax.data.corpus.manifest import NAME, REPAIR, Shard, is_prepared, read_manifest, write_manifest
from simcse_jax.data.identity import size_of
from simcse_jax.errors import UserError, reason
from simcse_jax.host.progress import Progress
from simcse_jax.host.storage import Folder, is_remote, local_path, replacing_file, writing

AT_A_TIME = 8  # files
PIECE = 1 << 23  # bytes read at a time


def local_copy(folder: Folder, cache: str, shown: bool = True) -> Path:
    """Copies a corpus from a bucket, if not already copied, and returns the copy's folder.

    A host's processes wait for the one that copies. An interrupted copy goes on with the files that are missing.
    """
    if is_remote(cache):
        raise UserError(f"config.data.local_cache={cache}: must be a folder on this host's disk")
    manifest = read_manifest(folder)
    target = local_path(cache) / f"{folder.name}-{manifest.fingerprint[:16]}"
    with writing(f"config.data.local_cache={cache}"):
        target.mkdir(parents=True, exist_ok=True)
        with FileLock(target / ".lock"):
            missing = [shard for shard in manifest.shards if size_of(target / shard.file) != shard.bytes]
            total = sum(shard.bytes for shard in missing)
            with Progress(total, "bytes", shown=shown) as bar, ThreadPoolExecutor(AT_A_TIME) as threads:
                for shard in threads.map(lambda shard: _copy(folder, target, shard), missing):
                    bar.advance(shard.bytes)
            if not is_prepared(target):
                write_manifest(target, manifest)
    return target


def _copy(folder: Folder, target: Path, shard: Shard) -> Shard:
    source, digest = folder / shard.file, hashlib.sha256()
    try:
        with source.open("rb") as opened, replacing_file(target / shard.file) as copy:
            while piece := opened.read(PIECE):
                digest.update(piece)
                copy.write(piece)
            if digest.hexdigest() != shard.sha256:
                raise UserError(f"{source}: was changed since {NAME} was written; {REPAIR}")
    except UserError:
        raise
    except Exception as error:  # an OSError, or an error of the store's client
        raise UserError(f"{source}: cannot be copied to {target}: {reason(error)}") from None
    return shard
