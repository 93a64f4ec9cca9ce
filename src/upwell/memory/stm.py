"""Short-term memory: `stm.json`, exactly as seed 001 has it.

An array of objects with `id`, `content`, `created_at` and `viewed_at` (ISO 8601, UTC, `Z`); other
keys that somebody put there stay. The file (`memory/notes_file.py`) is the truth.
"""

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from upwell.ground.errors import StoreUnwritable, UsageError
from upwell.ground.files import writing
from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.project import is_seen
from upwell.ground.redact import redact
from upwell.ground.text.words import fold
from upwell.ground.trace import LOG
from upwell.ground.types import Memory, Provenance, Trust
from upwell.memory.notes_file import NotesFile, Raw, is_note
from upwell.memory.options import NotesOptions
from upwell.memory.origins import Origin, Origins
from upwell.memory.rows import content_hash
from upwell.memory.shape import MAX_TEXT_CHARS

TRASH_DAYS = 30
SOURCE = "stm:"
"""What the source of a note's memory begins with: it is cited as `[stm:id]`."""
_DAY = 86_400.0
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One note. Times are epoch seconds; None is not known."""

    id: str
    content: str
    created_at: float | None
    viewed_at: float | None


class ShortTerm:
    """The notes of one `stm.json`. Its methods block; call them in a thread.

    `origins` says where notes come from. One that nobody knows was put into the file by hand: in
    the home's file it is the user's. In the file that a project keeps (`root` is the project)
    whoever made the folder may have written it, so it is not there. Where a method takes a
    `project`, notes of other projects are not there.
    """

    def __init__(
        self,
        path: Path,
        *,
        options: NotesOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
        origins: Origins | None = None,
        root: str | None = None,
    ) -> None:
        self.file = NotesFile(path, clock)
        self.options = options or NotesOptions()
        self._clock = clock
        self._origins = origins
        self._root = root
        self.ignored: Path | None = None

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def trash(self) -> Path:
        """Where cleared notes are for 30 days."""
        return self.path.with_name(f"{self.path.stem}.trash.json")

    def add(self, content: str, origin: Origin | None = None) -> tuple[Entry, tuple[str, ...]]:
        """Keep a note; secrets in it are masked. Returns it, and the rules that masked something.

        Raises:
            UsageError: it is empty, or too long.
            StoreUnwritable: it was not kept.
        """
        if not content.strip():
            raise UsageError("a note needs a content", hint="an empty one says nothing")
        if len(content) > MAX_TEXT_CHARS:
            raise UsageError(
                f"a note has at most {MAX_TEXT_CHARS} characters, this one {len(content)}",
                hint="say what matters of it",
            )
        masked, rules = redact(content)
        now = _stamp(self._clock.now())
        raw = {"id": str(uuid.uuid4()), "content": masked, "created_at": now, "viewed_at": now}
        origin = origin or Origin()
        if self._origins is not None:
            with writing(self.path):
                self._origins.keep(raw["id"], replace(origin, project=self._root or origin.project))
        self.file.change(lambda notes: [*notes, raw])
        return _entry(raw), rules

    def search(
        self,
        *,
        query: str | None = None,
        id: str | None = None,
        date: str | None = None,
        project: str | None = None,
    ) -> list[Entry]:
        """At most three notes: by words, by id, by day of making (UTC); what is given all applies.
        Most occurrences first, a phrase before its words, all words before some, then newest.
        That they were viewed is noted on those returned only, as they come they are from before.

        Raises:
            UsageError: nothing is given, or the day is none.
            StoreError: the file cannot be read.
        """
        wanted = (query or "").strip(), (id or "").strip(), (date or "").strip()
        if not any(wanted):
            raise UsageError(
                "search_memory needs one of query, id, date", hint="date is like 2025-07-20"
            )
        day = _day(wanted[2]) if wanted[2] else None
        found = [
            raw
            for raw in self._seen_by(project)
            if (not wanted[1] or raw["id"] == wanted[1]) and (day is None or _made_on(raw, day))
        ]
        best = _ranked(found, wanted[0])[: self.options.most]
        if best:
            self.viewed({raw["id"] for raw in best})
        return [_entry(raw) for raw in best]

    def delete(self, entry_id: str, *, project: str | None = None) -> bool:
        """Remove a note. False when there is none with this id; then nothing is written."""
        if not any(raw["id"] == entry_id for raw in self._seen_by(project)):
            return False
        self.file.change(lambda notes: [raw for raw in notes if _id(raw) != entry_id])
        self._forget_origins({entry_id})
        return True

    def clear(self) -> int:
        """Put aside what has not been viewed for more than 35 days; kept for 30 days in
        `stm.trash.json`. What has no readable time stays. Returns how many went."""
        horizon = self._clock.now() - self.options.retention_days * _DAY
        old = {raw["id"] for raw, _ in self._counting() if _is_forgotten(raw, horizon)}
        if not old:
            return 0
        gone: list[Raw] = []

        def put_aside(notes: list[Any]) -> list[Any]:
            gone[:] = [raw for raw in notes if is_note(raw) and raw["id"] in old]
            _throw_away(NotesFile(self.trash, self._clock), gone, self._clock.now())
            return [raw for raw in notes if raw not in gone]

        self.file.change(put_aside)
        self._forget_origins({raw["id"] for raw in gone})
        return len(gone)

    def entries(self) -> list[Entry]:
        """Every note that counts."""
        return [_entry(raw) for raw, _ in self._counting()]

    def memories(self) -> list[Memory]:
        """Every note as a memory, for whoever indexes them. Looking so is not viewing."""
        return [_memory(_entry(raw), origin) for raw, origin in self._counting()]

    def _counting(self) -> list[tuple[Raw, Origin]]:
        """The notes of the file that count, each with its origin."""
        origins = self._origins.all() if self._origins is not None else {}
        known = [(raw, origins.get(raw["id"])) for raw in self.file.read()]
        if self._root is None:
            return [(raw, origin or Origin()) for raw, origin in known]
        return [(raw, origin) for raw, origin in known if origin and origin.project == self._root]

    def _seen_by(self, project: str | None) -> list[Raw]:
        return [raw for raw, origin in self._counting() if is_seen(origin.project, project)]

    def viewed(self, ids: set[str]) -> None:
        """These were shown to who asked, or surfaced and made use of (DESIGN 4.5)."""
        now = _stamp(self._clock.now())

        def note(notes: list[Any]) -> list[Any]:
            return [raw | {"viewed_at": now} if _id(raw) in ids else raw for raw in notes]

        try:
            self.file.change(note)
        except StoreUnwritable as error:
            LOG.warning("that notes were viewed was not noted: %s", error)

    def _forget_origins(self, ids: set[str]) -> None:
        if self._origins is not None:
            with writing(self.path):
                self._origins.drop(ids)


def _throw_away(trash: NotesFile, old: Sequence[Raw], now: float) -> None:
    thrown = [raw | {"cleared_at": _stamp(now)} for raw in old]

    def add(notes: list[Any]) -> list[Any]:
        kept = [raw for raw in notes if now - (_time(raw, "cleared_at") or 0) < TRASH_DAYS * _DAY]
        return [*kept, *thrown]

    trash.change(add)


def _memory(entry: Entry, origin: Origin) -> Memory:
    return Memory(
        text=entry.content,
        id=entry.id,
        project=origin.project,
        source=f"{SOURCE}{entry.id}",
        trust=origin.trust,
        provenance=Provenance(
            door="tool" if origin.trust is Trust.AGENT else "cli", session=origin.session
        ),
        content_hash=content_hash(entry.content),
        created_at=entry.created_at,
        viewed_at=entry.viewed_at,
    )


def _id(raw: object) -> str | None:
    return raw["id"] if is_note(raw) else None


def _entry(raw: Raw) -> Entry:
    return Entry(
        id=raw["id"],
        content=raw["content"],
        created_at=_time(raw, "created_at"),
        viewed_at=_time(raw, "viewed_at"),
    )


def _ranked(notes: list[Raw], query: str) -> list[Raw]:
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


def _made_on(raw: Raw, day: date) -> bool:
    at = _time(raw, "created_at")
    return at is not None and datetime.fromtimestamp(at, UTC).date() == day


def _is_forgotten(raw: Raw, horizon: float) -> bool:
    """Was it last viewed, else made, before `horizon`? What has no readable time is kept."""
    last = _time(raw, "viewed_at") or _time(raw, "created_at")
    return last is not None and last < horizon


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
