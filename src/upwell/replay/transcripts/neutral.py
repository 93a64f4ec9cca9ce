"""Neutral events: upwell's own format, written by `upwell replay --events` and other programs."""

from collections.abc import Iterator
from pathlib import Path

from upwell.episodes.events import Event, read_events
from upwell.replay.transcripts.base import Format, Tally


def _read(path: Path, start: int, tally: Tally) -> Iterator[Event]:
    return read_events(path)


def _recognises(path: Path, head: bytes) -> bool:
    return path.suffix == ".jsonl" and b'"kind"' in head and b'"session"' in head


FORMAT = Format(
    name="events",
    recognises=_recognises,
    read=_read,
)
