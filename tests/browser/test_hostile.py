"""Hostile memories, prompts and results are only ever text on the dashboard."""

from playwright.sync_api import Dialog, Page

from tests.browser.conftest import Open
from upwell.web.dashboard.routes import PAGES

FOREIGN = """() => [...document.querySelectorAll("*")].flatMap((element) => [
    ...element.getAttributeNames().filter((name) => name.startsWith("on")),
    ...(/^(javascript|data):/i.test(element.getAttribute("href") || "") ? ["href"] : []),
    ...(element.localName === "script" && !element.src.startsWith(location.origin) ? ["script"] : []),
    ...(element.localName === "img" && !element.src.startsWith(location.origin) ? ["img"] : []),
])"""


def test_nothing_hostile_runs_on_any_page(open_page: Open) -> None:
    page = open_page("now")
    dialogs: list[Dialog] = []
    page.on("dialog", dialogs.append)
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


def test_a_hostile_event_of_the_stream_is_text(open_page: Open) -> None:
    page = open_page("now")
    page.evaluate(
        'arrived(\'<li class="event" id="e-x"><img src="x" onerror="window.hacked = 1"></li>\')'
    )
    page.wait_for_timeout(300)
    assert page.evaluate("window.hacked") is None


def deep_paths(page: Page) -> list[str]:
    """The comparison of the long result, a session, and the hostile memory."""
    compare = str(page.get_by_role("link", name="compare").get_attribute("href"))
    session = str(page.locator(".where a").first.get_attribute("href"))
    page.goto(f"{page.url.rpartition('/')[0]}/memory?q=onerror+alert")
    link = page.locator("#memories a", has_text="window.hacked").first
    link.wait_for()
    return [path.rpartition("/")[2] for path in (compare, session, str(link.get_attribute("href")))]
