"""Shortened results: their rows on the Now page, and the comparison with the original."""

import asyncio
import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import DESKTOP, PHONE, Dashboard, Open, dashboard_of
from tests.browser.past import HOSTILE, shorten
from tests.browser.test_hostile import FOREIGN
from upwell.app import Settings, build
from upwell.ground.types.rpc import ToolCall

SHIPS = [{"id": n, "name": f"ship {n * 7919 % 10_007}", "note": HOSTILE} for n in range(400)]
STORY = " ".join(f"Ship {n} left the harbour {HOSTILE}." for n in range(400))


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """The dashboard of a home with two shortened results, each of one line."""
    home = tmp_path_factory.mktemp("comparison") / "home"

    async def work() -> None:
        app = await build(Settings(home=home, environment={}))
        try:
            for session, text in (("ships", json.dumps(SHIPS)), ("story", STORY)):
                call = ToolCall(
                    server="claude", tool="Bash", params=b"{}", args={"command": "cat ships"},
                    host="claude", session=session, cwd="/srv/shop",
                )  # fmt: skip
                await shorten(app, call, text)
        finally:
            await app.aclose()

    asyncio.run(work())
    with dashboard_of(home) as running:
        yield running


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
@pytest.mark.parametrize(
    ("session", "counts"), [("ships", "of 400 items"), ("story", "characters")]
)
def test_what_was_left_out_of_one_long_line_is_marked_in_it(
    open_page: Open, size: tuple[int, int], session: str, counts: str
) -> None:
    page = open_page(f"sessions?id={session}", size)
    page.get_by_role("link", name="compare").click()
    expect(page.locator("main p.soft").first).to_contain_text(counts)
    original = page.get_by_label("Original text")
    assert original.locator("del").count() >= 1
    marked = sum(map(len, original.locator("del").all_inner_texts()))
    assert 0 < marked < len(original.inner_text()) - 100
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(FOREIGN) == []
    assert page.evaluate("window.hacked") is None


def test_a_decision_takes_the_place_of_the_shortened_result_of_its_call(open_page: Open) -> None:
    page = open_page("now")
    rows = page.locator("#events li.event")
    expect(rows).to_have_count(2)
    cut = str(rows.first.get_attribute("id"))
    joined = f"<li class='event cut' id='e-decision' data-replaces='{cut}'>both facts</li>"
    page.get_by_role("button", name="Pause").click()
    page.evaluate("html => { arrived(html); arrived(html) }", joined)
    expect(page.locator("#waiting")).to_have_text("1 new")
    page.get_by_role("button", name="Resume").click()
    expect(rows).to_have_count(2)
    expect(rows.first).to_have_text("both facts")
