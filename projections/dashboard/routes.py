"""The dashboard: one document per page, and its files in memory, at addresses that change with their content."""

import gzip
import hashlib
import html
import posixpath
import re
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path, PurePosixPath

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from steno.projections.api.bodies import matches
from steno.projections.api.problems import OTHER, Problem
from steno.projections.api.service import Service

FOLDER = Path(__file__).parent / "assets"
TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".html": "text/html; charset=utf-8",
}
PAGES = {  # address → the module that draws the page
    "/": "overview",
    "/runs": "runs",
    "/runs/{id}": "run",
    "/machines": "machines",
    "/machines/{id}": "machine",
    "/costs": "costs",
    "/kernels": "kernels",
    "/submit": "submit",
    "/record": "record",
    "/record/{position}": "record",
    "/incidents": "incidents",
    "/cases": "cases",
    "/changes": "changes",
    "/report": "report",
    "/docs": "reference",
    "/compare": "compare",
    "/admin": "admin",
    "/login": "login",
}

_FIRST = ("base.css", "shell.css", "ui.css")
_APP = "js/core/app.js"
_MISSING = "missing"  # no module: the frame says that there is no such page
_LIVE = ('<link rel="preload" as="fetch" crossorigin="anonymous" fetchpriority="high" href="/api/overview">',)
_IMPORT = re.compile(
    r"""^\s*(?:import|export)\b[^;]*?\bfrom\s*["'](\.[^"']+)["']|^\s*import\s*["'](\.[^"']+)["']""", re.M
)
_WORTH = 600  # bytes under which compressing saves nothing


@dataclass(frozen=True, slots=True)
class File:
    """An answer, plain and compressed."""

    type: str
    body: bytes
    packed: bytes | None
    etag: str

    @classmethod
    def of(cls, type_: str, body: bytes) -> "File":
        packed = gzip.compress(body, 9, mtime=0) if len(body) > _WORTH else None
        return cls(type_, body, packed, hashlib.sha256(body).hexdigest()[:24])


class Bundle:
    """All files of a folder, read once. The version in the addresses is the hash of all files, as modules import each
    other by relative paths.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self._sources = {
            str(PurePosixPath(path.relative_to(folder))): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix in TYPES
        }

    @cached_property
    def version(self) -> str:
        digest = hashlib.sha256()
        for name, body in self._sources.items():
            digest.update(f"{name}\0{len(body)}\0".encode() + body)
        return digest.hexdigest()[:16]

    @cached_property
    def files(self) -> dict[str, File]:
        """Name under `/assets/<version>/` → file; all style sheets are merged."""
        files = {
            name: File.of(TYPES[PurePosixPath(name).suffix], body)
            for name, body in self._sources.items()
            if not name.endswith((".html", ".css"))
        }
        rank = {name: place for place, name in enumerate(_FIRST)}
        sheets = [name for name in self._sources if name.endswith(".css")]
        sheets.sort(key=lambda name: (rank.get(PurePosixPath(name).name, len(rank)), name))
        return files | {"all.css": File.of(TYPES[".css"], b"\n".join(self._sources[name] for name in sheets))}

    @cached_property
    def pages(self) -> dict[tuple[str, bool], File]:
        """(page, whether of the past) → its document, which names all modules to preload. One of the past does not
        preload current data: a browser warns of unused preloads.
        """
        return {
            (page, past): File.of(TYPES[".html"], self._document(page, () if past else _LIVE))
            for page in {*PAGES.values(), _MISSING}
            for past in (False, True)
        }

    def _document(self, page: str, first: tuple[str, ...]) -> bytes:
        base = f"/assets/{self.version}"
        modules = self._imports([_APP, f"js/pages/{page}.js"])
        lines = [*first, *(f'<link rel="modulepreload" href="{base}/{html.escape(name)}">' for name in modules)]
        text = self._sources["index.html"].decode()
        return text.replace("{{assets}}", base).replace("{{preload}}", "\n".join(lines)).encode()

    def _imports(self, roots: list[str]) -> list[str]:
        """The modules these need, themselves included, in import order."""
        met: dict[str, None] = {}
        ahead = list(roots)
        while ahead:
            name = ahead.pop(0)
            if name in met or name not in self._sources:
                continue
            met[name] = None
            targets = (target or other for target, other in _IMPORT.findall(self._sources[name].decode()))
            ahead += [posixpath.normpath(posixpath.join(posixpath.dirname(name), target)) for target in targets]
        return list(met)


@cache
def _bundle() -> Bundle:
    return Bundle()


OPERATIONS = ()  # None: pages are for people


def routes(service: Service) -> list[BaseRoute]:  # noqa: ARG001 - every part is made of the service
    """Each page's document, and the files under `/assets/<version>/`, which may be cached for ever."""
    bundle = _bundle()

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        file = bundle.files.get(name) if request.path_params["version"] == bundle.version else None
        if file is None:
            raise Problem(404, "this file does not exist; the dashboard's page names the files")
        return _answer(request, file, "public, max-age=31536000, immutable")

    async def page(name: str, request: Request) -> Response:
        return _answer(request, bundle.pages[name, "at" in request.query_params], "no-cache")

    return [
        Route("/assets/{version}/{name:path}", asset, methods=["GET"], name="/assets/{path}"),
        *(
            Route(path, partial(page, module), methods=["GET"], name=OTHER if module == "login" else "/{page}")
            for path, module in PAGES.items()
        ),
    ]


async def missing(scope: Scope, receive: Receive, send: Send) -> None:
    """The dashboard's own page for a path without a route, for browsers; programs get a problem."""
    request = Request(scope)
    for_people = "text/html" in request.headers.get("accept", "") and not scope["path"].startswith("/api/")
    if not for_people or request.method not in {"GET", "HEAD"}:
        raise HTTPException(404)
    file = _bundle().pages[_MISSING, True]
    await Response(file.body, 404, {"Cache-Control": "no-cache"}, file.type)(scope, receive, send)


def _answer(request: Request, file: File, caching: str) -> Response:
    packed = file.packed is not None and "gzip" in request.headers.get("accept-encoding", "")
    etag = f'"{file.etag}-gz"' if packed else f'"{file.etag}"'
    headers = {"ETag": etag, "Cache-Control": caching, "Vary": "Accept-Encoding"}
    if matches(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    if packed:
        headers["Content-Encoding"] = "gzip"
    body = file.packed if packed else file.body
    return Response(body, headers=headers, media_type=file.type)
