"""Past sessions of an agent on the dashboard: read, listed, searched, opened and replayed."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Dialog, Page, expect

from tests.browser.conftest import DESKTOP, PHONE, Dashboard, Open, dashboard_of
from tests.browser.past import HOSTILE
from tests.browser.test_dashboard import SCREENS
from tests.browser.test_hostile import FOREIGN
from tests.doors.npm.install import PREFIX, ensure
from tests.unit.app.test_past_sessions import TOKEN, pump_session
from tests.unit.replay import samples
from upwell.app import Settings, build
from upwell.replay.transcripts import transcripts_at

PAST = 60
RULE = "Never dredge the inner harbour at low tide."
TURNS = 15


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """The dashboard of a user with past sessions, one of which is long and hostile."""
    folder = tmp_path_factory.mktemp("past")
    user = folder / "user"
    pump_session(user, user / "harbour")
    own = user / ".claude/projects/-code-harbour"
    for number in range(PAST):
        question = f"How deep is berth {number}?"
        at = f"11:{number:02}:00"
        records = [samples.claude_record("user", at, question, sessionId=f"berth-{number}")]
        samples.lines(own / f"berth-{number}.jsonl", records)
    hostile = [samples.claude_record("user", "12:00:00", HOSTILE, sessionId="hostile")]
    for number in range(TURNS):
        at = f"12:{number + 1:02}"
        hostile += [
            samples.claude_record("user", f"{at}:00", f"Turn {number} {HOSTILE}"),
            samples.claude_call(f"{at}:01", "Grep", f"g{number}", pattern=HOSTILE, path=HOSTILE),
            samples.claude_result(f"{at}:02", f"error: {HOSTILE}", f"g{number}", is_error=True),
            samples.claude_record("assistant", f"{at}:03", [{"type": "text", "text": HOSTILE}]),
        ]
    for record in hostile:
        record["sessionId"] = "hostile"
    samples.lines(own / "hostile.jsonl", hostile)
    asyncio.run(learn(folder / "home", own))
    with dashboard_of(folder / "home") as running:
        yield running


async def learn(home: Path, folder: Path) -> None:
    """Learn from the sessions in this folder, of which one gives a rule."""
    at = ("13:00:00", RULE)
    records = [samples.claude_record("user", *at, sessionId="ruled", cwd=str(folder))]
    samples.lines(folder / "ruled.jsonl", records)
    app = await build(Settings(home=home, environment={}))
    try:
        for transcript in transcripts_at([folder]):
            await app.session_capture().read(transcript)
    finally:
        await app.aclose()


def read_sessions(page: Page) -> None:
    """Let the dashboard read past sessions, unless an earlier test did so."""
    button = page.get_by_role("button", name="Read my past sessions")
    page.locator("#past, .empty").first.wait_for()
    if button.count():
        button.click()
    expect(page.locator("#past .card").nth(39)).to_be_attached()


def test_no_page_says_that_there_is_nothing_beside_read_sessions(open_page: Open) -> None:
    page = open_page("sessions")
    read_sessions(page)
    for name in ("now", "sessions", "memory", "savings"):
        page.get_by_label("Pages").get_by_text(name.title()).click()
        expect(page.locator("main h1")).to_have_text(name.title())
        expect(page.locator("main")).not_to_contain_text("Nothing here yet")
    page.goto(f"{page.url.partition('/dashboard')[0]}/dashboard/now")
    expect(page.locator(".learned h2")).to_contain_text(
        f"{PAST + 3} sessions read: 1 rule you gave"
    )
    rule = page.locator(".taught li", has_text=RULE)
    expect(rule).to_contain_text("waits in the inbox")
    expect(page.locator(".learned").get_by_text("All of them")).to_have_count(0)
    rule.get_by_role("link", name="session ruled").click()
    expect(page.locator("main")).to_contain_text("What this session taught")
    expect(page.locator(".taught")).to_contain_text(RULE)


def test_the_empty_page_reads_past_sessions(open_page: Open) -> None:
    page = open_page("sessions", PHONE)
    read_sessions(page)
    expect(page.locator("#past .card")).to_have_count(40)
    expect(page.locator("#past .card").first).to_contain_text("rule you gave")
    expect(page.locator("#past .card").nth(1)).to_contain_text("window.hacked")
    expect(page.locator("#past .card").nth(2)).to_contain_text("How deep is berth 59?")
    page.get_by_role("button", name="Earlier sessions").click()
    expect(page.locator("#past .card")).to_have_count(PAST + 3)
    expect(page.locator("#past .card").last).to_contain_text("Why does the pump stall?")
    expect(page.locator("#past .card").last).to_contain_text("without upwell")


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_a_past_session_is_found_opened_and_replayed(
    open_page: Open, size: tuple[int, int]
) -> None:
    page = open_page("sessions", size)
    read_sessions(page)
    page.get_by_label("Search").fill("pump stalls")
    card = page.locator("#past .card", has_text="A shell blocked the inlet")
    card.locator("a").click()
    expect(page.locator("main h1")).to_have_text("Why does the pump stall?")
    steps = page.locator(".timeline li.event")
    expect(steps).to_have_count(5)
    expect(steps.nth(1)).to_contain_text("make dok")
    expect(steps.nth(1)).to_contain_text("failed: make: *** No rule to make target")
    expect(steps.nth(3)).to_contain_text("harbour/pump.py")
    assert TOKEN not in page.content()
    page.get_by_role("button", name="What would upwell have said?").click()
    expect(page.locator("#hindsight")).to_contain_text("of 5 events", timeout=60_000)
    page.get_by_role("link", name="All sessions").click()
    expect(page.locator("main h1")).to_have_text("Sessions")
    page.get_by_label("Agent").select_option("claude")
    page.get_by_label("Search").fill("xylophone")
    expect(page.locator("#past")).to_contain_text("No session matches.")


def test_a_session_is_opened_with_the_keyboard_alone(open_page: Open) -> None:
    page = open_page("sessions")
    read_sessions(page)
    page.get_by_label("Search").focus()
    page.keyboard.type("pump stalls")
    expect(page.locator("#past .card")).to_have_count(1)
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("main h1")).to_have_text("Why does the pump stall?")
    expect(page.locator("main")).to_be_focused()


def test_a_hostile_transcript_is_only_text(open_page: Open) -> None:
    page = open_page("sessions")
    read_sessions(page)
    dialogs: list[Dialog] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog), dialog.dismiss()))
    page.locator("#past .card a", has_text="window.hacked").first.click()
    prompts = page.locator(".timeline li.prompt")
    expect(prompts).to_have_count(12)
    page.get_by_role("button", name="4 more turns").click()
    expect(prompts).to_have_count(TURNS + 1)
    assert page.get_by_text("window.hacked = 1").count() > 4 * TURNS
    assert page.evaluate(FOREIGN) == []
    assert page.evaluate("window.hacked") is None
    assert dialogs == []


@pytest.mark.slow
@pytest.mark.parametrize(("size", "scheme"), SCREENS)
def test_past_sessions_are_accessible_and_fit_the_screen(
    open_page: Open, size: tuple[int, int], scheme: str
) -> None:
    ensure()
    page = open_page("sessions", size, scheme)
    read_sessions(page)
    for path in ("sessions", "sessions?q=pump", "sessions?id=hostile"):
        page.goto(f"{page.url.partition('/dashboard')[0]}/dashboard/{path}")
        page.locator("main h1").wait_for()
        page.locator("#past .card, .timeline li").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0], path
        page.evaluate((PREFIX / "node_modules/axe-core/axe.min.js").read_text())
        found = page.evaluate("axe.run(document)")["violations"]
        bad = [one["id"] for one in found if one["impact"] in ("serious", "critical")]
        assert bad == [], path
