"""Moments: the situation of a cue, and the kinds of memory that it admits."""

from collections.abc import Mapping

import pytest

from upwell.ground.types.cue import Cue, Door, Moment, ToolAnswer
from upwell.ground.types.memory import Hit, Memory
from upwell.surface.event import Event
from upwell.surface.moments import MemoryKind, kind_of, moment_of, suited
from upwell.surface.options import PipelineOptions


def event(cue: Cue) -> Event:
    return Event.of(cue, PipelineOptions(), 0.0)


def prompt(text: str) -> Event:
    return event(Cue(door=Door.PROMPT, text=text, session="s"))


def call(tool: str, args: Mapping[str, object], answer: ToolAnswer | None = None) -> Event:
    return event(Cue(door=Door.TOOL, tool=tool, args=args, session="s", answer=answer))


@pytest.mark.parametrize(
    ("text", "before", "moment"),
    [
        ("why did the retry charge twice?", 4, Moment.QUESTION),
        ("where is the parser for dates", 4, Moment.QUESTION),
        ("no, use pnpm instead", 4, Moment.QUESTION),
        ("don't touch the lock file", 4, Moment.QUESTION),
        ("add retries to the payment client", 0, Moment.FIRST_REQUEST),
        ("add retries to the payment client", 1, Moment.ROUTINE),
        ("continue", 3, Moment.ROUTINE),
        ("what is this? " + "log line\n" * 300, 0, Moment.ROUTINE),
    ],
)
def test_each_prompt_has_its_moment(text: str, before: int, moment: Moment) -> None:
    assert moment_of(prompt(text), before) is moment


@pytest.mark.parametrize(
    ("tool", "args", "answer", "moment"),
    [
        ("fs__read", {"path": "a.py", "_context_query": "retry"}, None, Moment.ASKING_CALL),
        ("WebSearch", {"query": "how do retries work in httpx"}, None, Moment.ASKING_CALL),
        ("Grep", {"pattern": "retry|backoff"}, ToolAnswer(text="a.py:1"), Moment.ROUTINE),
        ("Grep", {"pattern": "retry"}, ToolAnswer(text="No matches found"), Moment.NOTHING_FOUND),
        ("Glob", {"pattern": "*.rs"}, ToolAnswer(text=""), Moment.NOTHING_FOUND),
        (
            "Read",
            {"file_path": "/r/gone.py"},
            ToolAnswer(text="File does not exist."),
            Moment.NOTHING_FOUND,
        ),
        ("Bash", {"command": "make test"}, ToolAnswer(text="ok"), Moment.ROUTINE),
        ("Bash", {"command": "mak"}, ToolAnswer(text="not found", failed=True), Moment.FAILED),
        ("Read", {"file_path": "/r/a.py"}, ToolAnswer(text="code"), Moment.FILE),
        ("LS", {}, ToolAnswer(text="a b"), Moment.ROUTINE),
        ("Grep", {"pattern": "cancellation_fee"}, ToolAnswer(text="a.py"), Moment.NAME),
        ("Bash", {"command": "cat src/a.py"}, ToolAnswer(text="code"), Moment.FILE),
        ("Bash", {"command": "cat a.py b.py"}, ToolAnswer(text="code"), Moment.ROUTINE),
    ],
)
def test_each_call_has_its_moment(
    tool: str, args: Mapping[str, object], answer: ToolAnswer | None, moment: Moment
) -> None:
    assert moment_of(call(tool, args, answer), 1) is moment


NOTE = Memory(text="Key by charge", id="n", project="/r", paths=("src/pay.py",))
COMMIT = Memory(text="Fix retries", id="c", project="/r", source="git:abc", paths=("src/pay.py",))
DOCUMENT = Memory(text="Retries", id="d", project="/r", source="docs/a.md", lines=(1, 4))
FOREIGN = Memory(text="Retries", id="ltm:1")


def test_the_kind_follows_from_the_origin() -> None:
    kinds = [kind_of(memory) for memory in (NOTE, COMMIT, DOCUMENT, FOREIGN)]
    assert kinds == [MemoryKind.NOTE, MemoryKind.COMMIT, MemoryKind.DOCUMENT, MemoryKind.FOREIGN]


@pytest.mark.parametrize(
    ("moment", "ids"),
    [
        (Moment.QUESTION, "ncdl"),
        (Moment.FIRST_REQUEST, "ncdl"),
        (Moment.ASKING_CALL, "nl"),
        (Moment.FAILED, "n"),
        (Moment.NOTHING_FOUND, "n"),
        (Moment.ROUTINE, ""),
    ],
)
def test_a_moment_admits_kinds(moment: Moment, ids: str) -> None:
    hits = [Hit(memory=memory, score=0.9) for memory in (NOTE, COMMIT, DOCUMENT, FOREIGN)]
    reply = suited(call("Bash", {"command": "x"}), moment, hits)
    assert "".join(hit.memory.id[0] for hit in reply) == ids


@pytest.mark.parametrize(
    ("file", "count"),
    [("/r/src/pay.py", 1), ("src/pay.py", 1), ("/r/src/other.py", 0), ("/r/lib/src/pay.py", 1)],
)
def test_at_a_file_only_notes_about_it_are_given(file: str, count: int) -> None:
    cue = call("Read", {"file_path": file})
    hits = [Hit(memory=memory, score=0.9) for memory in (NOTE, COMMIT, DOCUMENT)]
    assert len(suited(cue, Moment.FILE, hits)) == count


@pytest.mark.parametrize(("pattern", "count"), [("chargeKey", 1), ("otherName", 0)])
def test_at_a_name_only_notes_that_mention_it_are_given(pattern: str, count: int) -> None:
    note = Memory(text="chargeKey is stable over retries", id="n")
    hits = [Hit(memory=memory, score=0.9) for memory in (note, COMMIT, DOCUMENT)]
    assert len(suited(call("Grep", {"pattern": pattern}), Moment.NAME, hits)) == count
