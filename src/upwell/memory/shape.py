"""From what callers give to memories: the import shape of DESIGN §3, checked once, here."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from upwell.ground.errors import UsageError
from upwell.ground.text.anchors import paths_in, symbols_in
from upwell.ground.types import Memory, Trust
from upwell.memory.namespaces import namespace

MAX_TEXT_CHARS = 1_000_000
MAX_LISTED = 200


def memory_of(item: object, *, trust: Trust = Trust.USER) -> Memory:
    """A memory from a `Memory` or a mapping of the import shape, with the files and symbols that
    its text names where none were given.

    Raises:
        UsageError: it has another shape; the message says which field.
    """
    if isinstance(item, Memory):
        memory = item
    elif isinstance(item, Mapping):
        memory = _from_mapping(item, trust)
    else:
        raise UsageError(
            f"a memory is a Memory or an object with a text, not {type(item).__name__}",
            hint='like {"text": "…", "tags": ["…"], "paths": ["…"]}',
        )
    return _anchored(_checked(memory))


def _from_mapping(item: Mapping[str, object], trust: Trust) -> Memory:
    text = item.get("text")
    if not isinstance(text, str):
        raise UsageError("a memory needs a text", hint='the field "text" must be a string')
    return Memory(
        text=text,
        id=_string(item, "id"),
        namespace=_string(item, "namespace"),
        tags=_strings(item, "tags"),
        paths=_strings(item, "paths"),
        symbols=_strings(item, "symbols"),
        project=_string(item, "project") or None,
        source=_string(item, "source"),
        created_at=moment(item.get("created_at")),
        trust=trust,
    )


def _checked(memory: Memory) -> Memory:
    if not isinstance(memory.text, str):
        raise UsageError("a memory's text must be a string")
    if len(memory.text) > MAX_TEXT_CHARS:
        raise UsageError(
            f"a memory has at most {MAX_TEXT_CHARS} characters, this one {len(memory.text)}",
            hint="import it as a document, which is cut into parts",
        )
    return replace(memory, namespace=namespace(memory.namespace), project=_root(memory.project))


def _anchored(memory: Memory) -> Memory:
    """Given files and symbols stand; what was not given is taken from the text."""
    paths = memory.paths[:MAX_LISTED] or paths_in(memory.text)
    symbols = memory.symbols[:MAX_LISTED] or symbols_in(memory.text)
    return replace(memory, paths=paths, symbols=symbols)


def _root(project: str | None) -> str | None:
    """A project without the slash at its end; the empty one is none."""
    return (project.rstrip("/") or "/") if project else None


def moment(value: object) -> float | None:
    """Epoch seconds from a number, an ISO-8601 time (UTC unless it says otherwise), or None.

    Raises:
        UsageError: it is neither.
    """
    if value is None:
        return None
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            datetime.fromtimestamp(value, UTC)
            return float(value)
        if isinstance(value, str):
            at = datetime.fromisoformat(value.strip())
            return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    raise UsageError(
        f"created_at is not a time: {value!a:.60}",
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


def _strings(item: Mapping[str, object], name: str) -> tuple[str, ...]:
    value = item.get(name)
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        return tuple(dict.fromkeys(value))
    raise UsageError(f"{name} must be a list of strings, not {value!a:.60}")
