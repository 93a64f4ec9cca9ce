"""Who has received which memory, and taking a delivery back."""

import pytest

from upwell.ground.ttl_store import MemoryTtlStore
from upwell.ground.types.memory import Hit, Memory
from upwell.surface.seen_log import SeenLog

MEMORY = Memory(id="m1", text="the cache reloads on SIGHUP", content_hash="h")
HIT = Hit(memory=MEMORY, score=0.9)


@pytest.fixture
def log() -> SeenLog:
    return SeenLog(MemoryTtlStore(), 600)


async def test_taking_back_one_principals_delivery_leaves_every_other(log: SeenLog) -> None:
    """The owner's key begins every other principal's, and `ad` begins `ada`."""
    for principal in ("", "ad", "ada"):
        await log.record([MEMORY], "s", principal)
    await log.withdraw([MEMORY], "s", "ad")
    assert await log.fresh([HIT], "s", "ad") == [HIT]
    assert await log.fresh([HIT], "s", "ada") == []
    await log.withdraw([MEMORY], "s")
    assert await log.fresh([HIT], "s") == [HIT]
    assert await log.fresh([HIT], "s", "ada") == []


async def test_taking_back_one_memory_leaves_those_whose_ids_it_begins(log: SeenLog) -> None:
    longer = Memory(id="m1", text="x", content_hash="hh")
    await log.record([MEMORY, longer], "s")
    await log.withdraw([MEMORY], "s")
    assert await log.fresh([Hit(memory=longer, score=1.0)], "s") == []


async def test_a_compaction_forgets_only_its_own_sessions_deliveries(log: SeenLog) -> None:
    other = Memory(id="m2", text="y", content_hash="h2")
    await log.record([MEMORY], "s")
    await log.record([other], "t")
    await log.record_at_start([other], "s")
    assert await log.ids_of("s") == ["m1", "m2"]
    await log.forget("s")
    assert await log.fresh([HIT], "s") == [HIT]
    assert await log.ids_of("t") == ["m2"]
