"""Convert memories to rows and back.

A PostgreSQL text cannot contain NUL or lone surrogates. If a memory's text contains them, `raw`
stores its exact bytes and `text` stores a readable form.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from upwell.ground.types.memory import Memory
from upwell.memory.ranking.terms import sound
from upwell.memory.records import DETAILS, from_details

COLUMNS = f"id, namespace, text, raw, {DETAILS}"
ID, NAMESPACE, TEXT, RAW, EXPIRES, PINNED = (
    COLUMNS.split(", ").index(name)
    for name in ("id", "namespace", "text", "raw", "expires_at", "pinned")
)
TYPES = (
    "text, text, text, bytea, text, text, text, text, text, integer, integer, text, text, text, "
    "text, text, boolean, text, double precision, text, double precision, double precision, "
    "double precision, text, integer"
)
"""The types of `COLUMNS`, in the same order."""


_MAX_INDEXED_BYTES = 1_000


def indexable(key: str) -> str:
    """Return `key`, or its hash if it is too long for a PostgreSQL index."""
    encoded = key.encode()
    if len(encoded) <= _MAX_INDEXED_BYTES:
        return key
    return f"sha256:{hashlib.sha256(encoded).hexdigest()}"


def to_row(memory: Memory) -> tuple[Any, ...]:
    """Return the memory's values for `COLUMNS`, in the same order."""
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
    # The driver cannot encode a list that mixes integers and floats.
    return None if seconds is None else float(seconds)


def from_row(tenant: str, row: Sequence[Any]) -> Memory:
    """Build a tenant's memory from a row of `COLUMNS`."""
    return from_details(tenant, row[0], row[1], text_of(row), row[4:])


def text_of(row: Sequence[Any]) -> str:
    """Return the exact text in a row of `COLUMNS`."""
    text, raw = row[TEXT], row[RAW]
    return text if raw is None else bytes(raw).decode("utf-8", "surrogatepass")
