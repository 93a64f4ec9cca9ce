"""Memories as rows, and the number that says where a memory belongs.

Text that is no UTF-8 (lone surrogates, from JSON escapes) cannot be SQLite text: it is kept as
bytes and comes back unchanged.
"""

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from upwell.ground.errors import UsageError
from upwell.ground.types import Memory, Provenance, Scope, Trust
from upwell.memory.schema import PROJECT_BITS, SEQUENCE_BITS

COLUMNS = (
    "tenant, id, namespace, text, tags, paths, symbols, project, source, first_line, last_line, "
    "door, server, tool, session, trust, pinned, supersedes, expires_at, content_hash, "
    "created_at, updated_at, viewed_at"
)
MAX_ID_CHARS = 200
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id(now: float) -> str:
    """16 characters that sort by time: 10 of milliseconds, 6 random (Crockford's base 32)."""
    number = int(now * 1000) << 30 | int.from_bytes(os.urandom(4)) >> 2
    return "".join(_DIGITS[number >> shift & 31] for shift in range(75, -1, -5))


def content_hash(text: str) -> str:
    """What makes two memories exactly the same: 32 hex digits of SHA-256 over the text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def check(memory: Memory) -> None:
    """Refuse what cannot be kept.

    Raises:
        UsageError: an empty text, or an id, namespace, project or source that is not UTF-8.
    """
    if not memory.text.strip():
        raise UsageError("a memory needs a text", hint="an empty one says nothing")
    if len(memory.id) > MAX_ID_CHARS:
        raise UsageError(f"a memory's id has at most {MAX_ID_CHARS} characters")
    for name in ("id", "namespace", "project", "source", "tenant", "supersedes"):
        value = getattr(memory, name) or ""
        if not is_text(value):
            raise UsageError(f"the {name} of a memory must be valid Unicode: {value!a}")


def to_row(memory: Memory) -> tuple[Any, ...]:
    """In the order of `COLUMNS`."""
    first, last = memory.lines or (None, None)
    origin = memory.provenance
    return (
        memory.tenant,
        memory.id,
        memory.namespace,
        memory.text if is_text(memory.text) else memory.text.encode("utf-8", "surrogatepass"),
        json.dumps(memory.tags),
        json.dumps(memory.paths),
        json.dumps(memory.symbols),
        memory.project or "",
        memory.source,
        first,
        last,
        origin.door,
        origin.server,
        origin.tool,
        origin.session,
        str(memory.trust),
        int(memory.pinned),
        memory.supersedes,
        memory.expires_at,
        memory.content_hash,
        memory.created_at,
        memory.updated_at,
        memory.viewed_at,
    )


def from_row(row: Sequence[Any]) -> Memory:
    """The memory of a row of `COLUMNS`."""
    return Memory(
        tenant=row[0],
        id=row[1],
        namespace=row[2],
        text=text_of(row[3]),
        tags=_names(row[4]),
        paths=_names(row[5]),
        symbols=_names(row[6]),
        project=row[7] or None,
        source=row[8],
        lines=None if row[9] is None else (row[9], row[10]),
        provenance=Provenance(door=row[11], server=row[12], tool=row[13], session=row[14]),
        trust=Trust(row[15]),
        pinned=bool(row[16]),
        supersedes=row[17],
        expires_at=row[18],
        content_hash=row[19],
        created_at=row[20],
        updated_at=row[21],
        viewed_at=row[22],
    )


def _names(column: str) -> tuple[str, ...]:
    return () if column == "[]" else tuple(json.loads(column))


def text_of(value: str | bytes) -> str:
    """The text of a memory from its column."""
    return value if isinstance(value, str) else bytes(value).decode("utf-8", "surrogatepass")


def to_json(memory: Memory) -> str:
    """A memory as ASCII JSON, for the trash. `from_json` gives it back."""
    return json.dumps(
        {
            field.name: getattr(memory, field.name)
            for field in fields(memory)
            if field.name != "provenance"
        }
        | {"provenance": {f.name: getattr(memory.provenance, f.name) for f in fields(Provenance)}}
    )


def from_json(text: str) -> Memory:
    raw = json.loads(text)
    lists = {name: tuple(raw[name]) for name in ("tags", "paths", "symbols")}
    return Memory(
        **(
            raw
            | lists
            | {
                "lines": tuple(raw["lines"]) if raw["lines"] else None,
                "provenance": Provenance(**raw["provenance"]),
                "trust": Trust(raw["trust"]),
            }
        )
    )


def stamped(memory: Memory, now: float) -> Memory:
    """With its hash, and with an id and times where it has none."""
    created = now if memory.created_at is None else memory.created_at
    return replace(
        memory,
        id=memory.id or new_id(now),
        content_hash=content_hash(memory.text),
        created_at=created,
        updated_at=now if memory.updated_at is None else memory.updated_at,
        viewed_at=created if memory.viewed_at is None else memory.viewed_at,
    )


def scope_number(db: sqlite3.Connection, tenant: str, project: str | None) -> int:
    """The number of a tenant's project, made when there is none yet."""
    row = db.execute(
        "SELECT no FROM scope WHERE tenant = ? AND project = ?", (tenant, project or "")
    ).fetchone()
    if row:
        return int(row[0])
    same = db.execute("SELECT max(no) FROM scope WHERE tenant = ?", (tenant,)).fetchone()[0]
    top = db.execute("SELECT max(no) FROM scope").fetchone()[0]
    if same is not None:
        number = same + 1
    else:
        number = 0 if top is None else ((top >> PROJECT_BITS) + 1) << PROJECT_BITS
    db.execute(
        "INSERT INTO scope (no, tenant, project) VALUES (?, ?, ?)", (number, tenant, project or "")
    )
    return int(number)


def visible_scopes(db: sqlite3.Connection, scope: Scope) -> list[int]:
    """The scopes a query may see: its project and the global one, or all of its tenant."""
    if scope.project is None:
        rows = db.execute("SELECT no FROM scope WHERE tenant = ?", (scope.tenant,))
    else:
        rows = db.execute(
            "SELECT no FROM scope WHERE tenant = ? AND project IN ('', ?)",
            (scope.tenant, scope.project),
        )
    return sorted(row[0] for row in rows)


def ranges(scopes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The spans of `n` that belong to these scopes, neighbours joined."""
    start: int | None = None
    for place, number in enumerate(scopes):
        start = number if start is None else start
        if place + 1 == len(scopes) or scopes[place + 1] != number + 1:
            yield start << SEQUENCE_BITS, ((number + 1) << SEQUENCE_BITS) - 1
            start = None


def scope_of(n: int) -> int:
    return n >> SEQUENCE_BITS


def is_text(value: str) -> bool:
    """Can SQLite keep it as text?"""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
