"""Read an `stm.json` written by another program or in another home."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from upwell.ground.errors import UsageError
from upwell.ground.foreign import read_json
from upwell.memory.notes.labels import labels_of
from upwell.memory.notes.stm import StmEntry
from upwell.memory.records import MAX_ID_CHARS, is_text, moment

MAX_BYTES = 256_000_000


def read_notes(path: Path) -> Iterator[StmEntry]:
    """Yield the notes in the file, in order. A note without an id gets one from its content.

    Raises:
        UsageError: the file cannot be read or is not an array, or a note is malformed.
    """
    for number, raw in enumerate(_array(path), 1):
        try:
            yield _entry(raw)
        except UsageError as error:
            raise UsageError(f"{path}: note {number}: {error.message}", hint=error.hint) from error


def _array(path: Path) -> list[object]:
    notes = read_json(path, MAX_BYTES)
    if not isinstance(notes, list):
        raise UsageError(f"{path} is not an array of notes", hint="name an stm.json")
    return notes


def _entry(raw: object) -> StmEntry:
    content = raw.get("content") if isinstance(raw, Mapping) else None
    if not isinstance(raw, Mapping) or not isinstance(content, str) or not is_text(content):
        raise UsageError("the note has no text", hint="put a string into its `content`")
    note_id = raw.get("id")
    named = str(note_id) if isinstance(note_id, str | int) else ""
    if len(named) > MAX_ID_CHARS or not is_text(named):
        raise UsageError(
            "the id of the note is invalid", hint=f"use at most {MAX_ID_CHARS} characters of text"
        )
    return StmEntry(
        id=named or "n" + hashlib.sha256(content.encode()).hexdigest()[:19],
        content=content,
        created_at=moment(raw.get("created_at")),
        viewed_at=moment(raw.get("viewed_at"), "viewed_at"),
        labels=labels_of(raw),
    )
