"""A fault of the memory side, of whatever kind, costs the surfacing and never the call."""

import asyncio
import logging

import pytest

from upwell.ground.errors import StoreUnwritable
from upwell.ground.ledger import TtlStore
from upwell.ground.types.cue import Cue, Skip, SkipReason, Surfacing
from upwell.ground.types.memory import Hit, Memory
from upwell.surface.options import PipelineOptions, SurfaceOptions
from upwell.surface.pipeline import Surfacer
from upwell.testing import FakeRecall, ManualClock

EVERY_MOMENT = PipelineOptions(surface=SurfaceOptions(moments="all"))

HIT = Hit(memory=Memory(id="m1", text="the cache reloads", content_hash="h"), score=0.9)
RULE = Memory(id="r", text="Never force-push", pinned=True)
READ = Cue(door="tool", tool="Read", args={"file_path": "src/cache.py"}, session="s")
PROMPT = Cue(door="prompt", text="how does the cache reload?", session="s")
BUG = KeyError("a bug of the store")


class Broken(FakeRecall):
    """A reader with one method that raises."""

    def __init__(self, method, error):
        super().__init__([HIT], rules=[RULE])
        setattr(self, method, self._raise)
        self._error = error

    async def _raise(self, *_, **__):
        raise self._error


class BrokenStore(TtlStore):
    """A TTL store with one method that raises."""

    def __init__(self, method):
        super().__init__()
        setattr(self, method, self._raise)

    async def _raise(self, *_, **__):
        raise BUG


@pytest.fixture(autouse=True)
def records(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("upwell"), "propagate", True)
    return caplog


@pytest.mark.parametrize("door", ["tool", "prompt", "ask"])
async def test_a_search_that_raises_anything_is_a_fault_with_its_traceback(records, door):
    cue = READ if door == "tool" else Cue(door=door, text=PROMPT.text, session="s")
    outcome = await Surfacer(Broken("search", BUG), TtlStore(), EVERY_MOMENT).surface(cue)
    if door == "prompt":
        assert isinstance(outcome, Surfacing), "the standing rules come without the search"
        assert [memory.id for memory in outcome.memories] == ["r"]
    else:
        assert isinstance(outcome, Skip)
        assert outcome.reason is SkipReason.FAULT
        assert "KeyError" in outcome.detail
        assert "a bug of the store" not in outcome.detail
    assert "Traceback" in records.text
    assert "a bug of the store" in records.text


async def test_an_unexpected_fault_counts_for_the_breaker():
    surfacer = Surfacer(
        Broken("search", BUG),
        TtlStore(),
        EVERY_MOMENT,
        clock=ManualClock(),
    )
    reasons = [(await surfacer.surface(READ)).reason for _ in range(4)]
    assert reasons == [*[SkipReason.FAULT] * 3, SkipReason.BREAKER_OPEN]


@pytest.mark.parametrize("method", ["get", "put_all"])
async def test_a_log_that_raises_anything_is_a_fault(records, method):
    surfacer = Surfacer(FakeRecall([HIT]), BrokenStore(method), EVERY_MOMENT)
    outcome = await surfacer.surface(READ)
    assert isinstance(outcome, Skip)
    assert outcome.reason is SkipReason.FAULT
    await surfacer.aclose()
    assert "Traceback" in records.text


@pytest.mark.parametrize("error", [BUG, StoreUnwritable("no room", hint="")])
async def test_rules_that_cannot_be_read_cost_the_rules_only(error):
    outcome = await Surfacer(Broken("pinned", error), TtlStore(), EVERY_MOMENT).surface(PROMPT)
    assert isinstance(outcome, Surfacing)
    assert [memory.id for memory in outcome.memories] == ["m1"]


@pytest.mark.parametrize("method", ["latest", "pinned"])
async def test_a_session_opens_without_what_cannot_be_read(method):
    surfacer = Surfacer(Broken(method, BUG), TtlStore(), EVERY_MOMENT)
    outcome = await surfacer.surface(Cue(door="session", session="s"))
    assert isinstance(outcome, Skip)
    expected = SkipReason.FAULT if method == "latest" else SkipReason.NO_CANDIDATES
    assert outcome.reason is expected


@pytest.mark.parametrize("method", ["delete", "scan"])
async def test_taking_back_and_compacting_never_raise(records, method):
    surfacer = Surfacer(FakeRecall([HIT]), BrokenStore(method), EVERY_MOMENT)
    outcome = await surfacer.surface(READ)
    await surfacer.deliveries.take_back(outcome, READ, late=True)
    await surfacer.compacting("s")
    assert "Traceback" in records.text


async def test_a_late_hit_that_cannot_be_checked_costs_the_offer_only(records):
    surfacer = Surfacer(Broken("changes", BUG), TtlStore(), EVERY_MOMENT)
    await surfacer.deliveries.take_back(await surfacer.surface(READ), READ, late=True)
    assert "Traceback" in records.text
    assert isinstance(await surfacer.surface(READ), Surfacing)


async def test_a_cancelled_call_stays_cancelled():
    class Stuck(FakeRecall):
        async def search(self, query, deadline):
            await asyncio.Event().wait()

    surfacer = Surfacer(Stuck(), TtlStore(), EVERY_MOMENT)
    surfacing = asyncio.create_task(surfacer.surface(READ))
    await asyncio.sleep(0)
    surfacing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await surfacing
