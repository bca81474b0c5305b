"""Downloads models from the hub and pushes to it, with huggingface_hub; `HF_ENDPOINT` selects the hub."""

import contextlib
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simcse_jax.errors import UserError, reason

if TYPE_CHECKING:
    from huggingface_hub import HfApi

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

    with _explained("the download from the hub failed", revision):
        return Path(snapshot_download(repository, revision=revision, allow_patterns=list(patterns)))


def check_push(repository: str, private: bool, revision: str | None) -> None:
    """Checks, without changing anything, that a push can succeed: name, token, owner, an existing repository."""
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.constants import HF_HUB_OFFLINE
    from huggingface_hub.errors import RepositoryNotFoundError

    where, public = f"--push-to-hub {repository}", False
    _check_names(repository, revision, where)
    if HF_HUB_OFFLINE:
        raise UserError(f"{where}: HF_HUB_OFFLINE is set, so nothing can be pushed; unset it")
    token = get_token()
    if token is None:
        raise UserError(f"{where}: there is no token; {LOG_IN}")
    api = HfApi(token=token)
    _check_owner(api, repository, where)
    with _explained(where), contextlib.suppress(RepositoryNotFoundError):
        public = api.model_info(repository).private is False
    if public and private:
        raise UserError(f"{where}: exists and is public; make it private on the hub first, or leave out --private")


def _check_names(repository: str, revision: str | None, where: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise UserError(f"{where}: not a valid model name: {reason(error)}") from None
    if repository.count("/") != 1:
        raise UserError(f"{where}: must be OWNER/NAME")
    if revision is not None and not REVISION.fullmatch(revision):
        raise UserError(f"--revision {revision}: not a valid branch name")


def _check_owner(api: "HfApi", repository: str, where: str) -> None:
    """Refuses a token that may not write to the owner's repositories."""
    with _explained(where):
        me = api.whoami()
    owner = repository.partition("/")[0]
    names = [me.get("name", ""), *(organization.get("name", "") for organization in me.get("orgs", []))]
    if owner.lower() not in [name.lower() for name in names]:
        raise UserError(f"{where}: the token belongs to {names[0]}, who may not push to {owner}; use {names[0]}/NAME")
    if me.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise UserError(f"{where}: the token is read-only; create one with write access")


def push(folder: Path, repository: str, private: bool, revision: str | None) -> str:
    """Uploads a folder's files as one commit, all or none, and returns its address.

    Creates repository and branch if needed. Other files of earlier commits stay. See `check_push` for the arguments.
    """
    from huggingface_hub import HfApi, get_token

    api = HfApi(token=get_token())
    with _explained(f"--push-to-hub {repository}", then=f"; the export is in {folder}"):
        # Without --private the settings of an organization decide.
        api.create_repo(repository, private=private or None, exist_ok=True)
        if revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
        message = "Upload a model trained with simcse_jax"
        commit = api.upload_folder(repo_id=repository, folder_path=folder, revision=revision, commit_message=message)
        return commit.commit_url


@contextlib.contextmanager
def _explained(where: str, revision: str | None = None, then: str = "") -> Iterator[None]:
    """Reports a failure of the hub's client once; the client, which reports every retry, is silent."""
    logger = logging.getLogger("huggingface_hub")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    except Exception as error:  # of dozens of kinds; to us they mean the same
        raise UserError(f"{where}: {_explain(error, revision)}{then}") from None
    finally:
        logger.setLevel(before)


def _explain(error: Exception, revision: str | None = None) -> str:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    chain: list[BaseException] = [error]
    while (before := chain[-1].__cause__ or chain[-1].__context__) is not None and before not in chain:
        chain.append(before)
    if isinstance(error, RevisionNotFoundError):
        return f"it has no revision {revision}"
    if isinstance(error, GatedRepoError):
        return f"access is granted by its owner; request it on the model's page and {LOG_IN}"
    responses = (getattr(link, "response", None) for link in chain)
    status = next((response.status_code for response in responses if response is not None), None)
    if isinstance(error, RepositoryNotFoundError):
        return f"there is no such model, or it is private: check the name, and {LOG_IN}"
    if status == 401:
        return f"the token is not valid; {LOG_IN}"
    if status == 403:
        return f"the token has no access to it; {LOG_IN}"
    if status is not None and status >= 500:
        return f"the hub answered with status {status}; try again later"
    kinds = {kind.__name__ for link in chain for kind in type(link).__mro__}
    if "OfflineModeIsEnabled" in kinds:
        return "it is not in the cache, and HF_HUB_OFFLINE is set"
    if kinds & {"ConnectError", "TimeoutException", "ConnectionError"}:
        return "the hub cannot be reached; check the connection, the proxy and HF_ENDPOINT"
    if "TransportError" in kinds:
        return f"the connection broke ({reason(error)}); try again, complete files are kept"
    return reason(error)
