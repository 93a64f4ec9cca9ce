"""Debian's Chromium, and the dashboard of a home with a past."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.browser.past import live
from upwell.app import Settings, build

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --js-flags=--expose-gc"
).split()
DESKTOP, PHONE = (1280, 900), (390, 844)


@dataclass(frozen=True)
class Dashboard:
    """A running `upwell dashboard`."""

    address: str
    home: Path

    @property
    def root(self) -> str:
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc}/dashboard"

    @property
    def token(self) -> str:
        return urlsplit(self.address).fragment.removeprefix("token=")


@contextmanager
def dashboard_of(home: Path) -> Iterator[Dashboard]:
    """The dashboard of a home, in a process of its own."""
    user = home.parent / "user"
    user.mkdir(exist_ok=True)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(user),
        "UPWELL_HOME": str(home),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
    }
    running = subprocess.Popen(
        [sys.executable, "-m", "upwell", "dashboard", "--no-open"],
        env=environment, cwd=user, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert running.stdout
    try:
        yield Dashboard(running.stdout.readline().strip(), home)
    finally:
        running.terminate()
        running.wait(timeout=20)
        running.stdout.close()


def a_past(home: Path) -> None:
    """Give this home memories, events and shortened results."""

    async def work() -> None:
        app = await build(Settings(home=home, environment={}))
        try:
            await live(app, home.parent / "shop")
        finally:
            await app.aclose()

    asyncio.run(work())


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """The dashboard of a home with a past."""
    home = tmp_path_factory.mktemp("browser") / "home"
    a_past(home)
    with dashboard_of(home) as running:
        yield running


@contextmanager
def started_browser() -> Iterator[Browser]:
    """Chromium. Close it before asynchronous tests run: Playwright's event loop blocks them."""
    chromium = shutil.which("chromium")
    assert chromium, "run dev/chromium"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def browser(dashboard: Dashboard) -> Iterator[Browser]:
    """One browser for the tests of a file."""
    with started_browser() as opened:
        yield opened


Open = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser, dashboard: Dashboard) -> Iterator[Open]:
    """`open_page("memory", size=PHONE, scheme="dark")`: a signed-in page, in a context of its own.
    Fails afterwards if the console has an error."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def opened(
        path: str = "now", size: tuple[int, int] = DESKTOP, scheme: str = "light", at: str = ""
    ) -> Page:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=scheme,  # type: ignore[arg-type]
            reduced_motion="reduce",
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", lambda line: complaints.append(line.text) if _is_bad(line) else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{at or dashboard.root}/{path}#token={dashboard.token}")
        page.locator("main h1").wait_for()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def _is_bad(line: object) -> bool:
    return getattr(line, "type", "") in ("error", "warning")
