"""Uploads of a task: `files:` and `repos:` of this machine, packed and sent as `dstack apply` does.

dstack's own code packs; plain REST sends, because older servers refuse dstack's typed client.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from steno.engine.errors import TaskInvalid
from steno.engine.providers.dstack.client import Client
from steno.engine.providers.dstack.lenient import at

if TYPE_CHECKING:
    from dstack._internal.core.models.repos.remote import RemoteRepo

IN_MEMORY = 16 * 1024 * 1024  # bytes of an archive before it goes to a temporary file


def upload_all(client: Client, task: Mapping[str, object], base: Path) -> dict[str, object]:
    """Upload the task's files and code: the fields of a run's specification that name what was uploaded.

    Relative paths start from `base`. Raises TaskInvalid if a path does not exist, is not a Git repository, or is larger
    than the server takes.
    """
    check_local(task, base)
    archives, fields = _upload_files(client, task, base), _upload_repo(client, task, base)
    return {**fields, "file_archives": archives} if archives else fields


def check_local(task: Mapping[str, object], base: Path) -> None:
    """Check that all paths of `files:` and `repos:` exist, before an intent is recorded; TaskInvalid if not."""
    for path, _ in _file_mappings(task, base):
        if not path.exists():
            raise TaskInvalid(f"`files`: {path} does not exist")
    spec = _repo_spec(task)
    if spec is not None and spec.get("local_path"):
        path = _absolute(str(spec["local_path"]), base)
        if not path.is_dir():
            raise TaskInvalid(f"`repos`: {path} is not a folder")


def _upload_files(client: Client, task: Mapping[str, object], base: Path) -> list[dict[str, str]]:
    from dstack._internal.utils.files import create_file_archive

    archives = []
    for path, inside in _file_mappings(task, base):
        with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as packed:
            try:
                digest = create_file_archive(path, packed)
            except (OSError, ValueError) as error:
                raise TaskInvalid(f"`files`: cannot pack {path}: {error}") from None
            packed.seek(0)
            answer = client.upload("/api/files/upload_archive", packed, digest)
            identity = at(answer.json(), "id")
            if not answer.ok or not isinstance(identity, str):
                raise client.trouble(answer, "upload the task's files")
            archives.append({"id": identity, "path": inside})
    return archives


def _upload_repo(client: Client, task: Mapping[str, object], base: Path) -> dict[str, object]:
    spec = _repo_spec(task)
    if spec is None:
        return {}
    repo = _open_repo(spec, base)
    _make_known(client, repo)
    fields: dict[str, object] = {
        "repo_id": repo.repo_id,
        "repo_data": repo.run_repo_data.model_dump(mode="json"),
        "repo_dir": spec.get("path"),
    }
    if repo.has_code_to_write():
        with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as code:
            digest = str(repo.write_code_file(code))
            code.seek(0)
            path = client.address.path("repos/upload_code")
            answer = client.upload(path, code, digest, params={"repo_id": repo.repo_id})
        if not answer.ok:
            raise client.trouble(answer, "upload the task's code")
        fields["repo_code_hash"] = digest
    return fields


def _open_repo(spec: Mapping[str, object], base: Path) -> RemoteRepo:
    from dstack._internal.core.errors import DstackError
    from dstack._internal.core.models.repos.remote import RemoteRepo

    branch, commit = spec.get("branch"), spec.get("hash")
    try:
        if spec.get("url"):
            repo = RemoteRepo.from_url(str(spec["url"]))
            repo.run_repo_data.repo_branch = branch
        else:
            repo = RemoteRepo.from_dir(_absolute(str(spec["local_path"]), base))
            commit = None
    except DstackError as error:
        reason = str(error) or type(error).__name__.removesuffix("Error")
        raise TaskInvalid(
            f"`repos`: {spec.get('url') or spec.get('local_path')}: {reason}; "
            "a repo needs a branch that follows a remote one, any other folder goes under `files:`"
        ) from None
    if commit is not None:
        repo.run_repo_data.repo_hash = commit
    return repo


def _make_known(client: Client, repo: RemoteRepo) -> None:
    """Tell the server about the repository unless it has it with credentials, as `dstack apply` does."""
    from dstack._internal.core.errors import RepoInvalidCredentialsError
    from dstack._internal.core.services.repos import get_repo_creds_and_default_branch

    known = client.ask(client.address.path("repos/get"), {"repo_id": repo.repo_id, "include_creds": True})
    if not known.ok and not known.gone:
        raise client.trouble(known, "look up the task's repo")
    held = at(known.json(), "repo_creds") if known.ok else None
    try:
        usable, _ = get_repo_creds_and_default_branch(
            repo_url=repo.repo_url, private_key=at(held, "private_key"), oauth_token=at(held, "oauth_token")
        )
    except RepoInvalidCredentialsError:
        raise TaskInvalid(
            f"`repos`: no access to {repo.repo_url}: it is not public, and neither ~/.ssh nor `gh` has a key for it"
        ) from None
    if held:
        return
    request = {
        "repo_id": repo.repo_id,
        "repo_info": repo.get_repo_info().model_dump(mode="json"),
        "repo_creds": usable.model_dump(mode="json"),
    }
    client.expect(client.address.path("repos/init"), request, what="tell dstack about the task's repo")


def _file_mappings(task: Mapping[str, object], base: Path) -> list[tuple[Path, str]]:
    from dstack._internal.core.models.files import FilePathMapping

    files = task.get("files")
    mappings = [FilePathMapping.model_validate(entry) for entry in files] if isinstance(files, list) else []
    return [(_absolute(mapping.local_path, base), mapping.path) for mapping in mappings]


def _repo_spec(task: Mapping[str, object]) -> dict[str, object] | None:
    from dstack._internal.core.models.configurations import RepoSpec

    repos = task.get("repos")
    if not isinstance(repos, list) or not repos:
        return None
    return dict(RepoSpec.model_validate(repos[0]).model_dump(mode="json"))


def _absolute(path: str, base: Path) -> Path:
    """As `dstack apply`: from the task file's folder, `~` expanded, symbolic links kept."""
    expanded = Path(path).expanduser()
    return expanded if expanded.is_absolute() else base.resolve() / expanded
