"""Every button that acts: setting up, mending, replaying, tuning, rating, moving and dropping."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Dashboard, Open, a_past, dashboard_of
from tests.browser.past import RULE
from tests.browser.test_dashboard import recalled
from tests.unit.app.test_past_sessions import pump_session

LONG = 120_000


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """The dashboard of a user of Claude Code, with a past in this home and in another session."""
    folder = tmp_path_factory.mktemp("acting")
    settings = settings_of(folder)
    settings.parent.mkdir(parents=True)
    settings.write_text('{"model": "opus"}')
    path = pump_session(folder / "user", folder / "user" / "harbour")
    os.utime(path)
    a_past(folder / "home")
    with dashboard_of(folder / "home") as running:
        yield running


def settings_of(folder: Path) -> Path:
    return folder / "user/.claude/settings.json"


def test_agents_are_set_up_and_a_broken_hook_is_mended(
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
    page.get_by_role("button", name="Mend").first.click(timeout=LONG)
    expect(page.locator("#status")).to_contain_text("Done: upwell", timeout=LONG)
    assert "upwell-hook" in settings.read_text()
    assert json.loads(settings.read_text())["model"] == "opus"


def test_past_sessions_are_replayed_with_another_threshold(open_page: Open) -> None:
    page = open_page("worth")
    page.get_by_label("Threshold", exact=True).fill("0.3")
    page.get_by_label("Sessions of").select_option("30d")
    page.get_by_role("button", name="Replay", exact=True).click()
    # The only past session is older.
    expect(page.locator("#replayed")).to_contain_text("No sessions to replay", timeout=LONG)


def test_learned_thresholds_are_used_now_and_ratings_count(
    open_page: Open, dashboard: Dashboard
) -> None:
    page = open_page("worth")
    page.get_by_role("button", name="Use the suggested values now").click()
    expect(page.locator("#status")).not_to_be_empty()
    page.get_by_role("button", name="Not helpful").first.click()
    expect(page.locator("#status")).not_to_be_empty()
    assert recalled(dashboard, "stats")["feedback"]["not_relevant"] >= 1


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
