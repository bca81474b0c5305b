"""Downloads models from the hub and pushes to it, with huggingface_hub; `HF_ENDPOINT` selects the hub."""

import contextlib
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from simcse_jax.errors import UserError, reason

NAME = re.compile(r"[\w-][\w.-]*(?:/[\w.-]+)?")
REVISION = re.compile(r"\w[\w./-]*")
LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"


def split_name(name: str) -> tuple[str, str | None] | None:
    """`OWNER/NAME@REVISION` to the id and the branch, tag or commit (None if there is no @).

    None for a name that cannot be a hub id.
    """
    repository, at, revision = name.partition("@")
    if not NAME.fullmatch(repository) or (at and not REVISION.fullmatch(revision)):
        return None
    return repository, revision or None


def download(repository: str, revision: str | None, patterns: Sequence[str]) -> Path:
    """Downloads a hub model's files that match, unless the cache has them, and returns their local folder.

    After a failure, complete files stay in the client's cache.
    """
    from huggingface_hub import snapshot_download

    with _explained("the download from the hub failed"):
        return Path(snapshot_download(repository, revision=revision, allow_patterns=list(patterns)))


def check_push(repository: str, private: bool, revision: str | None) -> None:
    """Checks, without changing anything, that a push can succeed: name, token, owner, an existing repository."""
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.errors import RepositoryNotFoundError

    where, public = f"--push-to-hub {repository}", False
    if split_name(f"{repository}@{revision or 'main'}") is None or "/" not in repository:
        raise UserError(f"{where}: must be OWNER/NAME, and --revision the name of a branch")
    if get_token() is None:
        raise UserError(f"{where}: there is no token; {LOG_IN}")
    with _explained(where):
        me = HfApi().whoami()
    names = [me.get("name", ""), *(organization.get("name", "") for organization in me.get("orgs", []))]
    if repository.partition("/")[0].lower() not in [name.lower() for name in names]:
        raise UserError(f"{where}: the token belongs to {names[0]}, who may push to {', '.join(names)}")
    with _explained(where), contextlib.suppress(RepositoryNotFoundError):
        public = HfApi().model_info(repository).private is False
    if public and private:
        raise UserError(f"{where}: exists and is public; make it private on the hub first, or leave out --private")


def push(folder: Path, repository: str, private: bool, revision: str | None) -> str:
    """Uploads a folder's files as one commit, all or none, and returns its address.

    Creates repository and branch if needed. Other files of earlier commits stay. See `check_push` for the arguments.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    with _explained(f"--push-to-hub {repository}", then=f"; the export is in {folder}"):
        # Without --private the settings of an organization decide.
        api.create_repo(repository, private=private or None, exist_ok=True)
        if revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
        message = "Upload a model trained with simcse_jax"
        commit = api.upload_folder(repo_id=repository, folder_path=folder, revision=revision, commit_message=message)
        return commit.commit_url


@contextlib.contextmanager
def _explained(where: str, then: str = "") -> Iterator[None]:
    """Reports a failure of the hub's client once; the client, which reports every retry, is silent."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    logger = logging.getLogger("huggingface_hub")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    except GatedRepoError:
        raise UserError(f"{where}: access is granted by its owner; request it there, and {LOG_IN}") from None
    except RepositoryNotFoundError:
        raise UserError(f"{where}: there is no such model, or it is private: check the name, or {LOG_IN}") from None
    except Exception as error:  # of dozens of kinds, which say what they are
        raise UserError(f"{where}: {reason(error)}{then}") from None
    finally:
        logger.setLevel(before)
