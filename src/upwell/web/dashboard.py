"""The page at `/dashboard`: decisions, savings and memories.

The page is one file that loads nothing from elsewhere. A browser without the token gets the same
page with status 401; the page asks for the token and sends it with every request for data. Data is
inserted as text, and the content security policy allows only the page's own script and style, by
hash.
"""

import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from upwell.ground.errors import UpwellError

PATH = "/dashboard"
MOST_DAYS = 90
SHOWN_DECISIONS, SHOWN_MEMORIES = 50, 50
MOST_QUERY_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class PageData:
    """The sources of the page's data, as JSON: `stats(days)`, `recent(number)` and
    `memories(query, limit)`."""

    stats: Callable[[int], Awaitable[Mapping[str, Any]]]
    recent: Callable[[int], Awaitable[Mapping[str, Any]]]
    memories: Callable[[str, int], Awaitable[Mapping[str, Any]]]


def dashboard_routes(data: PageData) -> list[BaseRoute]:
    """The page and its data."""

    async def whole(_: Request) -> Response:
        return page()

    async def stats(request: Request) -> Response:
        days = request.query_params.get("days", "7")
        if not (days.isascii() and days.isdigit() and 1 <= int(days[:4]) <= MOST_DAYS):
            return JSONResponse({"error": f"days: 1 to {MOST_DAYS}"}, status_code=400)
        return await _json(data.stats(int(days)))

    async def decisions(_: Request) -> Response:
        return await _json(data.recent(SHOWN_DECISIONS))

    async def memories(request: Request) -> Response:
        query = request.query_params.get("query", "")[:MOST_QUERY_CHARS]
        return await _json(data.memories(query, SHOWN_MEMORIES))

    return [
        Route(PATH, whole),
        Route(f"{PATH}/stats", stats),
        Route(f"{PATH}/decisions", decisions),
        Route(f"{PATH}/memories", memories),
    ]


def page(status: int = 200) -> Response:
    """The page, without data."""
    html, policy = _page()
    headers = {"content-security-policy": policy, "x-frame-options": "DENY"}
    return HTMLResponse(html, status_code=status, headers=headers)


async def _json(answer: Awaitable[Mapping[str, Any]]) -> Response:
    try:
        return JSONResponse(await answer)
    except UpwellError as error:
        return JSONResponse({"error": str(error)}, status_code=503)


@lru_cache(maxsize=1)
def _page() -> tuple[str, str]:
    """The HTML and its content security policy."""
    html = files("upwell.web").joinpath("dashboard.html").read_text(encoding="utf-8")
    script, style = (_hash(html, tag) for tag in ("script", "style"))
    allowed = f"script-src {script}; style-src {style}; connect-src 'self'"
    return html, f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _hash(html: str, tag: str) -> str:
    element = re.search(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    assert element is not None, tag
    digest = hashlib.sha256(element.group(1).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
