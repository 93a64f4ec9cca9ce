"""The memories that each context window received, and taking back a delivery."""

import pytest

from upwell.ground.host_sessions import within
from upwell.ground.ledger import TtlStore
from upwell.ground.types.memory import Hit, Memory
from upwell.surface.seen_log import RESERVED_SECONDS, SESSION_SECONDS, SeenLog
from upwell.testing import ManualClock

MEMORY = Memory(id="m1", text="the cache reloads on SIGHUP", content_hash="h")
OTHER = Memory(id="m2", text="the cache is sharded by tenant", content_hash="h2")
HIT, OTHER_HIT = Hit(memory=MEMORY, score=0.9), Hit(memory=OTHER, score=0.6)
WEEK = 604_800.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(clock: ManualClock) -> SeenLog:
    return SeenLog(TtlStore(clock=clock), WEEK)


async def test_a_session_receives_a_memory_once_however_long_it_lasts(
    log: SeenLog, clock: ManualClock
) -> None:
    await log.record([MEMORY], "s")
    clock.advance(SESSION_SECONDS - 1)
    assert await log.fresh([HIT], "s") == []


async def test_another_session_hears_a_repeat_last_and_only_for_a_week(
    log: SeenLog, clock: ManualClock
) -> None:
    await log.record([MEMORY], "s")
    assert await log.fresh([HIT, OTHER_HIT], "t") == [OTHER_HIT, HIT]
    assert await log.fresh([HIT, OTHER_HIT]) == [OTHER_HIT, HIT], "without a session too"
    clock.advance(WEEK)
    assert await log.fresh([HIT, OTHER_HIT], "t") == [HIT, OTHER_HIT]


async def test_memories_that_the_reader_knew_stay_silent_in_every_session(
    log: SeenLog, clock: ManualClock
) -> None:
    await log.record([MEMORY, OTHER], "s")
    clock.advance(WEEK - 1)
    await log.known("m1")
    clock.advance(WEEK - 1)
    assert await log.fresh([HIT, OTHER_HIT], "t") == [OTHER_HIT]
    clock.advance(1)
    assert await log.fresh([HIT], "t") == [HIT]


async def test_a_memory_that_was_never_recorded_can_be_known(
    log: SeenLog, clock: ManualClock
) -> None:
    await log.known("m1")
    await log.known("m2", "ann")
    assert await log.fresh([HIT, OTHER_HIT], "s") == [OTHER_HIT]
    assert await log.fresh([HIT, OTHER_HIT], "s", "ann") == [HIT]
    clock.advance(WEEK)
    assert await log.fresh([HIT], "s") == [HIT]


async def test_memories_ignored_repeatedly_stay_silent_in_other_sessions() -> None:
    async def ignored(memory_id: str) -> bool:
        return memory_id == "m1"

    log = SeenLog(TtlStore(), WEEK, ignored)
    assert await log.fresh([HIT], "s") == [HIT], "not before it was told"
    await log.record([MEMORY, OTHER], "s")
    assert await log.fresh([HIT, OTHER_HIT], "t") == [OTHER_HIT]
    await log.record([MEMORY], "s", "ada")
    assert await log.fresh([HIT], "t", "ada") == [HIT], "the owner's sessions ignored it, not hers"


async def test_a_delivery_that_stays_open_is_forgotten_after_a_minute(
    log: SeenLog, clock: ManualClock
) -> None:
    """The process that made it died before the client's receipt."""
    await log.reserve([MEMORY], "s")
    assert await log.fresh([HIT], "s") == []
    assert await log.fresh([HIT, OTHER_HIT], "t") == [HIT, OTHER_HIT]
    clock.advance(RESERVED_SECONDS)
    assert await log.fresh([HIT], "s") == [HIT]


async def test_a_subagent_has_a_context_of_its_own(log: SeenLog) -> None:
    below = within("s", "agent")
    await log.record([MEMORY], "s")
    assert await log.fresh([HIT, OTHER_HIT], below) == [HIT, OTHER_HIT]
    await log.record([OTHER], below)
    assert await log.fresh([OTHER_HIT], below) == []
    assert await log.fresh([OTHER_HIT], "s") == [OTHER_HIT]


async def test_taking_back_one_principals_delivery_leaves_every_other(log: SeenLog) -> None:
    """The owner's key is a prefix of every other principal's, and `ad` is a prefix of `ada`."""
    for principal in ("", "ad", "ada"):
        await log.record([MEMORY], "s", principal)
    await log.withdraw([MEMORY], "s", "ad")
    assert await log.fresh([HIT], "s", "ad") == [HIT]
    assert await log.fresh([HIT], "s", "ada") == []
    await log.withdraw([MEMORY], "s")
    assert await log.fresh([HIT], "s") == [HIT]
    assert await log.fresh([HIT], "s", "ada") == []


async def test_taking_a_delivery_back_leaves_that_to_another_session(log: SeenLog) -> None:
    await log.record([MEMORY], "s")
    await log.reserve([MEMORY], "t")
    await log.withdraw([MEMORY], "t")
    assert await log.fresh([HIT, OTHER_HIT], "t") == [OTHER_HIT, HIT]
    assert await log.fresh([HIT], "s") == []


async def test_taking_back_one_memory_leaves_those_whose_ids_it_begins(log: SeenLog) -> None:
    longer = Memory(id="m1", text="x", content_hash="hh")
    await log.record([MEMORY, longer], "s")
    await log.withdraw([MEMORY], "s")
    assert await log.fresh([Hit(memory=longer, score=1.0)], "s") == []


async def test_a_compaction_forgets_only_its_own_sessions_deliveries(log: SeenLog) -> None:
    await log.record([MEMORY], "s")
    await log.record([OTHER], "t")
    await log.record_at_start([OTHER], "s")
    assert await log.ids_of("s") == ["m1", "m2"]
    await log.forget("s")
    assert await log.fresh([HIT], "s") == [HIT]
    assert await log.ids_of("t") == ["m2"]


async def test_switched_off_it_knows_nothing() -> None:
    store = TtlStore()
    log = SeenLog(store, 0)
    await log.reserve([MEMORY], "s")
    await log.record([MEMORY], "s")
    await log.record_at_start([MEMORY], "s")
    assert await log.fresh([HIT], "s") == [HIT]
    assert await store.scan("seen") == []
