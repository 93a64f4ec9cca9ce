"""Memories as rows.

PostgreSQL's texts hold neither NUL nor lone surrogates. A memory with such a text keeps its bytes
in `raw`, and a readable form in `text`.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from upwell.ground.types.memory import Memory, Provenance, Trust
from upwell.memory.ranking.terms import sound

COLUMNS = (
    "id, namespace, text, raw, tags, paths, symbols, project, source, first_line, last_line, door, "
    "server, tool, session, trust, pinned, supersedes, expires_at, content_hash, created_at, "
    "updated_at, viewed_at, triggers, occurrences"
)
ID, NAMESPACE, TEXT, RAW, EXPIRES, PINNED = (
    COLUMNS.split(", ").index(name)
    for name in ("id", "namespace", "text", "raw", "expires_at", "pinned")
)
TYPES = (
    "text, text, text, bytea, text, text, text, text, text, integer, integer, text, text, text, "
    "text, text, boolean, text, double precision, text, double precision, double precision, "
    "double precision, text, integer"
)
"""The types of `COLUMNS`, in their order."""


_MAX_INDEXED_BYTES = 1_000


def indexable(key: str) -> str:
    """Return `key`, or the hash of a key that is too long for an index of PostgreSQL."""
    encoded = key.encode()
    if len(encoded) <= _MAX_INDEXED_BYTES:
        return key
    return f"sha256:{hashlib.sha256(encoded).hexdigest()}"


def to_row(memory: Memory) -> tuple[Any, ...]:
    """Return the values of `COLUMNS`, in their order."""
    first, last = memory.lines or (None, None)
    origin = memory.provenance
    text = sound(memory.text)
    return (
        memory.id,
        memory.namespace,
        text,
        None if text == memory.text else memory.text.encode("utf-8", "surrogatepass"),
        json.dumps(memory.tags),
        json.dumps(memory.paths),
        json.dumps(memory.symbols),
        memory.project or "",
        sound(memory.source),
        first,
        last,
        sound(origin.door),
        sound(origin.server),
        sound(origin.tool),
        sound(origin.session),
        str(memory.trust),
        memory.pinned,
        memory.supersedes,
        _time(memory.expires_at),
        memory.content_hash,
        _time(memory.created_at),
        _time(memory.updated_at),
        _time(memory.viewed_at),
        json.dumps(memory.triggers),
        memory.occurrences,
    )


def _time(seconds: float | None) -> float | None:
    # An array of mixed types has no type in PostgreSQL.
    return None if seconds is None else float(seconds)


def from_row(tenant: str, row: Sequence[Any]) -> Memory:
    """Build the memory of a tenant from a row of `COLUMNS`."""
    return Memory(
        tenant=tenant,
        id=row[0],
        namespace=row[1],
        text=text_of(row),
        tags=tuple(json.loads(row[4])),
        paths=tuple(json.loads(row[5])),
        symbols=tuple(json.loads(row[6])),
        project=row[7] or None,
        source=row[8],
        lines=None if row[9] is None else (row[9], row[10]),
        provenance=Provenance(door=row[11], server=row[12], tool=row[13], session=row[14]),
        trust=Trust(row[15]),
        pinned=row[16],
        supersedes=row[17],
        expires_at=row[18],
        content_hash=row[19],
        created_at=row[20],
        updated_at=row[21],
        viewed_at=row[22],
        triggers=tuple(json.loads(row[23])),
        occurrences=row[24],
    )


def text_of(row: Sequence[Any]) -> str:
    """Return the exact text of a row of `COLUMNS`."""
    text, raw = row[TEXT], row[RAW]
    return text if raw is None else bytes(raw).decode("utf-8", "surrogatepass")
