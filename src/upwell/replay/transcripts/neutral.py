"""Neutral events: upwell's own format, written by `upwell replay --events` and other programs."""

from pathlib import Path

from upwell.episodes.events import read_events
from upwell.replay.transcripts.base import Format


def _recognises(path: Path, head: bytes) -> bool:
    return path.suffix == ".jsonl" and b'"kind"' in head and b'"session"' in head


FORMAT = Format(
    name="events",
    recognises=_recognises,
    read=read_events,
)
