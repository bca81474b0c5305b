"""A copy of a corpus in a bucket, on a disk of this host: every batch needs rows of the whole corpus."""

import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from simcse_jax.corpus.claims import claimed
from simcse_jax.corpus.making import PIECE, hash_file
from simcse_jax.corpus.manifest import NAME, Manifest, Shard, check_sizes, is_prepared, read_manifest, write_manifest
from simcse_jax.errors import UserError, reason
from simcse_jax.progress import Progress
from simcse_jax.storage import Folder, local_path

AT_A_TIME = 8  # shards
LEFT = 1 << 28  # bytes of the disk that stay free
LOOK_SECONDS = 0.5  # between two looks at what other processes of this host copy


def local_copy(folder: Folder, cache: str, shown: bool = True) -> Path:
    """Copies a corpus from a bucket, unless it was copied before; a copy that was stopped goes on.

    All processes of a host share the work. A shard gets its name once its hash is that of the manifest.

    Args:
      folder: of the corpus.
      cache: the folder for copies, `data.local_cache`.
      shown: whether progress is shown.

    Returns:
      The copy's folder.

    Raises:
      UserError: when there is no room, or a shard is missing, or was changed.
    """
    manifest = read_manifest(folder)
    target = local_path(cache) / f"{folder.name}-{manifest.fingerprint[:16]}"
    if is_prepared(target):
        check_sizes(target, manifest.shards)
        return target
    where = f"config.data.local_cache={cache}"
    try:
        target.mkdir(parents=True, exist_ok=True)
        missing = [shard for shard in manifest.shards if not _is_there(target, shard)]
        needed, free = sum(shard.bytes for shard in missing) + LEFT, shutil.disk_usage(target).free
    except OSError as error:
        raise UserError(f"{where}: cannot be written: {error.strerror or reason(error)}") from None
    if needed > free:
        raise UserError(f"{where}: {free / 2**30:.1f} GiB are free, but {folder} needs {needed / 2**30:.1f} GiB there")
    _copy_all(folder, target, manifest, missing, shown)
    write_manifest(target, manifest)
    return target


def _copy_all(folder: Folder, target: Path, manifest: Manifest, missing: Sequence[Shard], shown: bool) -> None:
    total = sum(shard.bytes for shard in manifest.shards)
    done = total - sum(shard.bytes for shard in missing)
    with Progress(total, "bytes", done=done, shown=shown) as bar, ThreadPoolExecutor(AT_A_TIME) as threads:
        while missing:
            try:
                copied = list(threads.map(lambda shard: _copy(folder, target, shard), missing))
            except BaseException:
                threads.shutdown(cancel_futures=True)
                raise
            left = [shard for shard in missing if not _is_there(target, shard)]
            bar.advance(sum(shard.bytes for shard in missing) - sum(shard.bytes for shard in left))
            if left and not any(copied):  # another process of this host has them
                time.sleep(LOOK_SECONDS)
            missing = left


def _is_there(target: Path, shard: Shard) -> bool:
    path = target / shard.file
    return path.is_file() and path.stat().st_size == shard.bytes


def _copy(folder: Folder, target: Path, shard: Shard) -> bool:
    """Copies a shard, unless another process does; returns whether it did."""
    path, source = target / shard.file, folder / shard.file
    with claimed(path) as mine:
        if not mine or _is_there(target, shard):
            return False
        temporary = path.with_name(f".{path.name}.tmp")
        try:
            with source.open("rb") as file, open(temporary, "wb") as copy:
                shutil.copyfileobj(file, copy, PIECE)
            if hash_file(temporary) != shard.sha256:
                raise UserError(f"{source}: was changed since {NAME} was written; prepare the corpus again")
            temporary.replace(path)
        except UserError:
            raise
        except FileNotFoundError:
            raise UserError(f"{source}: missing, but {NAME} lists it; prepare the corpus again") from None
        except Exception as error:  # an OSError, or an error of the store's client
            raise UserError(f"{source}: cannot be copied to {target}: {reason(error)}") from None
        finally:
            temporary.unlink(missing_ok=True)
    return True
