"""Reads an `stm.json` that another program or another home wrote."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from upwell.ground.errors import UsageError
from upwell.memory.notes.labels import labels_of
from upwell.memory.notes.stm import Entry
from upwell.memory.records import MAX_ID_CHARS, is_text, moment

MAX_BYTES = 256_000_000


def read_notes(path: Path) -> Iterator[Entry]:
    """The notes of the file, in its order. A note without an id gets one from its content.

    Raises:
        UsageError: the file cannot be read or is not an array, or a note is malformed.
    """
    for number, raw in enumerate(_array(path), 1):
        try:
            yield _entry(raw)
        except UsageError as error:
            raise UsageError(f"{path}: note {number}: {error.message}", hint=error.hint) from error


def _array(path: Path) -> list[object]:
    try:
        if not path.is_file():
            raise UsageError(f"cannot import {path}: not a regular file")
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"cannot import {path}: it is larger than {MAX_BYTES:,} bytes")
        notes = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {(error.strerror or '').lower()}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error}") from error
    if not isinstance(notes, list):
        raise UsageError(f"{path}: an stm.json must be an array of notes")
    return notes


def _entry(raw: object) -> Entry:
    content = raw.get("content") if isinstance(raw, Mapping) else None
    if not isinstance(raw, Mapping) or not isinstance(content, str) or not is_text(content):
        raise UsageError("a note must have an id and a content")
    note_id = raw.get("id")
    named = str(note_id) if isinstance(note_id, str | int) else ""
    if len(named) > MAX_ID_CHARS or not is_text(named):
        raise UsageError(f"its id is not a text of at most {MAX_ID_CHARS} characters")
    return Entry(
        id=named or "n" + hashlib.sha256(content.encode()).hexdigest()[:19],
        content=content,
        created_at=moment(raw.get("created_at")),
        viewed_at=moment(raw.get("viewed_at")),
        labels=labels_of(raw),
    )
