"""Hits of another memory server can be read after a restart, and their citations name the file."""

from tests.unit.memory.external.test_late_answers import FACT, Gated

from upwell.ground.clock import Deadline
from upwell.ground.ledger import TtlStore
from upwell.ground.names import memory_id
from upwell.ground.types.memory import Memory, Query
from upwell.memory.external.ltm import KeptHits, LtmRecall
from upwell.surface.render import citation


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
