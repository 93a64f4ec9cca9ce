"""The start of a session: the right notes, once, within the cap."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from upwell.ground.clock import Deadline
from upwell.ground.errors import StoreError
from upwell.ground.ledger import TtlStore
from upwell.ground.types.cue import Cue, Skip, SkipReason, Surfacing
from upwell.ground.types.memory import Found, Hit, Memory, Query, Scope, Trust
from upwell.surface.options import PipelineOptions, SurfaceOptions
from upwell.surface.pipeline import Surfacer
from upwell.surface.session_start import MAX_BYTES, PREVIEW_CHARS, standing
from upwell.testing import FakeRecall, ManualClock

DAY = 86_400.0
NOW = 1_000_000.0 + 400 * DAY


def note(identity: str, text: str = "", *, age_days: float = 1.0, **fields: object) -> Memory:
    fields = {"project": "/repo", "namespace": "decisions"} | fields
    created = NOW - age_days * DAY
    text = text or f"{identity} is what was decided about {identity}"
    made = Memory(id=identity, text=text, created_at=created, viewed_at=created, content_hash=text)
    return replace(made, **fields)


class Stage:
    """A store that is read newest first, and its pinned memories."""

    def __init__(self, *memories: Memory, rules: Sequence[Memory] = (), **options: object) -> None:
        self.memories = memories
        self.rules = rules
        self.error: StoreError | None = None
        self.recall = FakeRecall([Hit(memory=memory, score=0.9) for memory in memories])
        self.surfacer = Surfacer(
            self.reader(),
            TtlStore(clock=ManualClock(NOW)),
            PipelineOptions(surface=SurfaceOptions(**{"moments": "all", **options})),
            clock=ManualClock(NOW),
        )

    def reader(self) -> "Reader":
        return Reader(self)

    async def begin(self, why: str = "", session: str = "s", cwd: str | None = "/repo"):
        return await self.surfacer.surface(Cue(door="session", text=why, session=session, cwd=cwd))


class Reader(FakeRecall):
    """Reads the current state of a stage."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage

    async def search(self, query: Query, deadline: Deadline) -> Found:
        return await self._stage.recall.search(query, deadline)

    async def pinned(self, scope: Scope, *, limit: int = 50) -> Sequence[Memory]:
        return self._stage.rules[:limit]

    async def latest(self, scope: Scope, *, limit: int = 100) -> Sequence[Memory]:
        if self._stage.error is not None:
            raise self._stage.error
        return [
            memory
            for memory in self._stage.memories
            if scope.project is None or memory.project in (None, scope.project)
        ][:limit]

    async def known(self, memory_id: str) -> Memory | None:
        known = (memory for memory in self._stage.memories if memory.id == memory_id)
        return next(known, None)


def ids(outcome: Surfacing | Skip) -> list[str]:
    assert isinstance(outcome, Surfacing), outcome
    return [memory.id for memory in outcome.memories]


async def test_recent_notes_of_the_project_come_after_the_rules() -> None:
    rule = Memory(id="r", text="Never force-push to main", pinned=True)
    stage = Stage(note("new"), note("older", age_days=40), rules=[rule])
    outcome = await stage.begin()
    assert ids(outcome) == ["r", "new", "older"]
    assert outcome.text.index("force-push") < outcome.text.index("new is what")
    assert outcome.text.startswith(f'<upwell-memories id="{outcome.id}">')
    assert stage.recall.asked == []


@pytest.mark.parametrize(
    "unfit",
    [
        note("x", project="/other"),
        note("x", trust=Trust.TOOL),
        note("x", pinned=True),
        note("x", age_days=400, namespace="context", trust=Trust.IMPORTED),
        note("x", age_days=60, project=None),
    ],
)
async def test_useless_notes_are_not_given(unfit: Memory) -> None:
    assert ids(await Stage(note("new"), unfit).begin()) == ["new"]


async def test_without_a_project_only_global_notes_are_given() -> None:
    stage = Stage(note("mine"), note("everywhere", project=None))
    assert ids(await stage.begin(cwd=None)) == ["everywhere"]


async def test_a_successor_takes_the_place_of_the_memory_that_it_replaces() -> None:
    stage = Stage(
        note("new", "the port is 7432", supersedes="old"), note("old", "the port is 7431")
    )
    assert ids(await stage.begin()) == ["new"]


async def test_near_duplicates_are_given_once() -> None:
    stage = Stage(
        note("a", "The cache reloads on SIGHUP"), note("b", "the cache reloads on SIGHUP")
    )
    assert len(ids(await stage.begin())) == 1


def test_a_recently_read_note_counts_as_recent() -> None:
    old = note("old", age_days=200)
    used = replace(old, viewed_at=NOW - DAY)
    assert standing(used, "/repo", 0.0, NOW).score > 2 * standing(old, "/repo", 0.0, NOW).score


async def test_a_file_that_was_just_changed_brings_its_note_to_the_front(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for name, age in (("hot.py", 0.1), ("cold.py", 90)):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (NOW, NOW - age * DAY))
    project = str(tmp_path)
    stage = Stage(
        note("cold", age_days=20, paths=("cold.py",), project=project),
        note("hot", age_days=30, paths=("hot.py", "gone.py", "a\0b"), project=project),
    )
    assert ids(await stage.begin(cwd=project)) == ["hot", "cold"]


async def test_a_session_gets_its_opening_once_and_again_after_a_compaction() -> None:
    stage = Stage(note("new"))
    assert ids(await stage.begin("startup")) == ["new"]
    again = await stage.begin("resume")
    assert isinstance(again, Skip)
    assert again.reason is SkipReason.REPEATED
    assert ids(await stage.begin("compact")) == ["new"]
    assert ids(await stage.begin(session="another")) == ["new"]


async def test_a_fork_has_the_rules_of_the_session_that_it_goes_on_from() -> None:
    stage = Stage(rules=[Memory(id="rule", text="Answer in English", pinned=True)])
    assert ids(await stage.begin("startup")) == ["rule"]
    assert isinstance(await stage.begin("fork", session="other"), Skip)
    assert isinstance(await stage.begin("resume", session="other"), Skip)
    assert ids(await stage.begin("compact", session="other")) == ["rule"]


async def test_a_session_resumed_and_compacted_at_once_gets_the_rules_once() -> None:
    rule = Memory(id="r", text="Never force-push to main", pinned=True)
    stage = Stage(note("new"), rules=[rule])
    assert ids(await stage.begin("startup")) == ["r", "new"]
    await stage.surfacer.compacting("s")
    assert isinstance(await stage.begin("resume"), Skip)
    assert ids(await stage.begin("compact")) == ["r", "new"]
    assert isinstance(await stage.begin("resume"), Skip)


async def test_a_note_shown_whole_is_not_repeated_in_that_session() -> None:
    stage = Stage(note("new"))
    await stage.begin()
    read = Cue(door="tool", tool="Read", args={"file_path": "src/cache.py"}, session="s")
    reply = await stage.surfacer.surface(read)
    assert isinstance(reply, Skip)
    assert reply.reason is SkipReason.REPEATED
    assert ids(await stage.surfacer.surface(replace(read, session="t"))) == ["new"]


async def test_a_shortened_note_may_still_be_given_later() -> None:
    stage = Stage(note("long", "a decision about caching " * (PREVIEW_CHARS // 10)))
    assert "upwell://memory/long" in (await stage.begin()).text
    read = Cue(door="tool", tool="Read", args={"file_path": "src/cache.py"}, session="s")
    assert ids(await stage.surfacer.surface(read)) == ["long"]


async def test_the_opening_stays_within_the_cap() -> None:
    rules = [Memory(id=f"r{n}", text=f"rule {n}: nunca más, ñandú " * 4) for n in range(8)]
    notes = [note(f"n{n}", f"{n} día número {n * 7919}: " + "é" * n * 9) for n in range(20)]
    outcome = await Stage(*notes, rules=rules).begin()
    assert isinstance(outcome, Surfacing)
    assert 900 < len(outcome.text.encode()) <= MAX_BYTES
    assert outcome.text.endswith("</upwell-memories>")


async def test_a_store_that_fails_is_a_reason() -> None:
    stage = Stage(note("new"))
    stage.error = StoreError("gone")
    outcome = await stage.begin()
    assert isinstance(outcome, Skip)
    assert outcome.reason is SkipReason.FAULT


PROMPT = Cue(door="prompt", text="what was decided about new?", session="s", cwd="/repo")


async def too_late(stage: Stage) -> None:
    begins = Cue(door="session", session="s", cwd="/repo")
    late = await stage.surfacer.surface(begins)
    assert isinstance(late, Surfacing)
    await stage.surfacer.deliveries.take_back(late, begins, late=True)


async def test_a_late_opening_is_given_at_the_next_event() -> None:
    rule = Memory(id="r", text="Never force-push to main", pinned=True)
    stage = Stage(note("new"), note("older", age_days=40), rules=[rule])
    stage.recall.hits = []
    await too_late(stage)
    hello = await stage.surfacer.surface(replace(PROMPT, text="hello"))
    assert isinstance(hello, Skip)
    outcome = await stage.surfacer.surface(PROMPT)
    assert ids(outcome) == ["r", "new", "older"]
    assert outcome.text.count("force-push") == 1
    again = await stage.surfacer.surface(replace(PROMPT, text="and what about the rest of it?"))
    assert isinstance(again, Skip)


async def test_an_owed_opening_follows_the_hits_without_repeating_them() -> None:
    rule = Memory(id="r", text="Never force-push to main", pinned=True)
    stage = Stage(note("new"), note("older", age_days=40), rules=[rule])
    stage.recall.hits = stage.recall.hits[:1]
    await too_late(stage)
    outcome = await stage.surfacer.surface(PROMPT)
    assert ids(outcome) == ["new", "r", "older"]
    assert outcome.text.count("new is what") == 1
    assert outcome.text.count("</upwell-memories>") == 1


async def test_an_owed_opening_reaches_a_tool_too() -> None:
    stage = Stage(note("new"))
    stage.recall.hits = []
    await too_late(stage)
    read = Cue(door="tool", tool="Read", args={"file_path": "src/a.py"}, session="s", cwd="/repo")
    assert ids(await stage.surfacer.surface(read)) == ["new"]
