"""The routes of the dashboard.

The page shell, scripts and styles contain no data and need no token. All other requests need the
token, which our script sends in a header that neither another site nor a plain form can set. The
content security policy allows only our own files: no inline scripts or styles, and no other host.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from upwell.ground.errors import UpwellError, UsageError
from upwell.ground.trace import LOG

Fields = Mapping[str, str]
"""The non-empty parameters of a request."""
View = Callable[[Fields], Awaitable[Mapping[str, Any]]]
"""Returns the values for one template."""
Action = Callable[[Fields], Awaitable[str]]
"""Changes something, and returns a sentence about the change for the user."""
Rows = Sequence[Mapping[str, Any]]


class Desk(Struct, frozen=True):
    """`views` maps the name of a template to its view, and `actions` maps NAME in the address
    `/dashboard/do/NAME` to an action. `stream` yields new events that match the fields."""

    views: Mapping[str, View]
    actions: Mapping[str, Action]
    stream: Callable[[Fields], AsyncIterator[Rows]]


PATH = "/dashboard"
PAGES: Mapping[str, str] = {
    "now": "Now",
    "sessions": "Sessions",
    "memory": "Memory",
    "savings": "Savings",
    "health": "Health",
}
"""The pages and their titles. Each page has a template in `templates/views`."""
MOVED: Mapping[str, str] = {"worth": "savings"}
"""Pages of 0.1 that became parts of other pages. To be removed in 0.3."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
MAX_FIELD_CHARS = 200_000
_ASSETS: Mapping[str, str] = {
    "app.js": "text/javascript",
    "app.css": "text/css",
    "icon.svg": "image/svg+xml",
    "vendor/htmx.min.js": "text/javascript",
    "vendor/uplot.min.js": "text/javascript",
    "vendor/uplot.min.css": "text/css",
}
_FORM = "application/x-www-form-urlencoded"
OPEN_PATHS = frozenset(
    (
        PATH,
        *(f"{PATH}/{page}" for page in (*PAGES, *MOVED)),
        *(f"{PATH}/assets/{name}" for name in _ASSETS),
    )
)
"""The paths that are served without a token, because they contain no data."""
KEEP_ALIVE_SECONDS = 15.0


def dashboard_routes(desk: Desk) -> list[BaseRoute]:
    async def view(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in desk.views:
            return _trouble(404, "there is no such view")
        fields = _fields(request.query_params.multi_items())
        return await _answered(_rendered(desk, name, fields))

    async def stream(request: Request) -> Response:
        fields = _fields(request.query_params.multi_items())
        events = _event_stream(desk, fields)
        return StreamingResponse(events, media_type="text/event-stream")

    async def act(request: Request) -> Response:
        name = request.path_params["name"]
        if why := _foreign(request):
            return _trouble(403, why)
        if name not in desk.actions:
            return _trouble(404, "there is no such action")
        body = (await request.body()).decode("utf-8", "replace")
        fields = _fields(parse_qsl(body, keep_blank_values=True, max_num_fields=50))
        return await _answered(_done(desk, name, fields))

    return [
        Route(PATH, _shell),
        *(Route(f"{PATH}/{page}", _shell) for page in PAGES),
        *(Route(f"{PATH}/{page}", _moved) for page in MOVED),
        Route(f"{PATH}/assets/{{name:path}}", _asset),
        Route(f"{PATH}/view/{{name:path}}", view),
        Route(f"{PATH}/stream", stream),
        Route(f"{PATH}/do/{{name:path}}", act, methods=["POST"]),
    ]


async def _moved(request: Request) -> Response:
    page = MOVED[request.url.path.removeprefix(PATH).strip("/")]
    return RedirectResponse(f"{PATH}/{page}?{request.url.query}", status_code=308)


async def _shell(request: Request) -> Response:
    return _html(_shell_text(request.url.path.removeprefix(PATH).strip("/") or "now"))


@lru_cache(maxsize=len(PAGES))
def _shell_text(page: str) -> str:
    from upwell.web.dashboard.templating import rendered

    return rendered("shell", {"pages": PAGES, "page": page, "path": PATH})


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _ASSETS:
        return _trouble(404, "there is no such file")
    return Response(_asset_bytes(name), media_type=_ASSETS[name])


@lru_cache(maxsize=len(_ASSETS))
def _asset_bytes(name: str) -> bytes:
    from upwell.web.dashboard.templating import FOLDER

    return (FOLDER / "assets" / name).read_bytes()


def _foreign(request: Request) -> str:
    """Return why a request that changes something is refused, or "" if it comes from our own page.
    The guard has already checked the token and the host."""
    headers = request.headers
    if headers.get("hx-request") != "true":
        return "only the dashboard may do this"
    if headers.get("content-type", "").partition(";")[0].strip() != _FORM:
        return "a form is expected"
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != headers.get("host"):
        return "origin not allowed"
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return "only the dashboard may do this"
    return ""


class _Filled(dict[str, str]):
    """A missing field is empty."""

    def __missing__(self, name: str) -> str:
        return ""


def _fields(items: list[tuple[str, str]]) -> Fields:
    return {name: value[:MAX_FIELD_CHARS] for name, value in items if value}


async def _rendered(desk: Desk, name: str, fields: Fields) -> Response:
    values = await desk.views[name](fields)
    return await _page(f"views/{name}", {"path": PATH, "fields": _Filled(fields), **values})


async def _page(template: str, values: Mapping[str, Any]) -> Response:
    from upwell.web.dashboard.templating import rendered

    return _html(await asyncio.to_thread(rendered, template, values))


async def _done(desk: Desk, name: str, fields: Fields) -> Response:
    message = await desk.actions[name](fields)
    answer = await _page("message", {"message": message})
    # This header makes the lists on the page reload.
    answer.headers["hx-trigger"] = "changed"
    return answer


async def _answered(work: Awaitable[Response]) -> Response:
    try:
        return await work
    except UpwellError as error:
        status = 400 if isinstance(error, UsageError) else 503
        text = f"{error.message} ({error.hint})" if error.hint else error.message
        return _trouble(status, text)


async def _event_stream(desk: Desk, fields: Fields) -> AsyncIterator[str]:
    from upwell.web.dashboard.templating import rendered

    yield ": begin\n\n"
    try:
        async for rows in desk.stream(fields):
            if not rows:
                yield ": still here\n\n"
                continue
            html = rendered("views/rows", {"path": PATH, "rows": rows})
            lines = "".join(f"data: {line}\n" for line in html.split("\n") if line.strip())
            newest = max(row["written"] for row in rows)
            yield f"id: {newest}\n{lines}\n"
    except UpwellError as error:
        LOG.warning("the stream of the dashboard ends: %s", error)


def _html(text: str) -> HTMLResponse:
    headers = {"content-security-policy": POLICY, "x-frame-options": "DENY"}
    return HTMLResponse(text, headers=headers)


def _trouble(status: int, text: str) -> Response:
    return Response(text, status_code=status, media_type="text/plain; charset=utf-8")
