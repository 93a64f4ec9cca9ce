"""The page: its access rules, and that it only shows data."""

import base64
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.web.test_guard import GOOD, TOKEN, asked

from upwell.ground.errors import StoreUnwritable
from upwell.web.admission import Admission
from upwell.web.dashboard import PageData, dashboard_routes
from upwell.web.routes import http_app
from upwell.web.tokens import Tokens

STRANGER = {"host": "127.0.0.1:8765"}


async def stats(days: int) -> Mapping[str, Any]:
    return {"days": days}


async def recent(number: int) -> Mapping[str, Any]:
    raise StoreUnwritable("the ledger cannot be read", hint="look at the disk")


async def memories(query: str, limit: int) -> Mapping[str, Any]:
    return {"hits": [], "query": query, "limit": limit}


def application() -> Any:
    routes = dashboard_routes(PageData(stats=stats, recent=recent, memories=memories))
    return http_app(routes, Admission(Tokens(TOKEN, Path("/nonexistent/tokens.json")).principal_of))


async def got(path: str, headers: Mapping[str, str] = GOOD) -> tuple[int, bytes, dict[str, str]]:
    return await asked(path, headers, b"", "GET", application())


async def test_without_the_token_there_is_a_page_that_asks_for_it_and_nothing_else() -> None:
    status, page, headers = await got("/dashboard", STRANGER)
    assert status == 401
    assert headers["content-type"].startswith("text/html")
    assert page == (await got("/dashboard"))[1]
    for path in ("/dashboard/stats", "/dashboard/decisions", "/dashboard/memories"):
        status, body, _ = await got(path, STRANGER)
        assert (status, b"token" in body) == (401, True)
    assert (await got("/dashboard", {"host": "evil.example"}))[0] == 421


async def test_the_page_runs_its_own_script_and_puts_in_text_only() -> None:
    status, page, headers = await got("/dashboard")
    assert status == 200
    policy, html = headers["content-security-policy"], page.decode()
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"] == "no-store"
    for tag in ("script", "style"):
        [inside] = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\bon\w+=|https?:", html
    )


async def test_the_requests_of_the_page() -> None:
    assert (await got("/dashboard/stats?days=30"))[:2] == (200, b'{"days":30}')
    assert (await got("/dashboard/stats"))[:2] == (200, b'{"days":7}')
    hits = b'{"hits":[],"query":"a b","limit":50}'
    assert (await got("/dashboard/memories?query=a+b"))[:2] == (200, hits)
    status, body, _ = await got("/dashboard/decisions")
    assert (status, b"the ledger cannot be read" in body) == (503, True)


@pytest.mark.parametrize("days", ["0", "91", "-1", "x", "", "9" * 40, "²"])
async def test_invalid_numbers_of_days_are_refused(days: str) -> None:
    status, body, _ = await got(f"/dashboard/stats?days={days}")
    assert (status, body) == (400, b'{"error":"days: 1 to 90"}')
