"""A late answer of another memory server comes with the next search about the same subject, and its
hits can be read after a restart."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from upwell.ground.clock import Deadline
from upwell.ground.errors import RecallUnavailable
from upwell.ground.ledger import TtlStore
from upwell.ground.names import memory_id
from upwell.ground.types.memory import Hit, Memory, Query, Scope
from upwell.memory.external.ltm import KeptHits, LtmRecall, Patience
from upwell.surface.render import citation
from upwell.testing import ManualClock

FACT = "src/billing/settle.py runs before midnight UTC, or refunds double."
FILE = "src/billing/settle.py"


class Gated:
    """A memory server that answers once the test opens it; if `failing`, its calls then fail."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.failing = False
        self.asked = 0

    def ready(self) -> bool:
        return True

    async def tools(self, deadline: Deadline) -> Mapping[str, frozenset[str]]:
        return {"mem_search": frozenset({"query"})}

    async def call(
        self, tool: str, arguments: Mapping[str, Any], deadline: Deadline
    ) -> Mapping[str, Any]:
        self.asked += 1
        await self.open.wait()
        if self.failing:
            raise RecallUnavailable("the memory server is broken", source="ltm")
        reply = json.dumps({"results": [{"content": FACT, "score": 0.5}]})
        return {"content": [{"type": "text", "text": reply}]}

    async def aclose(self) -> None:
        return None


class Slow:
    """A recall over a gated server. Nobody waits for its searches (`awaited` is False)."""

    def __init__(self, failures: int = 3) -> None:
        self.server = Gated()
        self.clock = ManualClock()
        patience = Patience(race_seconds=0.03, max_failures=failures, reset_seconds=60)
        self.recall = LtmRecall(self.server, patience, clock=self.clock)

    async def search(self, text: str, *paths: str, **more: Any) -> list[Hit]:
        query = Query(texts=(text,), paths=paths, **{"awaited": False, **more})
        return list((await self.recall.search(query, Deadline.after(30, self.clock))).hits)

    async def misses(self, why: str, text: str = "settle", *paths: str, **more: Any) -> None:
        with pytest.raises(RecallUnavailable, match=why):
            await self.search(text, *(paths or (FILE,)), **more)

    async def answers(self, after_seconds: float = 1.0) -> None:
        """Let the server answer its pending calls."""
        self.clock.advance(after_seconds)
        self.server.open.set()
        for _ in range(20):
            await asyncio.sleep(0)
        self.server.open.clear()


async def test_a_late_answer_is_used_by_the_next_search_about_the_file() -> None:
    slow = Slow()
    await slow.misses("did not answer within 20 ms", "settle")
    await slow.answers()
    (hit,) = await slow.search("when does it run", FILE)
    assert hit.memory.text == FACT
    assert hit.matched == ("when does it run",)
    assert slow.server.asked == 1


async def test_a_late_answer_is_used_once() -> None:
    slow = Slow()
    await slow.misses("did not answer")
    await slow.answers()
    assert await slow.search("settle", FILE)
    await slow.misses("is slow; the next search can use its answer")
    assert slow.server.asked == 2


@pytest.mark.parametrize(
    ("first", "then", "given"),
    [
        (("the settle job", ()), ("the settle job", ()), True),
        (("the settle job", ()), ("another thing", ()), False),
        (("the settle job", ()), ("the settle job", (FILE,)), False),
        (("x", (FILE, "a.py")), ("y", ("b.py", FILE)), True),
        (("x", ("a.py",)), ("x", ("b.py",)), False),
    ],
)
async def test_a_late_answer_is_used_only_for_the_same_subject(
    first: tuple[str, tuple[str, ...]], then: tuple[str, tuple[str, ...]], given: bool
) -> None:
    slow = Slow()
    with pytest.raises(RecallUnavailable):
        await slow.search(first[0], *first[1])
    await slow.answers()
    if given:
        assert await slow.search(then[0], *then[1])
    else:
        with pytest.raises(RecallUnavailable):
            await slow.search(then[0], *then[1])


async def test_after_a_minute_or_in_another_project_the_server_is_asked_again() -> None:
    slow = Slow()
    await slow.misses("did not answer")
    await slow.answers()
    await slow.misses("is slow", scope=Scope(project="/src/other"))
    await slow.answers()
    slow.clock.advance(61)
    await slow.misses("is slow")
    assert slow.server.asked == 3


async def test_no_search_waits_for_a_slow_server_until_it_is_quick_again() -> None:
    slow = Slow(failures=1)
    await slow.misses("did not answer within 20 ms")
    await slow.answers()
    await slow.misses("is slow; the next search", "x", "other.py")
    await slow.misses("still working on an earlier request", "y", "third.py")
    assert slow.server.asked == 2
    await slow.answers(after_seconds=0.01)
    slow.server.open.set()
    (hit,) = await slow.search("settle", "fourth.py")
    assert hit.memory.text == FACT


async def test_an_explicit_search_waits_for_a_slow_server() -> None:
    slow = Slow()
    await slow.misses("did not answer")
    await slow.answers()
    slow.server.open.set()
    (hit,) = await slow.search("settle", "other.py", awaited=True)
    assert hit.memory.text == FACT


async def test_a_slow_server_that_then_fails_is_skipped() -> None:
    slow = Slow(failures=1)
    await slow.misses("did not answer")
    await slow.answers()
    slow.server.failing = True
    await slow.misses("is slow", "x", "other.py")
    await slow.answers()
    await slow.misses("is paused; last failure: .*is broken", "y", "third.py")


async def test_closing_cancels_pending_requests() -> None:
    slow = Slow()
    await slow.misses("did not answer")
    await slow.recall.aclose()
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1


async def test_a_hit_is_read_by_its_citation_in_another_process() -> None:
    server, ttl_store = Gated(), TtlStore()
    server.open.set()
    recall = LtmRecall(server, kept=KeptHits(ttl_store))
    query = Query(texts=("when does settle run?",))
    result = await recall.search(query, Deadline.after(20.0))
    (hit,) = result.hits
    assert result.asked
    assert all(text.startswith("ltm: ") for text in result.asked)
    await recall.aclose()
    later = LtmRecall(Gated(), kept=KeptHits(ttl_store))
    memory = await later.get(memory_id(citation(hit.memory)))
    assert memory is not None
    assert (memory.text, memory.source) == (FACT, hit.memory.source)
    assert await later.get("ltm:0000000000000000") is None
    assert await later.get("some-other-id") is None


async def test_without_a_store_the_latest_hits_are_kept() -> None:
    kept = KeptHits()
    assert await kept.get("ltm:x") is None


def test_a_citation_names_the_file() -> None:
    memory = Memory(id="ltm:0123", text="x", source="ltm:/home/me/notes/release plan.md")
    assert citation(memory) == "upwell://memory/ltm:0123#release%20plan.md"
    assert memory_id(citation(memory)) == "ltm:0123"
    assert citation(Memory(id="ltm:0123", text="x", source="ltm:")) == "upwell://memory/ltm:0123"
