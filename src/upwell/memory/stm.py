"""Short-term memory: the notes in `stm.json`.

The file is an array of objects with `id`, `content`, `created_at` and `viewed_at` (ISO 8601, UTC,
`Z`), plus any labels. Other keys are preserved. The file is the only copy of the notes;
`memory/notes.py` reads and writes it. `read_notes()` reads an `stm.json` written by another program
or in another home.
"""

import hashlib
import re
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError, UsageError
from upwell.ground.files import read_json, writing
from upwell.ground.project import is_seen
from upwell.ground.secrets.redact import redact
from upwell.ground.text.words import fold
from upwell.ground.trace import LOG
from upwell.ground.types.memory import Memory, Provenance, Trust
from upwell.ground.types.rpc import Ping, is_visible
from upwell.memory.notes import Labels, NotesFile, Origin, Origins, Raw, is_note, labels_of
from upwell.memory.options import NotesOptions
from upwell.memory.records import MAX_ID_CHARS, MAX_TEXT_CHARS, content_hash, is_text, moment

TRASH_DAYS = 30
SOURCE = "stm:"
"""The prefix of a note's source. A note is cited as `[stm:id]`."""
_DOORS = {Trust.AGENT: "tool", Trust.IMPORTED: "import"}
_DAY = 86_400.0
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
NO_LABELS = Labels()


class StmEntry(Struct, frozen=True, kw_only=True):
    """One note. Times are epoch seconds, or None if the file has no readable time."""

    id: str
    content: str
    created_at: float | None
    viewed_at: float | None
    labels: Labels = NO_LABELS


class ShortTerm:
    """The notes in one `stm.json`. The methods block; call them in a thread.

    A note without an origin was added to the file by hand. In the home's file, it belongs to the
    user. In a project's file (`root` is the project), it is left out, because the project's author
    may have written it. Methods with a `project` parameter leave out the notes of other projects.
    `ignored` is a project's file that is not used because it came with the project.
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
        self._cleared = NotesFile(path.with_name(f"{path.stem}.trash.json"), clock)
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
        """The file in which cleared notes remain for at least 30 days."""
        return self._cleared.path

    def add(
        self, content: str, origin: Origin | None = None, labels: Labels = NO_LABELS
    ) -> tuple[StmEntry, tuple[str, ...]]:
        """Store a note with its secrets masked. Returns the note and the redaction rules that
        fired.

        Raises:
            UsageError: the content is empty, or too long.
            StoreUnwritable: the note was not stored.
        """
        if not content.strip():
            raise UsageError("the note is empty", hint="pass the text as `content`")
        if len(content) > MAX_TEXT_CHARS:
            raise UsageError(
                f"the note has {len(content)} characters; the limit is {MAX_TEXT_CHARS}",
                hint="shorten it to what matters",
            )
        masked, rules = redact(content)
        now = _stamp(self._clock.now())
        raw = {"id": str(uuid.uuid4()), "content": masked, "created_at": now, "viewed_at": now}
        raw |= labels.keys()
        self._keep_origins({raw["id"]: origin or Origin()})
        self.file.change(lambda notes: [*notes, raw])
        return _entry(raw), rules

    def take_over(
        self, notes: Sequence[tuple[StmEntry, Origin]]
    ) -> tuple[list[StmEntry], tuple[str, ...]]:
        """Store notes from another file with their ids and times, and mask their secrets. Notes are
        skipped if they are empty, already here, or from a different project than this file. A note
        that `clear()` would remove is marked as viewed now. Returns the stored notes and the rule
        of each masked secret. Raises StoreError if the file cannot be read, or nothing was stored.
        """
        now = self._clock.now()
        present = {raw["id"] for raw in self.file.read()}
        new_notes, fired_rules = dict[str, Raw](), list[str]()
        origins = dict[str, Origin]()
        for entry, origin in notes:
            is_ours = self._root is None or origin.project in (None, self._root)
            if (
                not is_ours
                or entry.id in present
                or entry.id in new_notes
                or not entry.content.strip()
            ):
                continue
            masked, rules = redact(entry.content)
            fired_rules += rules
            created = now if entry.created_at is None else entry.created_at
            viewed = created if entry.viewed_at is None else entry.viewed_at
            is_old = viewed < now - self.options.retention_days * _DAY
            new_notes[entry.id] = {
                "id": entry.id,
                "content": masked,
                "created_at": _stamp(created),
                "viewed_at": _stamp(now if is_old else viewed),
                **entry.labels.keys(),
            }
            origins[entry.id] = origin
        if new_notes:
            self._keep_origins(origins)
            self.file.change(lambda all_notes: [*all_notes, *new_notes.values()])
        return [_entry(raw) for raw in new_notes.values()], tuple(fired_rules)

    def search(
        self,
        *,
        query: str | None = None,
        id: str | None = None,
        date: str | None = None,
        project: str | None = None,
        namespaces: Sequence[str] = (),
    ) -> list[StmEntry]:
        """Find at most `max_results` notes that meet every given condition: any of the words, id,
        and day of creation (UTC). Notes with the whole phrase rank first, then notes with all
        words, then those with the most occurrences, then the newest. With `namespaces`, only notes
        in these namespaces are found. The returned notes are marked as viewed, but their
        `viewed_at` still shows the previous time.

        Raises:
            UsageError: no condition is given, or `date` is invalid.
            StoreError: the file cannot be read.
        """
        query, id, date = ((value or "").strip() for value in (query, id, date))
        if not (query or id or date):
            raise UsageError(
                "search_memory needs a query, an id or a date", hint="a date looks like 2025-07-20"
            )
        if date and not _is_date(date):
            raise UsageError(f"{date[:40]!r} is not a date", hint="YYYY-MM-DD, like 2025-07-20")
        matching = [
            raw
            for raw in self._seen_by(project, namespaces)
            if (not id or raw["id"] == id)
            and (not date or _stamp(_time(raw, "created_at")).startswith(date))
        ]
        best = _ranked(matching, query)[: self.options.most]
        if best:
            self.viewed({raw["id"] for raw in best})
        return [_entry(raw) for raw in best]

    def place_of(
        self, entry_id: str, *, project: str | None = None, namespaces: Sequence[str] = ()
    ) -> str | None:
        """The namespace of a note; None if there is no such note or it is not visible."""
        for raw in self._seen_by(project, namespaces):
            if raw["id"] == entry_id:
                return labels_of(raw).place
        return None

    def delete(
        self, entry_id: str, *, project: str | None = None, namespaces: Sequence[str] = ()
    ) -> bool:
        if not any(raw["id"] == entry_id for raw in self._seen_by(project, namespaces)):
            return False
        self.file.change(lambda notes: [raw for raw in notes if _id(raw) != entry_id])
        self._forget_origins({entry_id})
        return True

    def clear(self) -> int:
        """Move notes that have not been viewed for `retention_days` to the trash. They stay there
        for at least 30 days, until notes are next moved to the trash. Notes without a readable time
        are kept. Returns the number of moved notes."""
        horizon = self._clock.now() - self.options.retention_days * _DAY
        viewed_at = {
            raw["id"]: _time(raw, "viewed_at") or _time(raw, "created_at")
            for raw, _ in self._with_origins()
        }
        old = {id for id, time in viewed_at.items() if time is not None and time < horizon}
        return self._move_out(old, self._to_trash)

    def forget_project(self, project: str, *, for_good: bool) -> int:
        """Move the notes of a project to the trash. If `for_good`, delete them permanently instead,
        along with those already in the trash. Returns the number of notes."""
        ids = {raw["id"] for raw, origin in self._with_origins() if origin.project == project}
        if not for_good:
            return self._move_out(ids, self._to_trash)
        mine = [raw for raw in self._cleared.read() if raw.get("project") == project]
        if mine:
            self._cleared.change(lambda trash: [raw for raw in trash if raw not in mine])
        return self._move_out(ids, lambda _: None) + len(mine)

    def _move_out(self, ids: Collection[str], receive: Callable[[list[Raw]], None]) -> int:
        if not ids:
            return 0
        removed: list[Raw] = []

        def remove(notes: list[Any]) -> list[Any]:
            removed[:] = [raw for raw in notes if is_note(raw) and raw["id"] in ids]
            # Write the trash first, so that a crash in between duplicates notes instead of losing
            # them.
            receive(removed)
            return [raw for raw in notes if raw not in removed]

        self.file.change(remove)
        self._forget_origins({raw["id"] for raw in removed})
        return len(removed)

    def _to_trash(self, notes: list[Raw]) -> None:
        now = self._clock.now()
        origins = self._origins.all() if self._origins is not None else {}
        cleared = [
            # The note's origin is deleted, so its project is recorded here.
            raw | {"cleared_at": _stamp(now), "project": origins.get(raw["id"], Origin()).project}
            for raw in notes
        ]

        def add(trash: list[Any]) -> list[Any]:
            oldest = now - TRASH_DAYS * _DAY
            return [*(raw for raw in trash if (_time(raw, "cleared_at") or 0) > oldest), *cleared]

        self._cleared.change(add)

    def entries(self) -> list[StmEntry]:
        return [_entry(raw) for raw, _ in self._with_origins()]

    def memories(self) -> list[Memory]:
        """The notes of `entries()` as memories, for indexing. They are not marked as viewed."""
        memories = []
        for raw, origin in self._with_origins():
            entry = _entry(raw)
            provenance = Provenance(
                door=_DOORS.get(origin.trust, "cli"), server=origin.program, session=origin.session
            )
            memories.append(
                Memory(
                    text=entry.content,
                    id=entry.id,
                    namespace=entry.labels.place,
                    tags=entry.labels.all_tags,
                    paths=entry.labels.paths,
                    project=origin.project,
                    source=f"{SOURCE}{entry.id}",
                    trust=origin.trust,
                    provenance=provenance,
                    content_hash=content_hash(entry.content),
                    created_at=entry.created_at,
                    viewed_at=entry.viewed_at,
                )
            )
        return memories

    def _with_origins(self) -> list[tuple[Raw, Origin]]:
        origins = self._origins.all() if self._origins is not None else {}
        notes = [(raw, origins.get(raw["id"])) for raw in self.file.read()]
        if self._root is None:
            return [(raw, origin or Origin()) for raw, origin in notes]
        return [(raw, origin) for raw, origin in notes if origin and origin.project == self._root]

    def _seen_by(self, project: str | None, namespaces: Sequence[str] = ()) -> list[Raw]:
        return [
            raw
            for raw, origin in self._with_origins()
            if is_seen(origin.project, project) and is_visible(labels_of(raw).place, namespaces)
        ]

    def viewed(self, ids: set[str]) -> None:
        """Mark notes as viewed, because an explicit search found them or a surfaced note was
        used."""
        now = _stamp(self._clock.now())

        def note(notes: list[Any]) -> list[Any]:
            return [raw | {"viewed_at": now} if _id(raw) in ids else raw for raw in notes]

        try:
            self.file.change(note)
        except StoreError as error:
            LOG.warning("notes could not be marked as viewed: %s", error)

    def _keep_origins(self, origins: Mapping[str, Origin]) -> None:
        if self._origins is not None:
            with writing(self.path):
                self._origins.keep(
                    {
                        note_id: replace(origin, project=self._root or origin.project)
                        for note_id, origin in origins.items()
                    }
                )

    def _forget_origins(self, ids: set[str]) -> None:
        if self._origins is not None:
            with writing(self.path):
                self._origins.drop(ids)


def _id(raw: object) -> str | None:
    return raw["id"] if is_note(raw) else None


def _entry(raw: Raw) -> StmEntry:
    return StmEntry(
        id=raw["id"],
        content=raw["content"],
        created_at=_time(raw, "created_at"),
        viewed_at=_time(raw, "viewed_at"),
        labels=labels_of(raw),
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
        phrase_count = text.count(phrase)
        if phrase_count or any(counts):
            scored.append(((phrase_count, all(counts) and bool(words), sum(counts)), raw))
    return [raw for _, raw in sorted(scored, key=lambda pair: pair[0], reverse=True)]


def _time(raw: object, key: str) -> float | None:
    """Convert an ISO time, or a bare date as in older files, to epoch seconds. Returns None for
    anything else."""
    value = raw.get(key) if isinstance(raw, dict) else None
    try:
        return moment(value) if isinstance(value, str) else None
    except UsageError:
        return None


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text) and date.fromisoformat(text))
    except ValueError:
        return False


def _stamp(at: float | None) -> str:
    if at is None:
        return ""
    time = datetime.fromtimestamp(at, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_untrusted(notes: ShortTerm) -> bool:
    """Whether the file is a link or cannot be read, or all of its notes come from elsewhere, such
    as a clone or an archive."""
    try:
        return notes.path.is_symlink() or bool(notes.file.read() and not notes.entries())
    except StoreError:
        return True


def ping_of(notes: ShortTerm) -> Ping:
    """Check that the file is readable, and report how many of its notes are left out."""
    ping = notes.file.ping()
    path = notes.ignored or notes.path
    left_out = 0 if notes.ignored or not ping.ok else len(notes.file.read()) - len(notes.entries())
    if not notes.ignored and not left_out:
        return ping
    subject = f"{left_out} of them come" if left_out else f"{path} comes"
    return replace(
        ping,
        detail=f"{ping.detail}; {subject} from elsewhere: upwell ignores these notes; "
        f"`upwell import --format stm {path}` imports them",
    )


MAX_BYTES = 256_000_000


def read_notes(path: Path) -> Iterator[StmEntry]:
    """Yield the notes in the file, in order. A note without an id gets one from its content. Raises
    UsageError if the file cannot be read or is not an array, or a note is malformed."""
    notes = read_json(path, MAX_BYTES)
    if not isinstance(notes, list):
        raise UsageError(f"{path} is not an array of notes", hint="name an stm.json")
    for number, raw in enumerate(notes, 1):
        try:
            yield _entry_read(raw)
        except UsageError as error:
            raise UsageError(f"{path}: note {number}: {error.message}", hint=error.hint) from error


def _entry_read(raw: object) -> StmEntry:
    content = raw.get("content") if isinstance(raw, Mapping) else None
    if not isinstance(raw, Mapping) or not isinstance(content, str) or not is_text(content):
        raise UsageError("the note has no text", hint="put a string into its `content`")
    note_id = raw.get("id")
    named = str(note_id) if isinstance(note_id, str | int) else ""
    if len(named) > MAX_ID_CHARS or not is_text(named):
        raise UsageError(
            "the id of the note is invalid", hint=f"use at most {MAX_ID_CHARS} characters of text"
        )
    return StmEntry(
        id=named or "n" + hashlib.sha256(content.encode()).hexdigest()[:19],
        content=content,
        created_at=moment(raw.get("created_at")),
        viewed_at=moment(raw.get("viewed_at"), "viewed_at"),
        labels=labels_of(raw),
    )
