"""The routes of the dashboard: who may read and change what, and that pages hold only text."""

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.unit.web.test_guard import GOOD, TOKEN, asked

from upwell.ground.errors import StoreUnwritable, UsageError
from upwell.ground.types.memory import Memory, Provenance, Trust
from upwell.surface.explain import REASONS
from upwell.web.dashboard.routes import OPEN_PATHS, PAGES, Desk, Fields, Rows, dashboard_routes
from upwell.web.dashboard.templating import FOLDER, ago, rendered
from upwell.web.guard import Admission
from upwell.web.routes import http_app
from upwell.web.tokens import Tokens

STRANGER = {"host": "127.0.0.1:8765"}
FORM = {
    **GOOD,
    "hx-request": "true",
    "content-type": "application/x-www-form-urlencoded",
    "origin": "http://127.0.0.1:8765",
}
INLINE = re.compile(r"<style|\sstyle=|\son\w+=|<script>|hx-on|https?:|\|safe")
HOSTILE = "<script>alert(1)</script>\u202e\"'"


async def trash(fields: Fields) -> Mapping[str, Any]:
    return {"rows": [{"id": "'\"><b>", "text": fields.get("text", "")}]}


async def broken(fields: Fields) -> Mapping[str, Any]:
    raise StoreUnwritable("the ledger cannot be read", hint="look at the disk")


async def no_events(fields: Fields) -> AsyncIterator[Rows]:
    yield []


class Changes:
    """Notes every change."""

    def __init__(self) -> None:
        self.made: list[Fields] = []

    async def __call__(self, fields: Fields) -> str:
        if "id" not in fields:
            raise UsageError("this memory no longer exists")
        self.made.append(fields)
        return f"Done with {fields['id']}."


def application(changes: Changes | None = None) -> Any:
    desk = Desk(
        views={"trash": trash, "broken": broken},
        actions={"memory/forget": changes or Changes()},
        stream=no_events,
    )
    tokens = Tokens(TOKEN, Path("/nonexistent/tokens.json"))
    return http_app(dashboard_routes(desk), Admission(tokens.principal_of))


async def got(path: str, headers: Mapping[str, str] = GOOD) -> tuple[int, str, dict[str, str]]:
    status, body, head = await asked(path, headers, b"", "GET", application())
    return status, body.decode(), head


async def test_files_without_data_need_no_token_and_everything_else_does() -> None:
    for path in OPEN_PATHS:
        status, body, _ = await got(path, STRANGER)
        assert status == (308 if path.endswith("/worth") else 200), path
        assert TOKEN not in body
    for path in ("/dashboard/view/trash", "/dashboard/stream", "/dashboard/do/memory/forget"):
        assert (await got(path, STRANGER))[0] == 401, path
    assert (await got("/dashboard", {"host": "evil.example"}))[0] == 421
    for path in ("/dashboard/assets/../routes.py", "/dashboard/assets/nothing.js", "/dashboard/x"):
        assert (await got(path))[0] == 404, path


async def test_the_policy_allows_our_own_files_only() -> None:
    _, shell, headers = await got("/dashboard/memory")
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "<title>Memory" in shell
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"] == "no-store"
    for template in (FOLDER / "templates").rglob("*.html"):
        html = template.read_text(encoding="utf-8")
        assert not INLINE.search(html), template


async def test_values_are_escaped_and_invisible_characters_shown() -> None:
    status, html, _ = await got(f"/dashboard/view/trash?text={quote(HOSTILE)}")
    assert status == 200
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "\u202e" not in html
    assert r"\u202e" in html
    assert "<b>" not in html


async def test_errors_are_one_line() -> None:
    status, body, _ = await got("/dashboard/view/broken")
    assert (status, body) == (503, "the ledger cannot be read (look at the disk)")
    assert (await got("/dashboard/view/nothing"))[0] == 404


async def change(body: bytes, headers: Mapping[str, str], method: str = "POST") -> tuple[int, Any]:
    changes = Changes()
    path = "/dashboard/do/memory/forget"
    status, answer, head = await asked(path, headers, body, method, application(changes))
    assert len(changes.made) == (status == 200)
    return status, (answer.decode().strip(), head.get("hx-trigger"))


async def test_the_page_can_change_things() -> None:
    assert await change(b"id=m1", FORM) == (200, ("Done with m1.", "changed"))
    assert (await change(b"id=m1", {**FORM, "sec-fetch-site": "same-origin"}))[0] == 200
    status, (text, _) = await change(b"other=1", FORM)
    assert (status, text) == (400, "this memory no longer exists")


@pytest.mark.parametrize(
    ("status", "change_of_headers"),
    [
        (401, {"authorization": ""}),
        (401, {"authorization": "Bearer wrong"}),
        (421, {"host": "evil.example", "origin": "http://evil.example"}),
        (403, {"origin": "https://evil.example"}),
        (403, {"origin": "null"}),
        (403, {"origin": "http://127.0.0.1:9999"}),
        (403, {"origin": "http://localhost:8765"}),
        (403, {"sec-fetch-site": "cross-site"}),
        (403, {"sec-fetch-site": "same-site"}),
        (403, {"hx-request": ""}),
        (403, {"content-type": "text/plain"}),
        (403, {"content-type": "multipart/form-data; boundary=x"}),
        (403, {"content-type": "application/json"}),
    ],
)
async def test_every_other_request_to_change_something_is_refused(
    status: int, change_of_headers: Mapping[str, str]
) -> None:
    assert (await change(b"id=m1", {**FORM, **change_of_headers}))[0] == status


async def test_a_simple_form_is_refused() -> None:
    """A form of another page sends neither the token nor our header."""
    simple = {
        "host": "127.0.0.1:8765",
        "content-type": "application/x-www-form-urlencoded",
        "origin": "https://evil.example",
    }
    assert (await change(b"id=m1", simple))[0] == 403
    assert (await change(b"id=m1", {**simple, "origin": "http://127.0.0.1:8765"}))[0] == 401
    assert (await change(b"", FORM, "GET"))[0] == 405


def test_every_page_has_a_template() -> None:
    for page in PAGES:
        assert (FOLDER / "templates" / "views" / f"{page}.html").is_file()
    assert "Sign in" in rendered("shell", {"pages": PAGES, "page": "now", "path": "/dashboard"})


def test_times_are_told_in_a_few_words() -> None:
    assert [ago(1_000.0, 1_000.0 + n) for n in (5, 61, 7_300, 200_000)] == [
        "just now", "1 min ago", "2 h ago", "2 d ago",
    ]  # fmt: skip


def test_the_pages_use_the_words_of_their_readers() -> None:
    place = Memory(
        id="place:663c0a1b.1",
        text="`charges.py` is in src/shop.",
        source="session:0d5f7c1a-monday",
        triggers=("file:shop/charges.py",),
        trust=Trust.TOOL,
        provenance=Provenance(door="capture", tool="place", session="0d5f7c1a-monday"),
    )
    values: dict[str, Any] = {"path": "/dashboard", "memory": place, "citation": "", "rule": None}
    values |= dict.fromkeys(("is_stored", "in_trash", "successor", "can_pin"), False)
    values |= {"triggers": ["the file shop/charges.py is missing"], "said": 0, "used": 0}
    row = {"name": "ttl_store", "ok": True, "detail": "", "hint": "", "command": ""}
    pages = rendered("views/detail", values) + rendered("views/doctor", {"rows": [row]})
    words = re.sub(r"<[^>]*>", " ", pages)
    assert "session 0d5f7c1a" in words
    assert not re.search(r"place:|ttl_store|capture|episode|moment|\btool\b", words)
    assert not [why for why in REASONS.values() if re.search(r"episode|\bmoment\b", why)]
