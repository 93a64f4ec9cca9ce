"""Short-term memory: `stm.json`, exactly as seed 001 has it.

An array of objects with `id`, `content`, `created_at` and `viewed_at` (ISO 8601, UTC, `Z`); other
keys that somebody put there stay. The file is the truth: it is read at each use, so an edit by
hand counts, and every change is lock, temporary file, fsync, rename. A torn or foreign file is
moved aside, never overwritten.
"""

import json
import os
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TypeGuard

from upwell.ground.errors import StoreUnwritable, UsageError
from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.redact import redact
from upwell.ground.sqlite_file import exclusively
from upwell.ground.text.words import fold
from upwell.ground.types import Memory, Provenance, Trust

RETENTION_DAYS = 35
MAX_RESULTS = 3
TRASH_DAYS = 30
_DAY = 86_400.0
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Seed 001's figures: entries not viewed for `retention_days` are cleared; a search gives at
    most `max_results`."""

    retention_days: int = RETENTION_DAYS
    max_results: int = MAX_RESULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One note. Times are epoch seconds; None is not known."""

    id: str
    content: str
    created_at: float | None
    viewed_at: float | None


class ShortTerm:
    """The notes of one `stm.json`. Its methods block; call them in a thread."""

    def __init__(
        self, path: Path, *, options: Options | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._path = path
        self._options = options or Options()
        self._clock = clock
        self.moved_aside: Path | None = None

    def add(self, content: str) -> tuple[Entry, tuple[str, ...]]:
        """Keep a note; secrets in it are masked. Returns it, and the rules that masked something.

        Raises:
            UsageError: it is empty.
            StoreUnwritable: it was not kept.
        """
        if not content.strip():
            raise UsageError("a note needs a content", hint="an empty one says nothing")
        masked, rules = redact(content)
        now = _stamp(self._clock.now())
        raw = {"id": str(uuid.uuid4()), "content": masked, "created_at": now, "viewed_at": now}
        self._change(lambda notes: [*notes, raw])
        return _entry(raw), rules

    def search(
        self, *, query: str | None = None, id: str | None = None, date: str | None = None
    ) -> list[Entry]:
        """At most three notes: by words, by id, by day of making (UTC); what is given all applies.
        Most occurrences first, a phrase before its words, all words before some, then newest.
        That they were viewed is noted on those returned only.

        Raises:
            UsageError: nothing is given, or the day is none.
            StoreUnwritable: the file cannot be written.
        """
        wanted = (query or "").strip(), (id or "").strip(), (date or "").strip()
        if not any(wanted):
            raise UsageError(
                "search_memory needs one of query, id, date", hint="date is like 2025-07-20"
            )
        day = _day(wanted[2]) if wanted[2] else None
        found = [
            raw
            for raw in self._read()
            if (not wanted[1] or raw["id"] == wanted[1]) and (day is None or _made_on(raw, day))
        ]
        best = _ranked(found, wanted[0])[: self._options.max_results]
        if best:
            self._viewed({raw["id"] for raw in best})
        return [_entry(raw) for raw in best]

    def delete(self, entry_id: str) -> bool:
        """Remove a note. False when there is none with this id; then nothing is written."""
        if not any(raw["id"] == entry_id for raw in self._read()):
            return False
        self._change(lambda notes: [raw for raw in notes if _id(raw) != entry_id])
        return True

    def clear(self) -> int:
        """Put aside what has not been viewed for more than 35 days; kept for 30 days in
        `stm.trash.json`. What has no readable time stays. Returns how many went."""
        horizon = self._clock.now() - self._options.retention_days * _DAY
        old = [raw for raw in self._read() if (_last_seen(raw) or horizon) < horizon]
        if not old:
            return 0
        gone = {raw["id"] for raw in old}
        self._throw_away(old)
        self._change(lambda notes: [raw for raw in notes if _id(raw) not in gone])
        return len(gone)

    def entries(self) -> list[Entry]:
        """Every note, as the file has them."""
        return [_entry(raw) for raw in self._read()]

    @property
    def path(self) -> Path:
        return self._path

    def memories(self) -> list[Memory]:
        """Every note as a memory, for whoever indexes them. Looking so is not viewing."""
        return [
            Memory(
                text=entry.content,
                id=entry.id,
                source=f"stm:{entry.id}",
                provenance=Provenance(door="tool"),
                trust=Trust.AGENT,
                created_at=entry.created_at,
                viewed_at=entry.viewed_at,
            )
            for entry in self.entries()
        ]

    def _viewed(self, ids: set[str]) -> None:
        now = _stamp(self._clock.now())

        def note(notes: list[Any]) -> list[Any]:
            return [raw | {"viewed_at": now} if _id(raw) in ids else raw for raw in notes]

        self._change(note)

    def _change(self, change: Callable[[list[Any]], list[Any]]) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with exclusively(self._path):
                _write(self._path, change(self._load()))
        except OSError as error:
            raise StoreUnwritable(
                f"cannot write {self._path}: {error.strerror}",
                hint="check the folder's permissions and the disk",
            ) from error

    def _read(self) -> list[dict[str, Any]]:
        """The notes of the file that can be read as such."""
        return [raw for raw in self._load() if _is_note(raw)]

    def _load(self) -> list[Any]:
        """Everything in the file, foreign things too; a file that is no array is moved aside."""
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return []
        try:
            notes = json.loads(text)
        except ValueError:
            notes = None
        if isinstance(notes, list):
            return notes
        stamp = datetime.fromtimestamp(self._clock.now(), UTC).strftime("%Y%m%dT%H%M%S")
        self.moved_aside = self._path.with_name(f"{self._path.name}.corrupt-{stamp}")
        self._path.replace(self.moved_aside)
        return []

    def _throw_away(self, old: Sequence[dict[str, Any]]) -> None:
        path = self._path.with_name(f"{self._path.stem}.trash.json")
        trash = ShortTerm(path, clock=self._clock)
        now = self._clock.now()
        thrown = [raw | {"cleared_at": _stamp(now)} for raw in old]

        def add(notes: list[Any]) -> list[Any]:
            kept = [
                raw for raw in notes if now - (_time(raw, "cleared_at") or 0) < TRASH_DAYS * _DAY
            ]
            return [*kept, *thrown]

        trash._change(add)


def _id(raw: object) -> str | None:
    return raw["id"] if _is_note(raw) else None


def _is_note(raw: object) -> TypeGuard[dict[str, Any]]:
    return (
        isinstance(raw, dict)
        and isinstance(raw.get("id"), str)
        and isinstance(raw.get("content"), str)
    )


def _entry(raw: dict[str, Any]) -> Entry:
    return Entry(
        id=raw["id"],
        content=raw["content"],
        created_at=_time(raw, "created_at"),
        viewed_at=_time(raw, "viewed_at"),
    )


def _ranked(notes: list[dict[str, Any]], query: str) -> list[dict[str, Any]]:
    newest = sorted(notes, key=lambda raw: -(_time(raw, "created_at") or 0.0))
    if not query:
        return newest
    phrase = " ".join(fold(query).split())
    words = list(dict.fromkeys(re.findall(r"[^\W_]+", phrase)))
    scored = []
    for raw in newest:
        text = " ".join(fold(raw["content"]).split())
        counts = [text.count(word) for word in words]
        said = text.count(phrase)
        if said or any(counts):
            scored.append(((said, all(counts) and bool(words), sum(counts)), raw))
    return [raw for _, raw in sorted(scored, key=lambda pair: pair[0], reverse=True)]


def _made_on(raw: dict[str, Any], day: date) -> bool:
    at = _time(raw, "created_at")
    return at is not None and datetime.fromtimestamp(at, UTC).date() == day


def _last_seen(raw: dict[str, Any]) -> float | None:
    return _time(raw, "viewed_at") or _time(raw, "created_at")


def _time(raw: object, key: str) -> float | None:
    """Epoch seconds of an ISO time, or of a bare day (older files); None when it is neither."""
    value = raw.get(key) if isinstance(raw, dict) else None
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _day(text: str) -> date:
    try:
        if _DATE.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise UsageError(f"{text[:40]!r} is no date", hint="YYYY-MM-DD, like 2025-07-20")


def _stamp(at: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _write(path: Path, notes: list[Any]) -> None:
    """All or nothing, and on the disk when this returns."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    descriptor = os.open(partial, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(notes, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
