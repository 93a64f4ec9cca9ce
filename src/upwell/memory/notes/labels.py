"""The labels of a note: its namespace, kind, tags and paths.

A note in `stm.json` has keys only for the labels that were given. A note without labels has only
the four keys that seed 001 defines (tests/NAMES.md).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from upwell.ground.errors import UsageError
from upwell.ground.secrets.redact import redact
from upwell.ground.types.memory import DEFAULT_NAMESPACE
from upwell.memory.records import is_text, namespace

KINDS: Mapping[str, str] = {
    "cause": "learnings",
    "command": "learnings",
    "decision": "decisions",
    "fact": DEFAULT_NAMESPACE,
    "pitfall": "learnings",
    "place": "learnings",
    "preference": "patterns",
    "rule": "patterns",
}
"""Maps the kinds of notes to their namespaces."""
GENERAL = frozenset({"preference", "rule"})
"""Kinds of notes that need not name a file."""
MAX_LISTED = 20
MAX_CHARS = 300


class Labels(Struct, frozen=True, kw_only=True):
    """The labels of one note. `kind` is one of `KINDS`, or "". If `namespace` is "", the namespace
    follows from the kind."""

    namespace: str = ""
    kind: str = ""
    tags: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The namespace that the note has as a memory."""
        return self.namespace or KINDS.get(self.kind, DEFAULT_NAMESPACE)

    @property
    def all_tags(self) -> tuple[str, ...]:
        """The tags that the note has as a memory, including its kind."""
        return tuple(filter(None, (self.kind, *self.tags)))

    def keys(self) -> dict[str, Any]:
        """The labels that were given, as keys of a note."""
        values = {
            "namespace": self.namespace,
            "kind": self.kind,
            "tags": list(self.tags),
            "paths": list(self.paths),
        }
        return {name: value for name, value in values.items() if value}


def checked_labels(args: Mapping[str, Any]) -> tuple[Labels, tuple[str, ...]]:
    """Return the labels in a tool's arguments, and the redaction rules that fired. Secrets in tags
    and paths are masked.

    Raises:
        UsageError: a label is malformed; the message names it.
    """
    tags, tag_rules = _masked(_listed("tags", args.get("tags", ())))
    paths, path_rules = _masked(_listed("paths", args.get("paths", ())))
    name = str(args.get("namespace", "")).strip()
    kind = str(args.get("kind", ""))
    if kind and kind not in KINDS:
        raise UsageError(f"{kind!r:.60} is not a kind of note", hint=f"one of {', '.join(KINDS)}")
    labels = Labels(
        namespace=namespace(name) if name else "",
        kind=kind,
        tags=tags,
        paths=tuple(path.removeprefix("./") for path in paths),
    )
    return labels, (*tag_rules, *path_rules)


def labels_of(raw: Mapping[str, Any]) -> Labels:
    """The labels of a note in the file. People edit the file, so if any label is malformed, all are
    ignored."""
    try:
        args = {key: raw[key] for key in Labels.__struct_fields__ if raw.get(key)}
        return checked_labels(args)[0]
    except UsageError:
        return Labels()


def _listed(name: str, values: Any) -> list[str]:
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise UsageError(f"{name!r} must be a list of strings", hint=f'like "{name}": ["…"]')
    texts = [value.strip() for value in values if isinstance(value, str) and is_text(value)]
    if len(texts) < len(values) or any(len(text) > MAX_CHARS for text in texts):
        raise UsageError(f"{name!r} must be a list of texts of at most {MAX_CHARS} characters")
    if len(texts) > MAX_LISTED:
        raise UsageError(f"{name!r} has {len(texts)} entries; the limit is {MAX_LISTED}")
    return [text for text in dict.fromkeys(texts) if text]


def _masked(texts: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    pairs = [redact(text) for text in texts]
    return tuple(text for text, _ in pairs), tuple(rule for _, rules in pairs for rule in rules)
