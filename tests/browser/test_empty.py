"""The dashboard of a new user: every page says what will appear, and how to begin."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import PHONE, Dashboard, Open, dashboard_of

EMPTY = ("now", "sessions", "memory", "savings")


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """The dashboard of a home in which nothing has happened."""
    with dashboard_of(tmp_path_factory.mktemp("new") / "home") as running:
        yield running


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_page_says_what_will_appear_and_how_to_begin(open_page: Open, name: str) -> None:
    page = open_page(name, PHONE)
    page.wait_for_timeout(300)
    expect(page.locator(".empty")).to_contain_text("Nothing here yet")
    expect(page.locator(".empty")).to_contain_text("upwell setup")


def test_the_plan_of_setup_is_shown_before_anything_changes(open_page: Open) -> None:
    page = open_page("memory")
    page.get_by_role("button", name="Show what it would change").click()
    expect(page.locator("#plan")).to_contain_text("What upwell setup would do", timeout=30_000)
    expect(page.get_by_role("button", name="Set up now")).to_be_visible()


def test_a_replay_without_sessions_says_so(open_page: Open) -> None:
    page = open_page("savings")
    page.get_by_role("button", name="Replay a week").click()
    expect(page.locator("#plan")).to_contain_text("No transcripts were found", timeout=60_000)


def test_the_first_memory_replaces_the_empty_page(open_page: Open) -> None:
    page = open_page("memory")
    page.get_by_text("Remember something").click()
    page.locator(".new textarea").fill("The harbour freezes in January.")
    page.get_by_role("button", name="Remember").click()
    expect(page.get_by_role("status")).to_have_text("Remembered.")
    expect(page.locator("#memories")).to_contain_text("The harbour freezes")
    expect(page.locator(".empty")).to_have_count(0)


def test_a_user_whose_agents_are_set_up_is_not_asked_to_set_them_up(
    open_page: Open, dashboard: Dashboard
) -> None:
    hooks = dashboard.home / "hooks.json"
    assert not hooks.exists()
    hooks.write_text('{"claude": {"path": "/home/dev/.claude/settings.json"}}')
    try:
        page = open_page("savings")
        expect(page.locator(".empty")).to_contain_text("Your agents are set up")
        expect(page.get_by_role("button", name="Show what it would change")).to_have_count(0)
    finally:
        hooks.unlink()
