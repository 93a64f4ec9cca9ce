"""Neutral events: upwell's own format, written by `upwell replay --events` and other programs."""

from collections.abc import Iterator
from pathlib import Path

from upwell.episodes.events import SessionEvent, read_events
from upwell.replay.transcripts.base import ReadTally, TranscriptFormat


def _read(path: Path, start: int, tally: ReadTally) -> Iterator[SessionEvent]:
    return read_events(path)


def _recognises(path: Path, head: bytes) -> bool:
    return path.suffix == ".jsonl" and b'"kind"' in head and b'"session"' in head


FORMAT = TranscriptFormat(
    name="events",
    recognises=_recognises,
    read=_read,
)
