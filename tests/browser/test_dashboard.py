"""What a person does on the dashboard, on a desktop and on a phone, with a mouse and without."""

import json
import re
import secrets
import subprocess
import sys
import time
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import DESKTOP, PHONE, Dashboard, Open
from tests.browser.past import MEMORIES, RULE
from tests.doors.npm.install import PREFIX, ensure
from upwell.web.dashboard.routes import PAGES

SCREENS = ((DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light"), (PHONE, "dark"))


def upwell(dashboard: Dashboard, *args: str, stdin: str = "") -> str:
    """The output of a command for this home."""
    home = str(dashboard.home)
    done = subprocess.run(
        [sys.executable, "-m", "upwell", *args],
        env={"UPWELL_HOME": home, "HOME": home, "PATH": "/usr/bin:/bin"},
        input=stdin,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def recalled(dashboard: Dashboard, *args: str) -> Any:
    """The JSON output of a command for this home."""
    return json.loads(upwell(dashboard, *args, "--json"))


def test_the_events_show_the_memories_or_the_reason_for_silence(open_page: Open) -> None:
    page = open_page("now")
    events = page.locator("#events li.event")
    assert events.count() >= 14
    spoke = events.filter(has_text="Why do orders get stuck")
    expect(spoke.first).to_contain_text(MEMORIES[0].replace("`", ""))
    expect(spoke.first.locator(".because")).to_contain_text("informative words")
    expect(spoke.first).to_contain_text("claude")
    expect(spoke.first).to_contain_text("shop")
    expect(events.filter(has_text="src/payments.py").first).to_contain_text("silent: ")
    expect(events.filter(has_text="shortened from").first).to_contain_text("claude__Bash")


def test_the_reasons_for_silence_have_the_figures_of_the_command_line(
    open_page: Open, dashboard: Dashboard
) -> None:
    page = open_page("now")
    page.get_by_text("Why upwell stayed silent").click()
    skips = recalled(dashboard, "stats", "--days", "30")["skips"]
    rows = page.locator(".learned tbody tr")
    expect(rows).to_have_count(sum(number > 0 for number in skips.values()))
    expect(rows.first.locator(".n")).to_have_text(f"{max(skips.values()):,}")


def test_filters_keep_the_events_that_match(open_page: Open) -> None:
    page = open_page("now")
    page.get_by_label("File").fill("payments")
    expect(page.locator("#events li.event")).to_have_count(2)
    assert "file=payments" in page.url
    page.get_by_label("File").fill("")
    page.get_by_label("Tool").select_option("Grep")
    expect(page.locator("#events li.event")).to_have_count(2)
    page.get_by_label("Tool").select_option("")
    page.get_by_label("only what was said").check()
    expect(page.locator("#events .why")).to_have_count(0)


def test_a_new_event_appears_by_itself_and_waits_while_paused(
    open_page: Open, dashboard: Dashboard
) -> None:
    upwell(dashboard, "daemon", "start")
    page = open_page("now")
    page.get_by_role("button", name="Pause").click()
    room = secrets.token_hex(4)  # a second try still sees the events of the first
    event = {"hook_event_name": "UserPromptSubmit", "session_id": room, "cwd": "/tmp"}
    for prompt in (f"where does {room} keep its clock?", "and the staging database?"):
        upwell(dashboard, "hook", "claude", stdin=json.dumps({**event, "prompt": prompt}))
    # An event of an earlier test may still arrive, too.
    expect(page.locator("#waiting")).to_have_text(re.compile(r"^[2-9] new$"), timeout=20_000)
    assert page.locator("#events li.event", has_text=f"{room} keep its clock").count() == 0
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#events li.event").first).to_contain_text("and the staging database?")
    expect(page.locator("#events li.event", has_text=f"{room} keep its clock")).to_have_count(1)
    upwell(dashboard, "daemon", "stop")


def test_a_rating_counts(open_page: Open, dashboard: Dashboard) -> None:
    page = open_page("now")
    thumb = page.get_by_role("button", name="Helpful", exact=True).first
    thumb.click()
    expect(page.get_by_role("status")).not_to_be_empty()
    expect(thumb).to_have_attribute("aria-pressed", "true")
    end = time.monotonic() + 20
    while not (helpful := recalled(dashboard, "stats")["feedback"]["helpful"]):
        assert time.monotonic() < end
        time.sleep(0.2)
    assert helpful >= 1
    page.reload()
    expect(page.locator(".thumbs [aria-pressed=true]")).to_have_count(1)


def test_a_standing_rule_has_no_thumbs(open_page: Open, dashboard: Dashboard) -> None:
    text = f"Rule {secrets.token_hex(4)}: answer in verse"
    upwell(dashboard, "daemon", "start")
    rule = upwell(dashboard, "rules", "add", "--everywhere", text).strip()
    event = {"hook_event_name": "SessionStart", "source": "startup", "cwd": "/tmp"}
    upwell(dashboard, "hook", "claude", stdin=json.dumps({**event, "session_id": text}))
    row = open_page("now").locator(".said li", has_text=text)
    expect(row).to_contain_text("standing rule", timeout=20_000)
    expect(row.get_by_role("button")).to_have_count(0)
    upwell(dashboard, "forget", rule)
    upwell(dashboard, "daemon", "stop")


def test_a_session_is_a_timeline_with_the_original_beside_what_the_agent_saw(
    open_page: Open,
) -> None:
    page = open_page("sessions")
    page.locator(".cards .card a", has_text="Why do orders").first.click()
    expect(page.locator("main h1")).to_contain_text("Why do orders get stuck")
    times = page.locator(".events li.event")
    expect(times.first).to_contain_text("startup")
    page.go_back()
    expect(page.locator("main h1")).to_have_text("Sessions")
    page.goto(page.url.replace("/sessions", "/now"))
    page.get_by_role("link", name="compare").click()
    expect(page.locator(".beside")).to_contain_text("left out: lines")
    assert page.locator(".beside del.omitted").count() >= 1


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_a_memory_is_found_edited_pinned_replaced_forgotten_and_restored(
    open_page: Open, dashboard: Dashboard, size: tuple[int, int]
) -> None:
    page = open_page("memory", size)
    page.get_by_text("Remember something").click()
    page.locator(".new textarea").fill(f"The kettle of office {size[0]} whistles in B flat.")
    page.get_by_role("button", name="Remember").click()
    expect(page.get_by_role("status")).to_have_text("Remembered.")
    page.get_by_label("Search").fill(f"kettle office {size[0]} whistles")
    page.locator("#memories a", has_text=f"office {size[0]}").first.click()
    page.locator("article textarea").first.fill(f"The kettle of office {size[0]} hums in C.")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_have_text("Saved.")
    page.get_by_role("button", name="Pin as a rule").click()
    expect(page.get_by_role("button", name="Unpin")).to_be_visible()
    assert any("hums in C" in rule["text"] for rule in recalled(dashboard, "rules")["rules"])
    page.get_by_role("button", name="Unpin").click()
    expect(page.get_by_role("button", name="Pin as a rule")).to_be_visible()
    page.get_by_text("Replace with a newer one").click()
    page.get_by_label("New text").fill(f"The kettle of office {size[0]} is broken.")
    page.get_by_role("button", name="Replace", exact=True).click()
    page.get_by_role("link", name="a newer one").click()
    page.get_by_role("button", name="Forget").click()
    expect(page.get_by_text("In the trash.")).to_be_visible()
    page.get_by_role("button", name="Restore").click()
    expect(page.get_by_role("button", name="Forget")).to_be_visible()
    hits = recalled(dashboard, "recall", f"kettle office {size[0]}")["hits"]
    assert any(f"office {size[0]} is broken" in hit["text"] for hit in hits)


def test_the_inbox_is_emptied_by_decisions(open_page: Open, dashboard: Dashboard) -> None:
    page = open_page("memory?tab=inbox")
    expect(page.locator("nav .count")).to_have_text("2")
    rule = page.locator(".memories > li", has_text="api/gen")
    rule.get_by_label("Text").fill("Never edit files under `api/gen`; they are generated.")
    rule.get_by_role("button", name="Keep").click()
    expect(page.locator(".memories > li", has_text="api/gen")).to_have_count(0)
    page.get_by_role("button", name="Drop").click()
    expect(page.get_by_text("The inbox is empty")).to_be_visible()
    expect(page.locator("nav .count")).to_be_hidden()
    assert recalled(dashboard, "inbox")["proposals"] == []
    texts = [rule["text"] for rule in recalled(dashboard, "rules")["rules"]]
    assert "Never edit files under `api/gen`; they are generated." in texts


def test_a_session_on_now_leads_to_that_session(open_page: Open) -> None:
    page = open_page("now")
    event = page.locator("#events li.event", has_text="Which time zone").first
    link = event.locator(".where a")
    name = str(link.get_attribute("href")).partition("id=")[2]
    link.click()
    expect(page.locator("main h1")).to_have_text(
        "Why do orders get stuck when the payment gateway fails?"
    )
    expect(page.locator(".where code")).to_have_text(name)
    expect(page.locator("#past")).to_have_count(0)
    page.reload()
    expect(page.locator(".where code")).to_have_text(name)


def test_a_filter_that_is_still_typed_does_not_change_the_next_page(open_page: Open) -> None:
    page = open_page("now")
    link = page.locator("#events .where a").first
    address = str(link.get_attribute("href"))
    page.evaluate(
        """() => {
            const file = document.querySelector("[name=file]")
            file.value = "payments"
            file.dispatchEvent(new Event("input", { bubbles: true }))
            document.querySelector("#events .where a").click()
        }"""
    )
    page.locator(".timeline").wait_for()
    page.wait_for_timeout(500)
    assert page.url.endswith(address)


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_the_navigation_stays_where_it_is(open_page: Open, size: tuple[int, int]) -> None:
    page = open_page("now", size)
    links = page.get_by_label("Pages").get_by_role("link")
    places = [link.bounding_box() for link in links.all()]
    links.nth(2).click()
    expect(page.locator("main h1")).to_have_text("Memory")
    expect(links.nth(2)).to_have_attribute("aria-current", "page")
    assert [link.bounding_box() for link in links.all()] == places


def test_a_command_breaks_between_its_words_only(open_page: Open) -> None:
    page = open_page("health", PHONE)
    words = page.locator(".command .word", has_text="--apply")
    words.first.wait_for()
    heights = {round(word.bounding_box()["height"]) for word in words.all()}  # type: ignore[index]
    assert max(heights) < 30
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_search_finds_a_standing_rule_and_marks_it(open_page: Open) -> None:
    page = open_page("memory")
    page.get_by_label("Search").fill("what customers read")
    rule = page.locator("#memories li", has_text=RULE)
    expect(rule.locator(".mark").first).to_have_text("standing rule")
    page.get_by_label("Kind").select_option("episode")
    expect(rule).to_have_count(0)


def test_a_rule_is_paused_and_resumed(open_page: Open) -> None:
    page = open_page("memory?tab=rules")
    rule = page.locator(".memories > li", has_text="British English")
    rule.get_by_role("button", name="Pause").click()
    expect(rule).to_contain_text("paused")
    rule.get_by_role("button", name="Resume").click()
    expect(rule.get_by_role("button", name="Pause")).to_be_visible()


def test_savings_and_health_have_the_figures_of_the_command_line(
    open_page: Open, dashboard: Dashboard
) -> None:
    stats = recalled(dashboard, "stats", "--days", "30")
    page = open_page("worth")
    expect(page.locator("main h1")).to_have_text("Savings")
    assert "/dashboard/savings" in page.url, "the address of a page that is gone"
    tile = page.locator(".tiles > div", has_text="said per 100 events")
    expect(tile).to_contain_text(f"{stats['said_per_100']:.1f}")
    total = recalled(dashboard, "gain", "--days", "30")["total"]
    expect(page.locator(".share .big")).to_have_text(f"{total['net']:,}")
    page.get_by_role("link", name="Health").click()
    expect(page.locator(".doctor li", has_text="memory").first).to_contain_text("searched in")
    page.get_by_role("button", name="Turn off").click()
    expect(page.get_by_role("heading", name="upwell is off")).to_be_visible()
    assert (dashboard.home / "paused").exists()
    page.get_by_role("button", name="Turn on").click()
    expect(page.get_by_role("heading", name="upwell is on")).to_be_visible()


def test_no_word_of_a_table_is_broken_on_a_phone(open_page: Open) -> None:
    page = open_page("savings?detail=thresholds", PHONE)
    table = page.get_by_label("Learned thresholds")
    expect(table.locator("tbody tr").first).to_be_visible()
    broken = table.evaluate(
        """(table) => [...table.querySelectorAll("th, td")].flatMap((cell) =>
            [...cell.textContent.matchAll(/[\\w.]+/g)].filter((word) => {
                const range = document.createRange()
                range.setStart(cell.firstChild, word.index)
                range.setEnd(cell.firstChild, word.index + word[0].length)
                return range.getClientRects().length > 1
            }).map(String))"""
    )
    assert broken == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_card_is_an_image(open_page: Open) -> None:
    page = open_page("savings")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as image").click()
    assert download.value.path().read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_everything_can_be_reached_with_the_keyboard(open_page: Open) -> None:
    page = open_page("memory")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    reached: list[str] = []
    for _ in range(60):
        page.keyboard.press("Tab")
        name = page.evaluate(
            """() => {
                const element = document.activeElement
                const style = getComputedStyle(element)
                const seen = style.outlineStyle !== "none" || element.id === "main"
                return `${seen ? "" : "UNSEEN "}${element.innerText || element.name || element.id}`
            }"""
        )
        reached.append(name)
        if "orders.stuck" in name:
            break
    assert not [name for name in reached if name.startswith("UNSEEN")]
    assert any("Savings" in name for name in reached)
    assert "orders.stuck" in reached[-1]
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Save").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize(("size", "scheme"), SCREENS)
def test_no_page_has_a_serious_fault_of_accessibility_or_is_wider_than_the_screen(
    open_page: Open, size: tuple[int, int], scheme: str
) -> None:
    ensure()
    page = open_page("now", size, scheme)
    axe = (PREFIX / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    address = page.url.rpartition("/")[0]
    for path in [
        *PAGES,
        "memory?tab=inbox",
        "memory?tab=rules",
        "memory?tab=review",
        "savings?detail=thresholds",
        *deep(page),
    ]:
        page.goto(f"{address}/{path}")
        page.locator("main h1").wait_for()
        page.wait_for_load_state("networkidle") if path != "now" else None
        page.evaluate(axe)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        faults = [
            f"{path}: {fault['id']} {fault['nodes'][0]['html'][:120]}"
            for fault in found["violations"]
            if fault["impact"] in ("serious", "critical")
        ]
        assert faults == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def deep(page: Page) -> list[str]:
    """The paths of a comparison, a memory and a session."""
    compare = page.get_by_role("link", name="compare").get_attribute("href")
    said = page.locator(".said a").first.get_attribute("href")
    session = page.locator(".where a").first.get_attribute("href")
    return [str(path).rpartition("/")[2] for path in (compare, said, session)]
