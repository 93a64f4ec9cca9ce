import pytest
from msgspec.structs import replace

from upwell.ground.ledger import TtlStore
from upwell.ground.text.words import terms
from upwell.ground.types.cue import Cue, Surfacing
from upwell.ground.types.memory import Hit, Memory
from upwell.learn.feedback import MemoryUse
from upwell.learn.implicit import LOOKS, Uses, Watching, spoken_text
from upwell.testing import ManualClock

TEXT = "The settlement job must run before midnight on host heron, port 7431"


class Stage:
    """One session's events; `watching()` is one process."""

    def __init__(self):
        self.clock = ManualClock()
        self.ttl_store = TtlStore(clock=self.clock)
        self.uses = Uses(self.ttl_store)
        self.received = []
        self.common = {"must", "before"}

    def watching(self):
        async def rare(words):
            return set(words) - self.common

        async def tell(verdicts):
            self.received += [(verdict.watched.memory, verdict.use) for verdict in verdicts]

        def case_of(surfacing, hit):
            return surfacing.moment and f"{surfacing.moment} / note"

        return Watching(self.ttl_store, self.uses, rare, tell, self.clock, case_of)

    async def verdicts(self):
        return [(entry.tool, entry.sample.evidence) for entry in await self.uses.all()]


@pytest.fixture
def stage():
    return Stage()


def call(session="s", tool="fs__read", **args):
    return Cue(door="tool", tool=tool, args=args, session=session)


def said(text=TEXT, identity="m1", pinned=False):
    memory = Memory(id=identity, text=text, pinned=pinned)
    return Surfacing(id="s_1", hits=(Hit(memory=memory, score=0.8),), text=text, confidence=0.8)


async def surfaced(stage, cue=None, what=None):
    watching = stage.watching()
    watching.noticed(cue or call(path="src/settlement.py"), what or said())
    await watching.flush()
    return watching


async def test_two_distinctive_words_in_a_later_call_are_use(stage):
    watching = await surfaced(stage)
    watching.noticed(call(tool="sh__run", command="ssh heron crontab -l"), None)
    await watching.flush()
    assert stage.received == []
    watching.noticed(call(tool="sh__run", command="at midnight do it"), None)
    watching.noticed(call(tool="sh__run", lines=[{"text": "heron at MIDNIGHT"}]), None)
    await watching.flush()
    assert stage.received == [("m1", MemoryUse.USED)]
    assert await stage.verdicts() == [("fs__read", MemoryUse.USED)]
    assert await stage.ttl_store.scan("watched") == []


async def test_use_is_counted_for_the_moment_and_the_kind(stage):
    watching = await surfaced(stage, what=replace(said(), moment="file"))
    watching.noticed(Cue(door="prompt", text="is 7431 open?", session="s"), None)
    await watching.flush()
    assert await stage.verdicts() == [("file / note", MemoryUse.USED)]


async def test_words_of_the_cue_and_common_words_prove_nothing(stage):
    watching = await surfaced(stage, call(query="settlement on heron at midnight"))
    for _ in range(3):
        watching.noticed(call(query="settlement on heron at midnight must before"), None)
    await watching.flush()
    assert stage.received == []


async def test_ten_calls_without_a_trace_mean_ignored(stage):
    watching = await surfaced(stage)
    for number in range(LOOKS):
        assert stage.received == []
        watching.noticed(call(path=f"docs/tulips{number}.txt"), None)
        await watching.flush()
    assert stage.received == [("m1", MemoryUse.IGNORED)]


async def test_another_process_of_the_session_continues_watching(stage):
    await surfaced(stage)
    watching = stage.watching()
    watching.noticed(call(command="ssh heron # midnight"), None)
    await watching.flush()
    assert stage.received == [("m1", MemoryUse.USED)]


async def test_another_session_proves_nothing(stage):
    watching = await surfaced(stage)
    watching.noticed(call(session="other", command="ssh heron # midnight"), None)
    watching.noticed(call(session="", command="ssh heron # midnight"), None)
    await watching.flush()
    assert stage.received == []


async def test_reading_a_memory_in_full_is_use(stage):
    watching = await surfaced(stage)
    watching.opened("s", "m1")
    await watching.flush()
    assert stage.received == [("m1", MemoryUse.USED)]


async def test_an_undelivered_memory_is_not_watched(stage):
    watching = stage.watching()
    watching.noticed(call(path="a.py"), said())
    watching.undo(said())
    watching.noticed(call(command="heron midnight"), None)
    await watching.flush()
    assert stage.received == []
    again = await surfaced(stage)
    again.undo(said())
    again.noticed(call(command="heron midnight"), None)
    await again.flush()
    assert stage.received == []


async def test_rules_and_requested_memories_are_not_watched(stage):
    await surfaced(stage, what=said(pinned=True))
    await surfaced(stage, Cue(door="ask", text="settlement?", session="s"))
    assert await stage.ttl_store.scan("watched") == []


async def test_a_short_session_proves_nothing(stage):
    await surfaced(stage)
    stage.clock.advance(7 * 3600)
    watching = stage.watching()
    watching.noticed(call(command="heron midnight"), None)
    await watching.flush()
    assert await stage.verdicts() == []


async def test_no_text_of_a_cue_is_stored(stage):
    watching = await surfaced(stage, call(query="zanzibar quokka"))
    watching.noticed(call(command="wombat heron"), None)
    await watching.flush()
    (item,) = await stage.ttl_store.scan("watched")
    for word in (b"zanzibar", b"quokka", b"wombat"):
        assert word not in item.value


def test_the_words_of_a_cue_are_all_its_strings_in_bounded_time():
    deep = {"a": "one"}
    for _ in range(50):
        deep = {"b": deep, "c": ["two", 3, None, True]}
    text = spoken_text(Cue(door="tool", tool="fs__readFile", args={**deep, "big": "x y " * 10**6}))
    result = set(terms(text))
    assert {"two", "3", "readfile"} <= result
    assert "one" not in result


async def test_the_agents_later_texts_are_evidence_of_use(stage):
    cue = Cue(door="tool", tool="Read", args={"path": "a.py"}, session="s", at=100.0)
    watching = await surfaced(stage, cue)
    asked = []

    def written(since):
        asked.append(since)
        return [(99.0, "heron at midnight"), (101.0, "it runs on heron")]

    watching.wrote("s", written)
    await watching.flush()
    assert (asked, stage.received) == ([100.0], [])
    watching.wrote("s", lambda since: [(102.0, "on heron, at midnight")])
    await watching.flush()
    assert stage.received == [("m1", MemoryUse.USED)]
    watching.wrote("s", written)
    await watching.flush()
    assert asked == [100.0], "nothing is read when nothing is watched"


@pytest.mark.parametrize(("calls", "verdicts"), [(2, []), (3, [("m1", MemoryUse.IGNORED)])])
async def test_the_end_of_a_session_settles_its_older_memories(stage, calls, verdicts):
    watching = await surfaced(stage)
    for number in range(calls):
        watching.noticed(call(path=f"docs/tulips{number}.txt"), None)
    watching.ended("s")
    await watching.flush()
    assert stage.received == verdicts
    assert await stage.ttl_store.scan("watched") == []


async def test_a_session_that_ends_with_its_use_in_the_last_words(stage):
    watching = await surfaced(stage)
    watching.wrote("s", lambda since: [(since, "heron, midnight")])
    watching.ended("s")
    await watching.flush()
    assert stage.received == [("m1", MemoryUse.USED)]
