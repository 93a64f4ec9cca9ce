"""The notes file `stm.json`, and the file that records the origin of each note.

`stm.json` is an array of JSON objects. upwell reads the file on each use, so edits by hand take
effect. Every change takes a lock, writes a temporary file, syncs it and renames it. A file that is
not a JSON array is moved aside, never overwritten. Array members that are not notes are preserved.

Notes do not record their own origin, because anyone can edit the file. Instead, a separate file in
upwell's home records the project and author of each note. A repository can therefore contain notes,
but cannot claim that a user of this machine wrote them.

A note has keys only for the labels that were given: its namespace, kind, tags and paths. A note
without labels has only the four keys that seed 001 defines (tests/NAMES.md).
"""

import errno
import json
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

from msgspec import Struct
from msgspec.structs import asdict

from upwell.ground.clock import Clock
from upwell.ground.errors import StoreError, UsageError
from upwell.ground.files import (
    exclusively,
    read_regular_file,
    remove_partial_files,
    write_atomically,
    writing,
)
from upwell.ground.secrets.redact import redact
from upwell.ground.text.words import counted
from upwell.ground.trace import LOG
from upwell.ground.types.memory import DEFAULT_NAMESPACE, Trust
from upwell.ground.types.rpc import Ping
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
    and paths are masked. Raises UsageError if a label is malformed; the message names it."""
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


LOCK_SECONDS = 60.0
"""How long a change waits for the lock. This is enough for fifty agents that write at the same
moment."""

Raw = dict[str, Any]


def patiently(path: Path) -> AbstractContextManager[None]:
    return exclusively(path, LOCK_SECONDS)


class NotesFile:
    """One `stm.json`. The methods block."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._moved_aside: Path | None = None

    def read(self) -> list[Raw]:
        try:
            notes = _parsed(self.path)
        except OSError as error:
            raise StoreError(
                f"cannot read {self.path}: {error.strerror}", hint="check its owner"
            ) from error
        if notes is None:
            self.change(list)
            notes = []
        return [raw for raw in notes if is_note(raw)]

    def change(self, change: Callable[[list[Any]], list[Any]]) -> None:
        """Replace the whole array with the result of `change()`. The array includes members that
        are not notes. Raises StoreUnwritable: nothing was changed."""
        with writing(self.path):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with patiently(self.path):
                remove_partial_files(self.path)
                notes = change(self._load_or_move_aside())
                write_atomically(self.path, json.dumps(notes, indent=2) + "\n")

    def take_report(self) -> Path | None:
        """The new path of the file if it was moved aside since this method was last called;
        otherwise None."""
        moved, self._moved_aside = self._moved_aside, None
        return moved

    def ping(self) -> Ping:
        """Check that the file is readable. Unlike `read()`, this never moves the file aside."""
        try:
            notes = _parsed(self.path)
        except OSError as error:
            return Ping(ok=False, detail=f"{self.path}: {error.strerror}", hint="check its owner")
        if notes is None:
            return Ping(
                ok=False,
                detail=f"{self.path} is not a JSON array",
                hint="fix it, or the next use moves it aside",
            )
        return Ping(ok=True, detail=f"{counted(sum(map(is_note, notes)), 'note')} in {self.path}")

    def _load_or_move_aside(self) -> list[Any]:
        # The caller holds the lock, so this never moves a good file that another process has just
        # written.
        notes = _parsed(self.path)
        if notes is not None:
            return notes
        stamp = datetime.fromtimestamp(self._clock.now(), UTC).strftime("%Y%m%dT%H%M%S")
        moved_path = self.path.with_name(f"{self.path.name}.corrupt-{stamp}")
        self.path.replace(moved_path)
        self._moved_aside = moved_path
        LOG.error("%s could not be read and was moved to %s", self.path, moved_path)
        return []


def is_note(raw: object) -> TypeGuard[Raw]:
    return (
        isinstance(raw, dict)
        and isinstance(raw.get("id"), str)
        and isinstance(raw.get("content"), str)
    )


def _parsed(path: Path) -> list[Any] | None:
    """Return [] if the file is missing, and None if it is not a JSON array. Raises OSError if the
    file cannot be read, or is not a regular file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(errno.EINVAL, "is not a file")
        notes = json.loads(path.read_bytes())
    except FileNotFoundError:
        return []
    except (ValueError, RecursionError):
        return None
    return notes if isinstance(notes, list) else None


class Origin(Struct, frozen=True, kw_only=True):
    """Where a note comes from. `project` is the absolute root of the note's project; None means
    every project. `program` is the program from which the note was imported."""

    project: str | None = None
    trust: Trust = Trust.USER
    session: str = ""
    program: str = ""


class Origins:
    """Maps note ids to origins, in one JSON file. The methods block. Those that write may raise
    OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> dict[str, Origin]:
        return {key: origin for key, raw in self._load().items() if (origin := _origin(raw))}

    def keep(self, origins: Mapping[str, Origin]) -> None:
        records = {note_id: asdict(origin) for note_id, origin in origins.items()}
        self._change(lambda raws: {**raws, **records})

    def drop(self, note_ids: Iterable[str]) -> None:
        if ids := set(note_ids):
            self._change(lambda raws: {key: raw for key, raw in raws.items() if key not in ids})

    def _change(self, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with patiently(self._path):
            remove_partial_files(self._path)
            write_atomically(self._path, json.dumps(change(self._load()), indent=1) + "\n")

    def _load(self) -> dict[str, Any]:
        try:
            raws = json.loads(read_regular_file(self._path))
        except (OSError, ValueError):
            return {}
        return raws if isinstance(raws, dict) else {}


def _origin(raw: object) -> Origin | None:
    if not isinstance(raw, dict):
        return None
    project, session, program = (raw.get(name) for name in ("project", "session", "program"))
    try:
        trust = Trust(raw.get("trust", Trust.USER))
    except ValueError:
        trust = Trust.AGENT
    return Origin(
        project=project if isinstance(project, str) else None,
        trust=trust,
        session=session if isinstance(session, str) else "",
        program=program if isinstance(program, str) else "",
    )
