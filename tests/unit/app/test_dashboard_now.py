"""The events on the Now page."""

from typing import Any

from msgspec.structs import replace
from tests.browser.past import shorten

from upwell.app import App
from upwell.app.dashboard.now import SAME_CALL_SECONDS, everything, rows, stream
from upwell.ground.types.cue import Cue
from upwell.ground.types.memory import LESSON, Memory, Provenance
from upwell.ground.types.rpc import ToolCall
from upwell.testing import ManualClock
from upwell.web.dashboard.templating import rendered

LOG = "\n".join(f"line {number} of the harbour log" for number in range(3_000))
CUE = Cue(door="tool", tool="Bash", args={"command": "cat log"}, session="s", host="claude")
CALL = ToolCall(
    server="claude", tool="Bash", params=b"{}", args={"command": "cat log"}, host="claude",
    session="s",
)  # fmt: skip


async def shown(app: App) -> list[tuple[str, bool]]:
    """The tool of each row, oldest first, and whether the row also has a shortened result."""
    page = await rows(app, {})
    return [(row["tool"], "cut" in row) for row in reversed(page["rows"])]


async def test_a_shortened_call_is_one_row_with_both_facts(timed: App, clock: ManualClock) -> None:
    for _ in range(2):
        await timed.surfacer.surface(CUE)
        clock.advance(0.5)
        await shorten(timed, CALL, LOG)
        clock.advance(0.5)
    assert await shown(timed) == [("Bash", True), ("Bash", True)]
    [newest, _] = (await rows(timed, {}))["rows"]
    assert newest["reason"]
    assert newest["cut"]["before"] > newest["cut"]["after"] > 0


async def test_a_result_that_may_be_of_another_call_remains_a_row(
    timed: App, clock: ManualClock
) -> None:
    for cue in (CUE, CUE, replace(CUE, tool="Grep"), replace(CUE, session="other")):
        await timed.surfacer.surface(cue)
        clock.advance(0.1)
    await shorten(timed, CALL, LOG)
    clock.advance(2 * SAME_CALL_SECONDS)
    await shorten(timed, replace(CALL, session="other"), LOG)
    tools = ["Bash", "Bash", "Grep", "Bash", "claude__Bash", "claude__Bash"]
    assert await shown(timed) == [(tool, False) for tool in tools]
    for cue in (CUE, Cue(door="prompt", text="Where do the ships go?", session="s")):
        await timed.surfacer.surface(cue)
        clock.advance(0.1)
    await shorten(timed, CALL, LOG)
    tools += ["Bash", "prompt", "claude__Bash"]
    assert await shown(timed) == [(tool, False) for tool in tools]


async def test_a_call_of_the_gateway_is_known_by_its_trace(timed: App, clock: ManualClock) -> None:
    traces = ["1" * 32, "2" * 32]
    for trace in traces:
        await timed.surfacer.surface(Cue(door="tool", tool="shop__list", trace_id=trace))
        clock.advance(60)
    call = replace(CALL, server="shop", tool="list", session="", host="", trace_id=traces[0])
    await shorten(timed, call, LOG)
    assert await shown(timed) == [("shop__list", True), ("shop__list", False)]


async def test_a_result_that_arrives_after_its_decision_comes_with_it(app: App) -> None:
    events: Any = stream(app, {"after": "0"})
    await app.surfacer.surface(CUE)
    assert "cut" not in await newest(events)
    await shorten(app, CALL, LOG)
    row = await newest(events)
    assert (row["tool"], row["cut"]["tool"]) == ("Bash", "claude__Bash")
    await events.aclose()


async def newest(events: Any) -> Any:
    async for fresh in events:
        if fresh:
            return fresh[0]
    raise AssertionError("the stream ended")


async def test_the_rest_of_the_findings_is_linked_and_only_sessions_with_a_page(app: App) -> None:
    origin = Provenance(door=LESSON, tool="place", session="gone")
    lessons = [
        Memory(text=f"Pier {number} is east.", namespace="lessons", provenance=origin)
        for number in range(7)
    ]
    await app.memory.add_many(lessons)
    values = await everything(app, {})
    page = rendered("views/learned", {**values, "path": "", "fields": {"folded": ""}})
    assert page.count("session gone") == 5
    assert "sessions?id=" not in page
    assert 'href="/memory?source=session:" data-page="memory">7 in Memory</a>' in page
    page = rendered(
        "views/learned", {**values, "indexed": {"gone"}, "path": "", "fields": {"folded": ""}}
    )
    assert page.count("sessions?id=gone") == 5
