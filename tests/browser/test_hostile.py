"""Hostile memories, prompts and results are only ever text on the dashboard."""

import pytest
from playwright.sync_api import Browser, Dialog, Page

from tests.browser.conftest import Dashboard, Open
from upwell.web.dashboard.routes import PAGES

FOREIGN = """() => [...document.querySelectorAll("*")].flatMap((element) => [
    ...element.getAttributeNames().filter((name) => name.startsWith("on")),
    ...(/^(javascript|data):/i.test(element.getAttribute("href") || "") ? ["href"] : []),
    ...(["script", "img"].includes(element.localName) &&
        !element.src.startsWith(location.origin) ? [element.localName] : []),
])"""


@pytest.mark.slow
def test_nothing_hostile_runs_on_any_page(open_page: Open) -> None:
    page = open_page("now")
    dialogs: list[Dialog] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog), dialog.dismiss()))
    root = page.url.rpartition("/")[0]
    paths = [*PAGES, "memory?tab=inbox", "memory?tab=review", *deep_paths(page)]
    seen = 0
    for path in paths:
        page.goto(f"{root}/{path}")
        page.locator("main h1").wait_for()
        page.wait_for_timeout(400)
        seen += page.get_by_text("window.hacked = 1").count()
        assert page.evaluate(FOREIGN) == [], path
        assert page.evaluate("window.hacked") is None, path
    assert seen >= 6
    assert dialogs == []


def test_the_policy_stops_what_would_slip_through(browser: Browser, dashboard: Dashboard) -> None:
    """Even if the server did not escape an event of the stream, nothing in it would run."""
    page = browser.new_page()
    page.goto(f"{dashboard.root}/now#token={dashboard.token}")
    page.locator("main h1").wait_for()
    handler = "<li class='event' id='e-x'><img src='x' onerror='window.hacked = 1'></li>"
    page.evaluate("html => arrived(html)", handler)
    page.wait_for_timeout(400)
    assert page.locator("#e-x img").count() == 1
    assert page.evaluate("window.hacked") is None
    page.close()


def deep_paths(page: Page) -> list[str]:
    """The paths of the long result's comparison, a session, and the hostile memory."""
    compare = str(page.get_by_role("link", name="compare").get_attribute("href"))
    session = str(page.locator(".where a").first.get_attribute("href"))
    page.goto(f"{page.url.rpartition('/')[0]}/memory?q=onerror+alert")
    link = page.locator("#memories a", has_text="window.hacked").first
    link.wait_for()
    return [path.rpartition("/")[2] for path in (compare, session, str(link.get_attribute("href")))]
