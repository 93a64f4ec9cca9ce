"""Validate and normalise memories: the import format, namespaces, ids, hashes and secrets.

Every store uses these functions to check the memories that callers pass in.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import fields, replace

from upwell.ground.errors import UsageError
from upwell.ground.project import in_project, real_folder
from upwell.ground.secrets.redact import redact
from upwell.ground.text.anchors import paths_in, symbols_in
from upwell.ground.types.memory import DEFAULT_NAMESPACE, Memory, Provenance, Trust
from upwell.ground.types.rpc import EVERY
from upwell.memory.ranking.terms import sound

KNOWN = frozenset(
    """
    decisions patterns learnings context tech-debt blockers progress apis config security
    performance testing help prompts
    """.split()
)
"""The usual namespaces; others are allowed. If a folder of documents has one of these names, its
files get that namespace."""

ALIASES = {
    "decision": "decisions",
    "pattern": "patterns",
    "learning": "learnings",
    "techdebt": "tech-debt",
    "tech_debt": "tech-debt",
    "blocker": "blockers",
    "api": "apis",
    "configuration": "config",
    "system": "help",
    "prompt": "prompts",
    "test": "testing",
    "tests": "testing",
}
MAX_NAMESPACE_CHARS = 64
_FREE = re.compile(r"[\w][\w./:-]*")


def namespace(name: str) -> str:
    """The normal form of a namespace: trimmed, in lower case, with aliases resolved. An empty name
    becomes `context`. Raises UsageError if the name contains a character that is not allowed, or is
    too long."""
    bare = name.strip().lower()
    if not bare:
        return DEFAULT_NAMESPACE
    if len(bare) > MAX_NAMESPACE_CHARS or not _FREE.fullmatch(bare):
        raise UsageError(
            f"{name[:MAX_NAMESPACE_CHARS]!r} is not a valid namespace",
            hint=f"use letters, digits, . / : _ and -, at most {MAX_NAMESPACE_CHARS} characters",
        )
    return ALIASES.get(bare, bare)


def namespace_pattern(pattern: str) -> str:
    """The normal form of a namespace pattern: a namespace, `NAME/*` or `*`. Raises UsageError if
    the namespace is invalid."""
    if pattern == EVERY:
        return pattern
    if pattern.endswith("/*"):
        return f"{namespace(pattern.removesuffix('/*'))}/*"
    return namespace(pattern)


MAX_TEXT_CHARS = 1_000_000
MAX_LISTED = 200
MAX_TRIGGERS = 32
MAX_COUNT = 1_000_000


def memory_of(item: object, *, trust: Trust = Trust.USER) -> Memory:
    """Make a memory from a `Memory` or from a mapping in the import format. Files and symbols that
    the item does not list are extracted from its text, unless it has triggers. Raises UsageError if
    the item is malformed; the message names the field."""
    if isinstance(item, Memory):
        memory = item
    elif isinstance(item, Mapping):
        memory = _from_mapping(item, trust)
    else:
        raise UsageError(
            f"a memory must be a Memory or an object with a text, not {type(item).__name__}",
            hint='like {"text": "…", "tags": ["…"], "paths": ["…"]}',
        )
    return _anchored(validated(memory))


def _from_mapping(item: Mapping[str, object], trust: Trust) -> Memory:
    text = item.get("text")
    if not isinstance(text, str):
        raise UsageError("a memory needs text", hint='put a string into the field "text"')
    return Memory(
        text=text,
        id=_string(item, "id"),
        namespace=_string(item, "namespace"),
        tags=_strings(item, "tags"),
        paths=_strings(item, "paths"),
        symbols=_strings(item, "symbols"),
        triggers=_strings(item, "triggers"),
        occurrences=_count(item, "occurrences"),
        project=_string(item, "project") or None,
        source=_string(item, "source"),
        created_at=moment(item.get("created_at")),
        trust=trust,
    )


def validated(memory: Memory) -> Memory:
    """The memory, with its namespace and project in normal form. Raises UsageError if the text, the
    namespace or the project is malformed."""
    if not isinstance(memory.text, str):
        raise UsageError("a memory's text must be a string")
    if len(memory.text) > MAX_TEXT_CHARS:
        raise UsageError(
            f"the memory has {len(memory.text)} characters; the limit is {MAX_TEXT_CHARS}",
            hint="import the text as a document, which upwell splits into chunks",
        )
    return replace(memory, namespace=namespace(memory.namespace), project=_root(memory.project))


def _anchored(memory: Memory) -> Memory:
    """Extract files and symbols from the text unless the memory lists its own. Nothing is extracted
    for a memory with triggers: it surfaces only while its files exist and contain its symbols, so
    a name that the text merely mentions could hide it."""
    if memory.triggers:
        return replace(memory, triggers=memory.triggers[:MAX_TRIGGERS])
    named = memory.paths[:MAX_LISTED] or paths_in(memory.text)
    paths = tuple(in_project(path, memory.project) for path in named)
    symbols = memory.symbols[:MAX_LISTED] or symbols_in(memory.text)
    return replace(memory, paths=paths, symbols=symbols)


def _root(project: str | None) -> str | None:
    if project and "\0" in project:
        raise UsageError("a project's path must not contain a NUL", hint="give the folder's path")
    if not project or project[0] != "/":
        return (project or "").rstrip("/") or None
    return real_folder(project)


def moment(value: object, name: str = "created_at") -> float | None:
    """Convert a number or an ISO 8601 time (UTC if it has no offset) to epoch seconds; None stays
    None. Raises UsageError if the value is not a time. `name` is the field's name in the message.
    """
    if value is None:
        return None
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            datetime.fromtimestamp(value, UTC)
            return float(value)
        if isinstance(value, str):
            time = datetime.fromisoformat(value.strip())
            return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    raise UsageError(
        f"{name} is not a time: {value!a:.60}",
        hint="epoch seconds or ISO 8601, like 2026-04-09T12:00:00Z",
    )


def _string(item: Mapping[str, object], name: str) -> str:
    value = item.get(name)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if name == "id" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise UsageError(f"{name} must be a string, not {type(value).__name__}")


def _count(item: Mapping[str, object], name: str) -> int:
    value = item.get(name)
    if value is None:
        return 1
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_COUNT:
        return value
    raise UsageError(f"{name} must be a whole number from 1 to {MAX_COUNT:,}, not {value!a:.60}")


def _strings(item: Mapping[str, object], name: str) -> tuple[str, ...]:
    value = item.get(name)
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        return tuple(dict.fromkeys(value))
    raise UsageError(f"{name} must be a list of strings, not {value!a:.60}")


MAX_ID_CHARS = 200
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id(now: float) -> str:
    """An id that sorts by time: 16 characters of Crockford's base 32. The first 10 encode the time
    in milliseconds, and the other 6 are random."""
    number = int(now * 1000) << 30 | int.from_bytes(os.urandom(4)) >> 2
    return "".join(_DIGITS[number >> shift & 31] for shift in range(75, -1, -5))


def content_hash(text: str) -> str:
    """The first 32 hex digits of the text's SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def check_pin(memory: Memory) -> None:
    """Raise UsageError if an agent or a tool wrote a pinned memory."""
    if memory.pinned and memory.trust in (Trust.AGENT, Trust.TOOL):
        raise UsageError("only a person can pin a memory", hint="upwell remember --pin TEXT")


def check(memory: Memory) -> None:
    """Raise UsageError if the text is empty, the id is too long, or one of the fields listed below
    is not valid Unicode."""
    if not memory.text.strip():
        raise UsageError("a memory needs text", hint="put the fact to remember into its text")
    if len(memory.id) > MAX_ID_CHARS:
        raise UsageError(
            f"a memory's id has at most {MAX_ID_CHARS} characters", hint="shorten the id"
        )
    for name in ("id", "namespace", "project", "source", "tenant", "supersedes"):
        value = getattr(memory, name) or ""
        if not is_text(value):
            raise UsageError(
                f"the {name} of a memory is not valid Unicode: {value!a}",
                hint="remove the lone surrogates",
            )


def masked(memory: Memory) -> tuple[Memory, tuple[str, ...]]:
    """Mask the secrets in a memory's text, source, tags, files, symbols and triggers. Also returns
    the names of the rules that fired."""
    fired: dict[str, None] = {}

    def clean(value: str) -> str:
        text, rules = redact(value)
        fired.update(dict.fromkeys(rules))
        return text

    text = clean(memory.text)
    clean_memory = replace(
        memory,
        text=text,
        source=clean(memory.source),
        tags=tuple(map(clean, memory.tags)),
        paths=tuple(map(clean, _outside_secrets(memory.paths, memory.text, text, paths_in))),
        symbols=tuple(map(clean, _outside_secrets(memory.symbols, memory.text, text, symbols_in))),
        triggers=tuple(map(clean, memory.triggers)),
    )
    return clean_memory, tuple(sorted(fired))


def _outside_secrets(
    names: Sequence[str], text: str, clean_text: str, names_in: Callable[[str], Sequence[str]]
) -> Sequence[str]:
    """Leave out names that were part of a secret. For example, a line of a private key looks like
    an identifier, and cannot be recognised as a secret on its own. `names_in()` may write a path
    with backslashes differently from the text, so a name need not occur in the text."""
    if text == clean_text:
        return names
    lost = set(names_in(text)) - set(names_in(clean_text))
    return [name for name in names if name not in lost and (name not in text or name in clean_text)]


def stamped(memory: Memory, now: float) -> Memory:
    """The memory with its content hash, and with an id and times if it lacks them."""
    created = now if memory.created_at is None else memory.created_at
    return replace(
        memory,
        id=memory.id or new_id(now),
        content_hash=content_hash(memory.text),
        created_at=created,
        updated_at=now if memory.updated_at is None else memory.updated_at,
        viewed_at=created if memory.viewed_at is None else memory.viewed_at,
    )


def complete(memories: Sequence[Memory], now: float) -> list[Memory]:
    """Pass the memories through `check()` and `stamped()`, so that a store can add them."""
    for memory in memories:
        check(memory)
    return [stamped(memory, now) for memory in memories]


def to_json(memory: Memory) -> str:
    return json.dumps(
        {
            field.name: getattr(memory, field.name)
            for field in fields(memory)
            if field.name != "provenance"
        }
        | {"provenance": {name: getattr(memory.provenance, name) for name in _ORIGIN}}
    )


def from_json(text: str) -> Memory:
    raw = json.loads(text)
    lists = {name: tuple(raw.get(name, ())) for name in ("tags", "paths", "symbols", "triggers")}
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


def is_text(value: str) -> bool:
    """Whether `value` is valid Unicode, without lone surrogates."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


_ORIGIN = tuple(field.name for field in fields(Provenance))
DETAILS = (
    "tags, paths, symbols, project, source, first_line, last_line, door, server, tool, session, "
    "trust, pinned, supersedes, expires_at, content_hash, created_at, updated_at, viewed_at, "
    "triggers, occurrences"
)
"""The columns of a memory's row that all stores share."""


def details_of(memory: Memory) -> tuple[Any, ...]:
    """The values of `DETAILS`. Times are floats, because PostgreSQL's driver cannot encode a list
    that mixes integers and floats."""
    first, last = memory.lines or (None, None)
    origin = memory.provenance
    times = (memory.expires_at, memory.created_at, memory.updated_at, memory.viewed_at)
    expires, *dates = (None if time is None else float(time) for time in times)
    return (
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
        memory.pinned,
        memory.supersedes,
        expires,
        memory.content_hash,
        *dates,
        json.dumps(memory.triggers),
        memory.occurrences,
    )


def with_sound_origin(memory: Memory) -> Memory:
    """The memory with a source and provenance that every store can hold."""
    origin = {name: sound(getattr(memory.provenance, name)) for name in _ORIGIN}
    return replace(memory, source=sound(memory.source), provenance=Provenance(**origin))


def from_details(
    tenant: str, memory_id: str, namespace: str, text: str, details: Sequence[Any]
) -> Memory:
    """Build a memory from a row; `details` are the values of `DETAILS`. SQLite accepts any type in
    any column, so a damaged file may return values of the wrong type. They are treated as missing,
    so that the rest of the memory is still readable."""
    project, first, last = details[3], details[5], details[6]
    return Memory(
        tenant=_word(tenant),
        id=_word(memory_id),
        namespace=_word(namespace),
        text=text,
        tags=_names(details[0]),
        paths=_names(details[1]),
        symbols=_names(details[2]),
        project=(project if isinstance(project, str) else NO_PROJECT) or None,
        source=_word(details[4]),
        lines=(first, last) if type(first) is int and type(last) is int else None,
        provenance=Provenance(
            door=_word(details[7]),
            server=_word(details[8]),
            tool=_word(details[9]),
            session=_word(details[10]),
        ),
        trust=_trust(details[11]),
        pinned=bool(details[12]),
        supersedes=_word(details[13]) or None,
        expires_at=time_or_none(details[14]),
        content_hash=_word(details[15]),
        created_at=time_or_none(details[16]),
        updated_at=time_or_none(details[17]),
        viewed_at=time_or_none(details[18]),
        triggers=_names(details[19]),
        occurrences=details[20] if type(details[20]) is int else 1,
    )


NO_PROJECT = "?"
"""The project of a memory whose own project cannot be read. No folder has this name, so no project
sees the memory."""
MAX_TIME = 200_000_000_000.0
"""A time after this one (about the year 8300) is treated as damaged, because Python's calendar ends
in 9999."""


def _word(column: object) -> str:
    return column if isinstance(column, str) else ""


def time_or_none(column: object) -> float | None:
    """The time in a column or message, unless it is damaged."""
    return column if isinstance(column, float | int) and abs(column) < MAX_TIME else None


def _names(column: object) -> tuple[str, ...]:
    if column == "[]" or not isinstance(column, str):
        return ()
    try:
        names = json.loads(column)
    except ValueError:
        return ()
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def _trust(column: Any) -> Trust:
    """A damaged value becomes the lowest trust."""
    try:
        return Trust(column)
    except ValueError:
        return Trust.TOOL
