"""dstack's settings: its block, and the projects, servers and tokens of `~/.dstack/config.yml`."""

import ipaddress
import re
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec

from steno.engine.errors import NotConfigured, ProjectNotFound
from steno.engine.settings.settings import Settings
from steno.engine.settings.values import Block, Values, is_off, setting, whole
from steno.events.errors import StenoError

TASK_FILES = (".dstack.yml", ".dstack.yaml")  # tried in this order by default, as `dstack apply` does


def address_of(settings: Settings) -> "Address":
    """Server, token and project, checked. Raises NotConfigured, or ProjectNotFound: dstack's file lacks it."""
    url, token, project = (settings.value(name) for name in ("dstack.url", "dstack.token", "project"))
    if url and token and project:
        return address(url, token, project)
    problem = settings.problems.get("dstack")
    if problem is not None:
        raise problem
    missing = [name for name in ("dstack.url", "dstack.token", "project") if not settings.value(name)]
    hints = " and ".join(f"{name} ({settings.variables[name][0]})" for name in missing)
    raise NotConfigured(
        f"dstack is not configured: set {hints}, or run `dstack project add --name NAME --url URL --token TOKEN` once"
    )


def fleet_nodes(settings: Settings) -> int | None:
    """The most machines of a fleet that Steno makes: `vms.max` unless set; None: no limit."""
    most = settings.value("dstack.fleet_nodes") or settings.value("vms.max") or ""
    return None if is_off(most) else int(most)


def default_gpu(settings: Settings) -> str | None:
    """The GPU of a command that names none; None: dstack chooses."""
    gpu = settings.value("dstack.gpu") or ""
    return None if is_off(gpu) else gpu


def _own_files(values: Values, home: Path) -> StenoError | None:
    """Fill in server, token and project from dstack's file. Its token goes to its own server only, despite `.env`."""
    default = (str(home / ".dstack" / "config.yml"), "default")
    text, given = values.setdefault("dstack.config", default)
    path = Path(text).expanduser()
    try:
        projects = read_dstack_config(path)
    except NotConfigured as error:
        return error
    if not projects and given != "default" and not path.exists():
        return NotConfigured(f"there is no {path}, which {given} names as dstack's configuration")
    wanted = values["project"][0] if "project" in values else None
    chosen = [known for known in projects if (known.default if wanted is None else known.name == wanted)]
    if not chosen and wanted is None and len(projects) == 1:
        chosen = [*projects]
    if not chosen:
        if projects and wanted is None:
            return NotConfigured(f"{path} has several projects and no default one; say which: --project NAME")
        if projects:
            names = ", ".join(known.name for known in projects)
            return ProjectNotFound(f"project {wanted} is not in {path} (there are: {names}); `dstack project add` it")
        return None
    entry = chosen[0]
    url = values.setdefault("dstack.url", (entry.url, str(path)))[0]
    if url.rstrip("/") == entry.url.rstrip("/"):
        values.setdefault("dstack.token", (entry.token, str(path)))
        values.setdefault("project", (entry.name, str(path)))
    return None


BLOCK = Block(
    provider="dstack",
    known=(
        setting("dstack.url", "STENO_DSTACK_URL", "DSTACK_SERVER_URL")(help="URL of dstack's server."),
        setting("dstack.token", "STENO_DSTACK_TOKEN", "DSTACK_TOKEN", secret=True)(help="Token for dstack's server."),
        setting("dstack.config", "STENO_DSTACK_CONFIG")(help="Path of dstack's configuration file."),
        setting("dstack.backend", "STENO_BACKEND", "DSTACK_BACKEND")(help="Default backend of tasks."),
        setting("dstack.gpu", "STENO_GPU", "AMD_DEFAULT_GPU", default="MI300X")(
            help="Default GPU of commands without --gpu and without a task file. off: none."
        ),
        setting("dstack.fleet_nodes", "STENO_FLEET_NODES", parse=whole)(
            help="Maximum number of machines in a fleet that Steno creates. Not set: vms.max."
        ),
        setting("dstack.ssh_key", "STENO_DSTACK_SSH_KEY", default="~/.dstack/ssh/id_rsa")(
            help="Private key for ssh to tasks. Created if missing, as dstack's client does."
        ),
        setting("dstack.amddevcloud_api_key", "DSTACK_AMDDEVCLOUD_API_KEY", secret=True, presence_only=True)(
            help="Cloud key of the backend. Only dstack's server needs it; Steno never sends or records it."
        ),
    ),
    variables={"project": ("DSTACK_PROJECT",)},
    own_files=_own_files,
)


class KnownProject(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of `projects:`; its token is for its own server only."""

    name: str
    url: str
    token: str
    default: bool = False

    def __repr__(self) -> str:
        return f"KnownProject(name={self.name!r}, url={self.url!r}, default={self.default})"


def read_dstack_config(path: Path) -> tuple[KnownProject, ...]:
    """The projects of the file, in its order; none without a file. Skips unknown entries and keys, as dstack does.

    Raises NotConfigured if the file is not YAML with a list of projects.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror or "unreadable" if isinstance(error, OSError) else "not UTF-8"
        raise NotConfigured(f"cannot read dstack's configuration {path}: {reason}") from None
    import yaml

    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        where = "; run `dstack project add` to write it"
        if isinstance(error, yaml.MarkedYAMLError):
            where = f" (line {error.problem_mark.line + 1 if error.problem_mark else 1}: {error.problem})"
        raise NotConfigured(f"dstack's configuration {path} is not valid YAML{where}") from None
    content = {} if content is None else content
    projects = content.get("projects") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(projects, list | None):
        raise NotConfigured(f"dstack's configuration {path} has no list `projects:`; run `dstack project add`")
    known = []
    for entry in projects or ():
        with suppress(msgspec.ValidationError, TypeError):
            known.append(msgspec.convert({**entry, "default": entry.get("default") is True}, KnownProject))
    return tuple(known)


_TOKEN = re.compile(r"[\x21-\x7e]+")
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,49}")


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A server, a token and a project; made by `address()` only."""

    url: str  # `http(s)://host[:port][/prefix]`, without a slash at the end
    token: str
    project: str
    loopback: bool  # the server is this machine: no proxy in between

    def __repr__(self) -> str:
        return f"Address(url={self.url!r}, project={self.project!r})"

    def path(self, rest: str) -> str:
        """`/api/project/<project>/<rest>`."""
        return f"/api/project/{quote(self.project, safe='')}/{rest}"


def address(url: str, token: str, project: str) -> "Address":
    """The checked address. NotConfigured: the URL is not http(s), or token or project has illegal characters."""
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise NotConfigured(f"dstack server URL {url!r} cannot be read; write it as http://host:port") from None
    if parts.scheme not in ("http", "https") or not host:
        raise NotConfigured(f"dstack server URL {url!r} must start with http:// or https:// and name a host")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise NotConfigured("dstack server URL must be plain: no user, password, query or fragment in it")
    if not _TOKEN.fullmatch(token):
        raise NotConfigured("dstack token has a space, a line break or a letter outside ASCII; copy it again")
    if not _PROJECT.fullmatch(project):
        raise NotConfigured(f"{project!r} is not a valid dstack project name; use letters, digits, '-' and '_'")
    loopback = host == "localhost" or host.endswith(".localhost")
    with suppress(ValueError):
        loopback = ipaddress.ip_address(host).is_loopback
    return Address(url=url.strip().rstrip("/"), token=token, project=project, loopback=loopback)
