"""Every button that acts: setting up, repairing, replaying, tuning, rating, moving and dropping."""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Dashboard, Open, a_past, dashboard_of
from tests.browser.past import RULE
from tests.browser.test_dashboard import recalled
from tests.unit.replay import samples
from upwell.app import Settings, build
from upwell.ground.types.memory import Memory

LONG = 120_000
QUESTION = "Which grease belongs on the slipway, tallow or mineral oil?"

COUNTED_SECONDS = 10.0


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """The dashboard of a user of Claude Code: this home has a past, and upwell has not read the
    latest session yet."""
    folder = tmp_path_factory.mktemp("acting")
    settings = settings_of(folder)
    settings.parent.mkdir(parents=True)
    settings.write_text('{"model": "opus"}')
    recent_session(folder / "user")
    a_past(folder / "home")
    asyncio.run(remember(folder / "home"))
    with dashboard_of(folder / "home") as running:
        yield running


def recent_session(user: Path) -> None:
    """Write a session of half an hour ago, which upwell has not read yet."""
    at = datetime.fromtimestamp(time.time() - 1_800, UTC).isoformat()
    own = {"sessionId": "recent-slipway", "timestamp": at, "cwd": str(user)}
    records = [samples.claude_record("user", "", QUESTION, **own)]
    samples.lines(user / ".claude/projects/-code-harbour/recent-slipway.jsonl", records)


async def remember(home: Path) -> None:
    """Add a memory that is older than the session."""
    app = await build(Settings(home=home, environment={}))
    try:
        await app.memory.add(
            Memory(
                text="The slipway is greased with tallow, because mineral oil kills the mussels.",
                created_at=time.time() - 86_400,
            )
        )
    finally:
        await app.aclose()


def settings_of(folder: Path) -> Path:
    return folder / "user/.claude/settings.json"


def test_agents_are_set_up_and_a_broken_hook_is_fixed(
    open_page: Open, dashboard: Dashboard
) -> None:
    settings = settings_of(dashboard.home.parent)
    page = open_page("health")
    page.get_by_role("button", name="Show what setup would change").click()
    expect(page.locator("#plan")).to_contain_text("hooks    claude: change", timeout=LONG)
    page.get_by_text("Every line that would change").click()
    expect(page.locator("#plan details")).to_contain_text("upwell-hook")
    assert "upwell-hook" not in settings.read_text()
    page.get_by_role("button", name="Set up now").click()
    expect(page.locator("#status")).to_contain_text("Set up. Restart your agents", timeout=LONG)
    assert "upwell-hook" in settings.read_text()
    hosts = page.locator(".hosts li", has_text="Claude Code")
    expect(hosts).to_contain_text("hooks installed")
    settings.write_text('{"model": "opus"}')
    page.reload()
    expect(hosts).to_contain_text("hooks missing from its settings")
    page.get_by_role("button", name="Fix", exact=True).first.click(timeout=LONG)
    expect(page.locator("#status")).to_contain_text("Done: upwell", timeout=LONG)
    assert "upwell-hook" in settings.read_text()
    assert json.loads(settings.read_text())["model"] == "opus"


def test_past_sessions_are_replayed_with_another_threshold(open_page: Open) -> None:
    page = open_page("sessions")
    button = page.get_by_role("button", name="Read my past sessions")
    if button.count():  # unless setting up has read them
        button.click()
    page.locator("#past .card", has_text=QUESTION).wait_for()
    page.get_by_role("link", name="Savings").click()
    page.get_by_role("link", name="Thresholds").click()
    page.get_by_label("Threshold", exact=True).fill("0.3")
    page.get_by_label("Sessions of").select_option("30d")
    page.get_by_role("button", name="Replay", exact=True).click()
    row = page.locator("#replayed li", has_text="The slipway is greased")
    expect(row.locator("time")).to_have_text(re.compile(r"\d\d:\d\d"), timeout=LONG)
    row.get_by_role("link", name="recent-s").click()
    expect(page.locator("main h1")).to_have_text(QUESTION)


def test_learned_thresholds_are_used_now_and_ratings_count(
    open_page: Open, dashboard: Dashboard
) -> None:
    page = open_page("savings?detail=thresholds")
    page.get_by_role("button", name="Use the suggested values now").click()
    expect(page.locator("#status")).not_to_be_empty()
    page.get_by_role("link", name="Now", exact=True).click()
    page.get_by_role("button", name="Not helpful").first.click()
    expect(page.locator("#status")).to_contain_text("noted not_relevant")
    # Figures are stored a moment after the answer.
    ends = time.monotonic() + COUNTED_SECONDS
    while not (counted := recalled(dashboard, "stats")["feedback"]["not_relevant"]):
        assert time.monotonic() < ends
    assert counted >= 1


def test_a_memory_moves_to_another_project(open_page: Open, dashboard: Dashboard) -> None:
    page = open_page("memory?tab=rules")
    page.get_by_role("link", name=RULE).click()
    page.get_by_text("Scope", exact=True).click()
    page.get_by_label("Project (empty: every project)").fill("")
    page.get_by_label("Files (globs)").fill("docs/**")
    page.get_by_role("button", name="Change scope").click()
    expect(page.locator("#status")).to_have_text("Now for every project.")
    expect(page.get_by_label("Files (globs)")).to_have_value("docs/**")
    (rule,) = recalled(dashboard, "rules")["rules"]
    assert rule["project"] is None


def test_a_proposal_is_banned(open_page: Open, dashboard: Dashboard) -> None:
    page = open_page("memory?tab=inbox")
    cards = page.locator(".memories > li")
    cards.first.wait_for()
    before = cards.count()
    cards.first.get_by_role("button", name="Never again").click()
    expect(cards).to_have_count(before - 1)
    assert len(recalled(dashboard, "inbox")["proposals"]) == before - 1


def test_a_rule_is_removed_and_restored_from_the_trash(open_page: Open) -> None:
    page = open_page("memory?tab=rules")
    rule = page.locator(".memories > li", has_text=RULE)
    rule.get_by_role("button", name="Remove").click()
    expect(rule).to_have_count(0)
    page.get_by_role("link", name="Trash").click()
    page.get_by_role("button", name="Restore").first.click()
    page.get_by_role("link", name="Rules").click()
    expect(page.locator(".memories > li", has_text=RULE)).to_have_count(1)
