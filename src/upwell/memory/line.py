"""One memory as a line of JSON, as `upwell export` writes it.

A line is in the import format of `memory/records.py`, with the memory's other fields under
`upwell`. Whoever wrote a file can write anything into those fields. So they count only in a line
that was signed with the key of the home that reads it, or in a file that the user vouches for. Any
other line is an imported memory: what it says about its author can make it less trusted, never
more.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import fields, replace

from upwell.ground.errors import UsageError
from upwell.ground.types.memory import IMPORT, Memory, Provenance, Trust
from upwell.memory.records import (
    MAX_ID_CHARS,
    check,
    check_pin,
    is_text,
    memory_of,
    moment,
    to_json,
)

_OWN, _SIGNATURE = "upwell", "signature"
_SHARED = (
    "id text namespace tags paths symbols triggers occurrences project source created_at".split()
)
_EXPORTED = "trust pinned supersedes lines expires_at updated_at viewed_at provenance".split()
_LABEL = b"upwell export 1"
MAX_NAME_CHARS, MAX_LINES = 1_000, 1_000_000_000


class MemoryLine(Struct, frozen=True):
    """A memory in a file. If `is_own`, it is as the user exported it. Otherwise it is an imported
    memory, and `is_rule` says that the file wants it to be a standing rule."""

    memory: Memory
    is_own: bool
    is_rule: bool


def read_line(text: bytes, key: bytes = b"", *, vouched: bool = False) -> MemoryLine:
    """The memory in a line. It is the user's own if the line is signed with `key`, or if the user
    has `vouched` for the file. Raises UsageError if the line is malformed."""
    raw = _parsed(text)
    memory = memory_of(raw, trust=Trust.IMPORTED)
    claimed = _named(_restored(memory, raw.get(_OWN)))
    check_pin(claimed)
    if vouched or _is_signed(raw, key):
        return MemoryLine(claimed, is_own=True, is_rule=claimed.pinned)
    trust = claimed.trust if claimed.trust in (Trust.AGENT, Trust.TOOL) else Trust.IMPORTED
    imported = replace(
        claimed,
        trust=trust,
        pinned=False,
        supersedes=None,
        provenance=Provenance(door=IMPORT),
    )
    return MemoryLine(imported, is_own=False, is_rule=claimed.pinned)


def to_line(memory: Memory, key: bytes = b"") -> str:
    """The memory as a line of JSON, signed with `key` if there is one. A home that has the key can
    read the line back without loss."""
    values = json.loads(to_json(memory))
    own = {name: values[name] for name in _EXPORTED}
    line = {name: values[name] for name in _SHARED} | {_OWN: own}
    if key:
        own[_SIGNATURE] = _signature(line, key)
    return json.dumps(line)


def _is_signed(raw: Mapping[str, Any], key: bytes) -> bool:
    own = raw.get(_OWN)
    signature = own.get(_SIGNATURE) if isinstance(own, dict) else None
    if not key or not isinstance(signature, str) or not signature.isascii():
        return False
    return hmac.compare_digest(signature, _signature(raw, key))


def _signature(raw: Mapping[str, Any], key: bytes) -> str:
    """The HMAC-SHA256 of a line without its signature, in hex."""
    own = {name: value for name, value in raw[_OWN].items() if name != _SIGNATURE}
    content = json.dumps({**raw, _OWN: own}, sort_keys=True, separators=(",", ":"))
    own_key = hmac.digest(key, _LABEL, hashlib.sha256)
    return hmac.new(own_key, content.encode(), hashlib.sha256).hexdigest()


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig"), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise UsageError(
            f"not UTF-8 (byte {error.start})", hint="convert the file to UTF-8"
        ) from error
    except RecursionError as error:
        raise UsageError("nested too deeply") from error
    except ValueError as error:
        raise UsageError(f"not JSON: {error}") from error


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a JSON number")


def _named(memory: Memory) -> Memory:
    """Give the memory an id if it has none. The id is the same on every import of the file."""
    check(memory)
    if not memory.id.isprintable():
        raise UsageError(f"{memory.id!a:.60} is not an id", hint="use printable characters")
    if memory.id:
        return memory
    identity = json.dumps([memory.text, memory.namespace, memory.project, memory.source])
    return replace(memory, id="i" + hashlib.sha256(identity.encode()).hexdigest()[:19])


def _restored(memory: Memory, own: object) -> Memory:
    """Restore the fields that only exports contain."""
    if own is None:
        return memory
    if not isinstance(own, Mapping):
        raise UsageError(f"{_OWN} must be an object")
    supersedes = own.get("supersedes")
    try:
        if supersedes is not None and not (
            isinstance(supersedes, str) and len(supersedes) <= MAX_ID_CHARS
        ):
            raise ValueError(f"{supersedes!a:.60} is not an id")
        return replace(
            memory,
            trust=Trust(own.get("trust", memory.trust)),
            pinned=own.get("pinned") is True,
            supersedes=supersedes,
            lines=_span(own.get("lines")),
            expires_at=moment(own.get("expires_at"), "expires_at"),
            updated_at=moment(own.get("updated_at"), "updated_at"),
            viewed_at=moment(own.get("viewed_at"), "viewed_at"),
            provenance=_provenance(own.get("provenance", {})),
        )
    except (TypeError, ValueError) as error:
        raise UsageError(f"{_OWN} does not look like part of an export: {error}") from error


def _provenance(value: object) -> Provenance:
    names = {entry.name for entry in fields(Provenance)}
    if not isinstance(value, Mapping) or not names >= value.keys():
        raise ValueError(f"{value!a:.60} is not a provenance")
    for text in value.values():
        if not isinstance(text, str) or len(text) > MAX_NAME_CHARS or not is_text(text):
            raise ValueError(f"{text!a:.60} is not part of a provenance")
    return Provenance(**value)


def _span(value: object) -> tuple[int, int] | None:
    if value is None:
        return None
    if isinstance(value, list) and len(value) == 2 and all(type(line) is int for line in value):
        start, end = value
        if 0 < start <= end <= MAX_LINES:
            return start, end
    raise ValueError(f"{value!a:.60} is not a pair of lines")
