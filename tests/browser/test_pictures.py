"""The pictures of the docs. `make pictures` keeps them in `docs/pictures`."""

import asyncio
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import DESKTOP, PHONE, Dashboard, Open, dashboard_of
from tests.browser.past import LOG, live, shorten
from tests.conftest import ROOT
from upwell.app import Settings, build
from upwell.ground.types.rpc import ToolCall
from upwell.testing import ManualClock

WIDE = (1000, 700)
MAX_BYTES = 160_000
WITHOUT_HOSTILE = """() => document.querySelectorAll(".event, .memory").forEach((element) => {
    if (element.textContent.includes("window.hacked")) element.remove()
})"""
DAY = 86_400.0
COMMANDS = ("cat worker.log", "kubectl logs api", "make test", "gh run view 812 --log")


@pytest.fixture(scope="module")
def month(dashboard: Dashboard, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """The dashboard of a home in which an agent has worked for a month; `open_page` signs in."""
    home = tmp_path_factory.mktemp("month") / "home"
    # Playwright's event loop is running in this thread.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, a_month(home)).result()
    (home / "token").write_text(dashboard.token)
    with dashboard_of(home) as running:
        yield running


async def a_month(home: Path) -> None:
    today = time.time()
    for day in range(29, -1, -1):
        if time.gmtime(today - day * DAY).tm_wday < 5:
            await a_day(home, today - day * DAY, day)


async def a_day(home: Path, at: float, day: int) -> None:
    """One to four long results, and two sessions with memories on every fifth day."""
    app = await build(Settings(home=home, environment={}, clock=ManualClock(at)))
    try:
        if day % 5 == 0:
            await live(app, home.parent / "shop")
        for number in range(1 + day * 7 % 4):
            lines = LOG.splitlines()[: 600 + (day * 331 + number * 517) % 3_000]
            call = ToolCall(
                server="claude", tool="Bash", params=b"{}", host="claude",
                args={"command": COMMANDS[number]},
                session=f"day-{day}", cwd=str(home.parent / ("shop", "api")[number % 2]),
            )  # fmt: skip
            await shorten(app, call, "\n".join(lines))
        await app.cuts.flush()
    finally:
        await app.aclose()


def keep(name: str, shot: bytes) -> None:
    """Keep a picture if `make pictures` asks for it, and check that the docs have one."""
    assert 5_000 < len(shot) < MAX_BYTES
    kept = ROOT / "docs" / "pictures" / f"{name}.png"
    if os.environ.get("UPWELL_PICTURES"):
        kept.write_bytes(shot)
    assert kept.is_file(), "run `make pictures`"


def settled(page: Page) -> Page:
    """The page without the hostile texts of the tests, when everything is drawn."""
    page.wait_for_timeout(500)
    page.evaluate(WITHOUT_HOSTILE)
    return page


def test_the_pages(open_page: Open) -> None:
    keep("now", settled(open_page("now?file=", DESKTOP)).screenshot())
    page = settled(open_page("memory", PHONE, "dark"))
    keep("memory-phone", page.screenshot())


def test_an_agent_is_told_the_one_thing_it_needed(open_page: Open) -> None:
    page = settled(open_page("now?file=", WIDE))
    told = page.locator(".event", has_text="Which time zone").first
    assert "Asia/Seoul" in told.inner_text()
    keep("told", told.screenshot())


def test_a_month_of_savings(open_page: Open, month: Dashboard) -> None:
    page = settled(open_page("savings", (1280, 790), at=month.root))
    keep("savings", page.screenshot())
