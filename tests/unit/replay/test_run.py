"""The simulation drives a product that records every call."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.unit.replay.repository import ENVIRONMENT, commit, repository

from upwell.episodes.events import Kind, SessionEvent
from upwell.ground.types.cue import Cue, Skip, SkipReason, Surfacing
from upwell.ground.types.memory import Hit, Memory
from upwell.replay.memories import ReplayProjects, With
from upwell.replay.run import (
    NO_HOOK,
    Replay,
    ReplayDecision,
    SimulatedClock,
    cue_of,
    moment_named,
    name_of,
)

HIT = Hit(memory=Memory(id="m1", text="Pumps stall in winter", created_at=5.0), score=0.71234)


class Recorded:
    """Surfaces a memory for cues with the word pump, and records every call."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock = clock
        self.happened: list[tuple[str, object, float]] = []

    def note(self, what: str, value: object) -> None:
        self.happened.append((what, value, self.clock.now()))

    async def surface(self, cue: Cue) -> Surfacing | Skip:
        self.note("cue", cue)
        if "pump" not in f"{cue.text}{cue.args}":
            return Skip(reason=SkipReason.NO_CANDIDATES)
        identity = f"s_{len(self.happened):012x}"
        return Surfacing(id=identity, hits=(HIT,), text=f"[{identity}] Pumps", confidence=0.7)

    async def compacting(self, session: str) -> None:
        self.note("compacting", session)

    async def turn_ended(
        self, session: str, written: Sequence[tuple[float, str]], *, over: bool
    ) -> None:
        self.note("turn", ([text for _, text in written], over))

    async def remember(self, memories: Sequence[Memory]) -> None:
        self.note("remember", [memory.text for memory in memories])

    async def read_documents(self, folder: str) -> None:
        self.note("documents", folder)

    def commits(self, root: str) -> list[Memory]:
        return []

    async def learn(self, events: Sequence[SessionEvent], project: str) -> None:
        self.note("learn", [event.i for event in events])

    async def keep_record(self, session: str) -> None:
        self.note("record", session)


def session(*kinds: tuple[Kind, float, dict[str, object]]) -> list[SessionEvent]:
    return [
        SessionEvent(session="s", i=number, t=t, kind=kind, **more)
        for number, (kind, t, more) in enumerate(kinds)
    ]


STORY = session(
    (Kind.START, 10.0, {"text": "startup"}),
    (Kind.PROMPT, 11.0, {"text": "Why does the pump stall?"}),
    (Kind.SAY, 12.0, {"text": "I look."}),
    (Kind.TOOL, 13.0, {"tool": "Read", "args": {"file_path": "pump.py"}, "out": "def"}),
    (Kind.TOOL, 14.0, {"tool": "Edit", "args": {"file_path": "pump.py"}}),
    (Kind.COMPACT, 15.0, {}),
    (Kind.PROMPT, 16.0, {"text": "Thanks"}),
    (Kind.END, 17.0, {}),
)


async def replayed(
    tmp_path: Path, events: Iterable[SessionEvent], notes: Iterable[Memory] = ()
) -> tuple[list[ReplayDecision], Recorded]:
    clock = SimulatedClock()
    world = Recorded(clock)
    projects = ReplayProjects(tmp_path, ENVIRONMENT)
    replay = Replay(world, clock, projects, frozenset(With), notes)
    return [decision async for decision in replay.decisions(events)], world


async def test_every_reported_event_gets_a_decision(tmp_path: Path) -> None:
    decisions, _ = await replayed(tmp_path, STORY)
    assert [
        (decision.i, decision.door, decision.moment, decision.outcome) for decision in decisions
    ] == [
        (0, "session", "session_start", "no_candidates"),
        (1, "prompt", "question", "said"),
        (3, "tool", "file", "said"),
        (4, "tool", "routine", NO_HOOK),
        (5, "session", "compaction", "no_candidates"),
        (6, "prompt", "routine", "no_candidates"),
    ]


async def test_notes_arrive_in_their_time(tmp_path: Path) -> None:
    notes = [Memory(text="old", created_at=1.0), Memory(text="new", created_at=12.5)]
    notes.append(Memory(text="future", created_at=99.0))
    _, world = await replayed(tmp_path, STORY, notes)
    remembered = [(one, at) for what, one, at in world.happened if what == "remember"]
    assert remembered == [(["old"], 10.0), (["new"], 13.0)]


async def test_each_turn_teaches_when_it_ends(tmp_path: Path) -> None:
    root = repository(tmp_path / "pumps")
    commit(root, 5.0, "Pumps", {"pump.py": "def"})
    story = [replace(event, cwd=str(root)) for event in STORY]
    _, world = await replayed(tmp_path / "scratch", story)
    learned = [(places, at) for what, places, at in world.happened if what == "learn"]
    assert learned == [([0], 11.0), ([1, 2, 3, 4, 5], 16.0), ([6], 17.0)]


def test_passages_are_named_by_file_and_lines() -> None:
    assert name_of(Memory(text="x", id="d1", source="docs/a.md", lines=(3, 5))) == "docs/a.md#L3-L5"


@pytest.mark.parametrize(
    ("tool", "args", "out", "failed", "expected"),
    [
        ("Grep", {"pattern": "mooring"}, "No matches found", False, "nothing_found"),
        ("Grep", {"pattern": "mooring"}, "", False, "nothing_found"),
        ("Grep", {"pattern": "mooring"}, "src/a.py:1", False, "routine"),
        ("Read", {"file_path": "a.py"}, "File does not exist.", True, "nothing_found"),
        ("Read", {"file_path": "a.py"}, "import os", False, "file"),
        ("Bash", {"command": "make"}, "", False, "routine"),
        ("Bash", {"command": "make"}, "Error 2", True, "failed"),
        ("Edit", {"file_path": "a.py"}, "", False, "routine"),
    ],
)
def test_calls_have_the_moments_of_surfacing(
    tool: str, args: dict[str, str], out: str, failed: bool, expected: str
) -> None:
    event = SessionEvent(
        session="s", i=0, t=0, kind=Kind.TOOL, tool=tool, args=args, out=out, failed=failed
    )
    assert moment_named(event, cue_of(event, None), 1) == expected
