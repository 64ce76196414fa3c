"""The routes of the dashboard: one document a page, and files that may be kept for ever."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from projections.api.bodies import matches
from projections.api.problems import Problem
from projections.dashboard.bundle import PAGES, Bundle, File

if TYPE_CHECKING:
    from projections.api.service import Service

OPENAPI: dict[str, Any] = {}
"""Nothing: pages are for people."""

Document = Callable[[Request], Awaitable[Response]]

_ALWAYS = "no-cache"
_FOR_EVER = "public, max-age=31536000, immutable"


def routes(service: Service) -> list[BaseRoute]:  # noqa: ARG001 - every part is made of the service
    """Every page's document, and the files under `/assets/<version>/`."""
    return files(Bundle())


def files(bundle: Bundle) -> list[BaseRoute]:
    """The routes of one bundle."""

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        found = bundle.files.get(name) if request.path_params["version"] == bundle.version else None
        if found is None:
            raise Problem(404, "this file does not exist; the dashboard's page names the files")
        return _answer(request, found, _FOR_EVER)

    def page(name: str) -> Document:
        async def document(request: Request) -> Response:
            pages = bundle.past_pages if "at" in request.query_params else bundle.pages
            return _answer(request, pages[name], _ALWAYS)

        return document

    return [
        Route("/assets/{version}/{name:path}", asset, methods=["GET"], include_in_schema=False),
        *(Route(path, page(name), methods=["GET"], include_in_schema=False) for path, name in PAGES.items()),
    ]


def _answer(request: Request, file: File, caching: str) -> Response:
    """The file, compressed for who takes that; nothing to who has it already."""
    packed = file.packed is not None and "gzip" in request.headers.get("accept-encoding", "")
    etag = f'"{file.etag}-gz"' if packed else f'"{file.etag}"'
    headers = {"ETag": etag, "Cache-Control": caching, "Vary": "Accept-Encoding"}
    if matches(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    if packed:
        headers["Content-Encoding"] = "gzip"
    body = file.packed if packed else file.body
    return Response(body, headers=headers, media_type=file.type)
