"""What a task takes from whoever submits it: the variables that sbatch reads, and the current folder."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from engine.errors import ProviderRefused, ProviderUnreachable
from engine.providers.slurm.spec import minutes

if TYPE_CHECKING:
    from engine.providers.slurm.shell import Shell

PREFIX: Final = "SBATCH_"
PLAIN: Final = {"ACCOUNT": "account", "PARTITION": "partition", "QOS": "qos", "CONSTRAINT": "constraint"}
_FIELDS: Final = {
    **PLAIN, "TIMELIMIT": "max_duration", "ARRAY_INX": "array", "GRES": "gpu", "GPUS_PER_NODE": "gpu", "GPUS": "gpu",
    "MEM_PER_NODE": "memory",
}  # fmt: skip
RESOURCES: Final = ("gpu", "memory")
_GPU: Final = re.compile(r"(?:gres[/:])?gpu(?::([^,]+))?")
_WITHOUT_LIMIT: Final = ("unlimited", "infinite", "0", "-1")


def with_variables(
    task: Mapping[str, object], environ: Mapping[str, str], fields: Collection[str] = tuple(_FIELDS.values())
) -> tuple[dict[str, object], str | None]:
    """The task with what `SBATCH_*` say of those of its `fields` that it leaves open; and a line on it, if there are
    such variables. As for sbatch: the command line wins over the environment. Raises TaskInvalid for a bad time.
    """
    found, taken, ignored = dict(task), [], []
    for variable, text in sorted(environ.items()):
        field = _FIELDS.get(variable.removeprefix(PREFIX), "")
        if not variable.startswith(PREFIX) or not text.strip():
            continue
        value = _value(variable, text.strip(), task) if field in fields else None
        if value is None:
            ignored.append(variable)
        elif field in RESOURCES:
            resources = found.get("resources") or {}
            if isinstance(resources, Mapping) and resources.get(field) in (None, ""):
                found["resources"] = {**resources, field: value}
                taken.append(f"{field}={value} from {variable}")
        elif found.get(field) in (None, "") and not (field == "max_duration" and {"time", "checkpoint"} & set(found)):
            found[field] = value
            taken.append(f"{field}={value} from {variable}")
    parts = [", ".join(taken), f"ignored: {', '.join(ignored)}" if ignored else ""]
    return found, "; ".join(filter(None, parts)) or None


def _value(variable: str, text: str, task: Mapping[str, object]) -> str | None:
    """What a variable says, in a task's words; None: no field has it."""
    match variable.removeprefix(PREFIX):
        case "TIMELIMIT":
            return "off" if text.lower() in _WITHOUT_LIMIT else f"{minutes(text, variable)}m"
        case "MEM_PER_NODE":
            return f"{text}M" if text.isdecimal() else text
        case "GRES":
            gres = _GPU.fullmatch(text)
            return None if gres is None else gres[1] or "1"
        case "GPUS":  # of all nodes
            return text if task.get("nodes") in (None, 1) else None
    return text


def in_folder(task: Mapping[str, object], client: Shell, folder: str) -> tuple[dict[str, object], str | None]:
    """The task with `folder`, where its user is, as its working folder if the cluster has it too; else a line on where
    it runs. Its own `working_dir` counts from there.
    """
    own = str(task.get("working_dir") or "")
    if own.startswith("/"):
        return dict(task), None
    if own.startswith("~/") or own == "~":
        return {**task, "working_dir": posixpath.join(client.home(), own[2:])}, None
    try:
        there, why = _has(client, folder), f"{client.where} has no folder {folder} of yours"
    except (ProviderRefused, ProviderUnreachable):  # its submission says so, or waits until the host answers
        there, why = False, f"{client.where} does not say whether it has {folder}"
    if there:
        return {**task, "working_dir": posixpath.normpath(posixpath.join(folder, own))}, None
    place = posixpath.join(client.site.folder, own)
    return dict(task), f"{why}: the job runs in {place}; `steno slurm run` sends files, `working_dir` names a folder"


def _has(client: Shell, folder: str) -> bool:
    if client.site.host is None:
        return os.path.isdir(folder)  # noqa: PTH112 - a path of the cluster
    return client.run(("test", "-d", folder, "-a", "-O", folder)).status == 0
