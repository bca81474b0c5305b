"""Local copies of corpora in buckets: every batch needs rows from the whole corpus."""

import os
import shutil
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from simcse_jax.data.corpus import shared_folder
from simcse_jax.data.corpus.manifest import (
    NAME,
    REPAIR,
    File,
    is_prepared,
    is_whole,
    read_manifest,
    write_manifest,
)
from simcse_jax.errors import UserError, reason
from simcse_jax.host.progress import Progress
from simcse_jax.host.storage import Folder, is_remote, local_path, writing

AT_A_TIME = 8  # files
LEFT = 1 << 28  # bytes of disk space to leave free
LOOK_SECONDS = 0.5  # between checks of what this host's other processes have copied


def local_copy(folder: Folder, cache: str, shown: bool = True, texts: bool = False) -> Path:
    """Copies a corpus from a bucket, if not already copied, and returns the copy's folder. Interrupted copies resume.

    All processes of a host share the work. A file is renamed into place once its hash matches the manifest. `texts`
    copies the shards' texts as well, if they were kept.
    """
    if is_remote(cache):
        raise UserError(f"config.data.local_cache={cache}: must be a folder on this host's disk")
    manifest = read_manifest(folder)
    target = local_path(cache) / f"{folder.name}-{manifest.fingerprint[:16]}"
    where = f"config.data.local_cache={cache}"
    with writing(where):
        target.mkdir(parents=True, exist_ok=True)
        files = [file for shard in manifest.shards for file in shard.files[: 1 + texts]]
        missing = [file for file in files if not is_whole(target, [file])]
        begun = target.glob(".shard-*.tmp*")  # by others, or by a killed copy
        needed = sum(file.bytes for file in missing) - sum(shared_folder.size_of(path) or 0 for path in begun) + LEFT
        free = shutil.disk_usage(target).free
    if not missing and is_prepared(target):
        return target
    if missing and needed > free:
        raise UserError(f"{where}: {free / 2**30:.1f} GiB are free, but {folder} needs {needed / 2**30:.1f} GiB there")
    _copy_all(folder, target, files, missing, shown)
    while not is_prepared(target):
        with shared_folder.claimed(target / NAME) as is_free:
            if is_free and not is_prepared(target):
                write_manifest(target, manifest)
                shared_folder.remove_leftovers(target)
        if not is_free:  # another process of this host is writing it
            time.sleep(LOOK_SECONDS / 10)
    return target


def _copy_all(folder: Folder, target: Path, files: Sequence[File], missing: Sequence[File], shown: bool) -> None:
    total = sum(file.bytes for file in files)
    done = total - sum(file.bytes for file in missing)
    stop = threading.Event()
    with Progress(total, "bytes", done=done, shown=shown) as bar, ThreadPoolExecutor(AT_A_TIME) as threads:
        while missing:
            try:
                copied = list(threads.map(lambda file: _copy(folder, target, file, stop), missing))
            except BaseException:  # Ctrl-C, too
                stop.set()
                threads.shutdown(cancel_futures=True)
                raise
            remaining = [file for file in missing if not is_whole(target, [file])]
            bar.advance(sum(file.bytes for file in missing) - sum(file.bytes for file in remaining))
            if remaining and not any(copied):  # another process of this host has them
                time.sleep(LOOK_SECONDS)
            missing = remaining


def _copy(folder: Folder, target: Path, file: File, stop: threading.Event) -> bool:
    """Copies a file unless another process does or `stop` is set; returns whether it did."""
    path, source = target / file.name, folder / file.name
    with shared_folder.claimed(path) as is_free:
        if not is_free or is_whole(target, [file]):
            return False
        # Of a killed copy, whose space is needed, but not of the shard's text, whose name goes on with a t.
        for unfinished in target.glob(f".{file.name}.[!t]*tmp"):
            unfinished.unlink(missing_ok=True)
        temporary = shared_folder.temporary_of(path)
        try:
            with source.open("rb") as opened, open(temporary, "wb") as copy:
                while piece := opened.read(shared_folder.PIECE):
                    if stop.is_set():
                        return False
                    copy.write(piece)
                copy.flush()
                os.fsync(copy.fileno())  # before the rename, so that the right size means a whole file
            if shared_folder.hash_file(temporary) != file.sha256:
                raise UserError(f"{source}: was changed since {NAME} was written; {REPAIR}")
            shared_folder.put_in_place(temporary, path)
        except UserError:
            raise
        except FileNotFoundError:
            raise UserError(
                f"{source}: missing, but {NAME} lists it; run the command that prepared the corpus again"
            ) from None
        except Exception as error:  # an OSError, or an error of the store's client
            raise UserError(f"{source}: cannot be copied to {target}: {reason(error)}") from None
        finally:
            temporary.unlink(missing_ok=True)
    return True
