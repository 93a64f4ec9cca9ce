"""Readers of transcripts on random input: meaningless records are skipped, a file without any valid
record is `Unreadable`, and no other exception is ever raised."""

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.replay import samples

from upwell.episodes.events import SessionEvent, event_of, line_of
from upwell.ground.errors import UsageError
from upwell.replay.transcripts import FORMATS, Transcript, transcripts_at

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**62) | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
FILES = [name for name in samples.WRITERS if name not in ("opencode_database", "opencode")]


def read(transcript: Transcript) -> list[SessionEvent]:
    """The events that the reader returns; none if the file is unreadable."""
    try:
        return list(transcript.events())
    except UsageError:
        return []


def are_sound(events: Sequence[SessionEvent]) -> bool:
    """True if the events are in order of time, and every one survives writing and reading."""
    times = [event.t for event in events]
    survivors = [event_of(line_of(event).encode(), "") for event in events]
    return times == sorted(times) and None not in survivors


def swapped(value: Any, place: int, other: Any) -> Any:
    """`value` with its part number `place` replaced; a container counts before its own parts."""
    left = [place]

    def walk(part: Any) -> Any:
        if left[0] == 0:
            left[0] = -1
            return other
        left[0] -= 1
        if isinstance(part, dict):
            return {name: walk(item) for name, item in part.items()}
        if isinstance(part, list):
            return [walk(item) for item in part]
        return part

    return walk(value)


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_bytes_that_were_changed(name: str, data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = samples.WRITERS[name](Path(folder))
        (transcript,) = transcripts_at([path])
        raw = path.read_bytes()
        item = data.draw(st.integers(0, len(raw)))
        last = data.draw(st.integers(item, min(len(raw), item + 40)))
        path.write_bytes(raw[:item] + data.draw(st.binary(max_size=20)) + raw[last:])
        assert are_sound(read(transcript))


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith("specstory")])
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_values_of_other_types(name: str, data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = samples.WRITERS[name](Path(folder))
        (transcript,) = transcripts_at([path])
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        number = data.draw(st.integers(0, len(rows) - 1))
        position = data.draw(st.integers(0, 30))
        rows[number] = swapped(rows[number], position, data.draw(VALUES))
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        assert are_sound(read(transcript))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_parts_of_opencode_of_other_types(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = samples.opencode(Path(folder))
        (transcript,) = transcripts_at([path])
        others = sorted(path.parents[2].rglob("*.json"))
        chosen = others[data.draw(st.integers(0, len(others) - 1))]
        value = swapped(
            json.loads(chosen.read_text()), data.draw(st.integers(0, 12)), data.draw(VALUES)
        )
        chosen.write_text(json.dumps(value))
        assert are_sound(read(transcript))


@settings(max_examples=80, deadline=None)
@given(raw=st.binary(max_size=300), number=st.integers(0, len(FORMATS) - 1))
def test_any_bytes_give_sound_events(raw: bytes, number: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file.jsonl"
        path.write_bytes(raw)
        assert are_sound(read(Transcript(path, FORMATS[number])))
