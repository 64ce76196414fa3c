"""The dashboard's files in memory, each at an address that changes with its content."""

from __future__ import annotations

import gzip
import hashlib
import html
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

FOLDER = Path(__file__).parent / "assets"
TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".html": "text/html; charset=utf-8",
}
PAGES = {
    "/": "overview",
    "/runs": "runs",
    "/runs/{id}": "run",
    "/machines": "machines",
    "/machines/{id}": "machine",
    "/costs": "costs",
    "/submit": "submit",
    "/record": "record",
    "/record/{position}": "record",
    "/incidents": "incidents",
    "/login": "login",
}
"""The address of every page and the module that draws it."""

_FIRST = ("base.css", "shell.css", "ui.css")
_APP = "js/core/app.js"
_LIVE = ('<link rel="preload" as="fetch" crossorigin="anonymous" fetchpriority="high" href="/api/overview">',)
_IMPORT = re.compile(
    r"""^\s*(?:import|export)\b[^;]*?\bfrom\s*["'](\.[^"']+)["']|^\s*import\s*["'](\.[^"']+)["']""", re.M
)
_WORTH = 600
"""Bytes under which compressing saves nothing."""


@dataclass(frozen=True, slots=True)
class File:
    """One answer, plain and compressed."""

    type: str
    body: bytes
    packed: bytes | None
    etag: str

    @classmethod
    def of(cls, type_: str, body: bytes) -> File:
        """A file whose entity tag is that of its bytes."""
        packed = gzip.compress(body, 9, mtime=0) if len(body) > _WORTH else None
        return cls(type_, body, packed, hashlib.sha256(body).hexdigest()[:24])


class Bundle:
    """Everything under a folder, read once.

    Addresses are `/assets/<version>/…`, where the version is the hash of all files: modules import each other by
    relative paths, so that one address more or less would be another set of them.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self._sources = {
            str(PurePosixPath(path.relative_to(folder))): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix in TYPES
        }

    @cached_property
    def version(self) -> str:
        """The hash of every file's name and content."""
        digest = hashlib.sha256()
        for name, body in self._sources.items():
            digest.update(f"{name}\0{len(body)}\0".encode() + body)
        return digest.hexdigest()[:16]

    @property
    def base(self) -> str:
        """Where the files are."""
        return f"/assets/{self.version}"

    @cached_property
    def files(self) -> dict[str, File]:
        """Name under the base → file; all style sheets are one."""
        found = {
            name: File.of(TYPES[PurePosixPath(name).suffix], body)
            for name, body in self._sources.items()
            if not name.endswith((".html", ".css"))
        }
        sheets = [name for name in self._sources if name.endswith(".css")]
        sheets.sort(key=lambda name: (_rank(PurePosixPath(name).name), name))
        return found | {"all.css": File.of(TYPES[".css"], b"\n".join(self._sources[name] for name in sheets))}

    @cached_property
    def pages(self) -> dict[str, File]:
        """Page → the document that starts it, with all its modules named so that they come at once."""
        return {page: File.of(TYPES[".html"], self._document(page, _LIVE)) for page in set(PAGES.values())}

    @cached_property
    def past_pages(self) -> dict[str, File]:
        """As `pages`, of a moment that is past: what is read now is no use there, and a browser complains of it."""
        return {page: File.of(TYPES[".html"], self._document(page, ())) for page in set(PAGES.values())}

    def _document(self, page: str, first: tuple[str, ...]) -> bytes:
        modules = self._imports([_APP, f"js/pages/{page}.js"])
        lines = list(first)
        lines += [f'<link rel="modulepreload" href="{self.base}/{html.escape(name)}">' for name in modules]
        text = self._sources["index.html"].decode()
        return text.replace("{{assets}}", self.base).replace("{{preload}}", "\n".join(lines)).encode()

    def _imports(self, roots: list[str]) -> list[str]:
        """The modules that these need, themselves included, in the order they are met."""
        met: list[str] = []
        ahead = [name for name in roots if name in self._sources]
        while ahead:
            name = ahead.pop(0)
            if name in met:
                continue
            met.append(name)
            for pair in _IMPORT.findall(self._sources[name].decode()):
                target = _resolved(name, pair[0] or pair[1])
                if target in self._sources:
                    ahead.append(target)
        return met


def _rank(name: str) -> int:
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


def _resolved(name: str, target: str) -> str:
    """A relative import as a name under the base."""
    parts: list[str] = []
    for part in (PurePosixPath(name).parent / target).parts:
        if part == "..":
            if parts:
                parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)
