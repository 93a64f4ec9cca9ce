"""Parse a document's front matter, which gives the namespace, tags and paths of its sections."""

import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from upwell.ground.errors import UsageError
from upwell.memory.records import ALIASES, KNOWN, namespace

MAX_FRONT_CHARS = 16_000
MAX_FRONT_DEPTH = 8
"""Front matter that is longer or nested more deeply is read as text."""
_FRONT = re.compile(r"\A---[ \t]*\r?\n((?:[^\n]*+\n){0,200}?)---[ \t]*(?:\r?\n|\Z)")


class Front(Struct, frozen=True):
    """The front matter of a document. The body begins at the character offset `end`."""

    namespace: str = ""
    tags: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    end: int = 0


def front_of(text: str) -> Front:
    """Parse the front matter of `text`. A block that is not a YAML mapping belongs to the body."""
    block = block_of(text)
    if block is None:
        return Front()
    fields, end = block
    return Front(
        namespace=_known_name(next(iter(_texts(fields.get("namespace"))), "")),
        tags=_texts(fields.get("tags")),
        paths=_texts(fields.get("paths")),
        end=end,
    )


def block_of(text: str, max_chars: int = MAX_FRONT_CHARS) -> tuple[dict[str, object], int] | None:
    """Return the fields of the front matter of `text`, keyed by lower-case name, and the offset of
    the body. Returns None if `text` does not begin with a YAML mapping of at most `max_chars`."""
    match = _FRONT.match(text)
    if match is None or len(match.group(1)) > max_chars:
        return None
    fields = _mapping(match.group(1))
    return None if fields is None else (fields, match.end())


def _mapping(block: str) -> dict[str, object] | None:
    """Return the fields of a YAML mapping, keyed by lower-case name. Returns {} for an empty block,
    and None for a block that is not a mapping."""
    # Imported here because only documents with front matter need it.
    import yaml

    # With this loader, scalars stay text. No constructor runs, and `2026-04-09` and `no` stay as
    # written.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        if not _is_plain(yaml.parse(block, loader), yaml):
            return None
        fields = yaml.load(block, loader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    if fields is None:
        return {}
    if not isinstance(fields, dict):
        return None
    return {name.lower(): value for name, value in fields.items() if isinstance(name, str)}


def _is_plain(events: Iterable[Any], yaml: Any) -> bool:
    """Return whether the block has no deep nesting and no aliases. Aliases can expand without
    bound."""
    depth = 0
    for event in events:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            return False
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_FRONT_DEPTH:
            return False
    return True


def namespace_of(front: Front, path: str) -> str:
    """Return the namespace in a document's front matter. If there is none, use the innermost folder
    in `path` that is named after a usual namespace (`memory/decisions/db.md`), or else the default
    namespace."""
    folders = path.split("/")[:-1]
    known = (name.lower() for name in reversed(folders) if name.lower() in {*KNOWN, *ALIASES})
    return front.namespace or namespace(next(known, ""))


def _texts(value: object) -> tuple[str, ...]:
    parts = value if isinstance(value, list) else str(value or "").split(",")
    texts = (part.strip().strip("\"'").strip() for part in parts if isinstance(part, str))
    return tuple(filter(None, texts))


def _known_name(name: str) -> str:
    try:
        return namespace(name) if name else ""
    except UsageError:
        return ""
