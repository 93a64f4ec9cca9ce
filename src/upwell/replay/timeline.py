"""Joins the sessions in many files into one stream of events, in chronological order.

Hosts copy history: a resumed or forked session may begin with the events of another, the
checkpoints of a session repeat each other, and hosts and collections store some sessions several
times, with different names and times. An event belongs to the first file that records it, and a
session that copies an earlier one is skipped. A file is read up to its first error.

Every file is read twice: first to find the sessions and where they end, then to replay them.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from upwell.episodes.events import Kind, SessionEvent
from upwell.ground.errors import UsageError
from upwell.ground.project import is_below, real_folder
from upwell.replay.transcripts import Transcript
from upwell.replay.transcripts.base import EventStream, ReadTally, boundary, merged
from upwell.replay.transcripts.census import Census

MIN_EVENTS = 5
"""Sessions with fewer events may be equal by chance (`Run the tests`, and they pass)."""
MIN_SHARE = 0.6
FIRST_PROMPTS = 3


class Fingerprint(Struct):
    """A session's content without its times: hashes of its first prompts, in order, and of all its
    events. `begins` is the time of the first event, in seconds since the epoch."""

    begins: float
    prompts: list[int] = field(default_factory=list[int])
    events: set[int] = field(default_factory=set[int])

    def add(self, event: SessionEvent) -> None:
        """Add an event. A compaction has no content and is ignored."""
        if event.kind is Kind.COMPACT:
            return
        digest = _digest(event)
        self.events.add(digest)
        if event.kind is Kind.PROMPT and len(self.prompts) < FIRST_PROMPTS:
            self.prompts.append(digest)

    def copies(self, other: "Fingerprint") -> bool:
        """True if both sessions begin with the same prompts and the other one has more than
        `MIN_SHARE` of this one's events. False if this one has fewer than `MIN_EVENTS`.
        """
        if len(self.events) < MIN_EVENTS:
            return False
        begins_alike = all(
            own == theirs for own, theirs in zip(self.prompts, other.prompts, strict=False)
        )
        return begins_alike and len(self.events & other.events) > MIN_SHARE * len(self.events)


def copied_sessions(fingerprints: Mapping[str, Fingerprint]) -> set[str]:
    """The names of the sessions that copy an earlier session. If two begin at the same time, the
    later one in the mapping is the copy."""
    copies: set[str] = set()
    originals: dict[int, list[Fingerprint]] = {}
    for name, fingerprint in sorted(fingerprints.items(), key=lambda item: item[1].begins):
        if not fingerprint.prompts:
            continue
        alike = originals.setdefault(fingerprint.prompts[0], [])
        if any(fingerprint.copies(original) for original in alike):
            copies.add(name)
        else:
            alike.append(fingerprint)
    return copies


def _digest(event: SessionEvent, *more: float) -> int:
    """A hash of an event's content, and of `more`, independent of its file and session."""
    content = (*more, event.kind, event.text, event.tool, event.args, event.out)
    encoded = repr(content).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest())


Report = Callable[[str], None]
"""Receives a line about a file that is left out."""
Progress = Callable[[int, int], None]
Selects = Callable[[SessionEvent], bool]
"""Decides, from the first event of a session, whether to replay the session."""
_BOUNDARIES = frozenset({Kind.START, Kind.END})


class _Session(Struct):
    """A session. `pending` is the number of events still to come, `count` is the number of events
    so far, and `files` is the number of files that contain its events."""

    selected: bool
    pending: int = 0
    files: int = 0
    last_file: int = -1
    count: int = 0
    started: bool = False


def selecting(since: float, folder: Path | None) -> Selects:
    """Select the sessions that began at or after `since` inside `folder`."""
    root = str(folder) if folder else ""

    def selects(event: SessionEvent) -> bool:
        return event.t >= since and (not root or is_below(real_folder(event.cwd or "/"), root))

    return selects


class Timeline:
    """The events of the sessions that `selects()` accepts. `show()` receives the number of files
    surveyed so far and the total.

    `done` is the number of events replayed so far, without the starts and ends of sessions.
    `copies` counts the sessions that were skipped as copies. `census` tells how well the files were
    understood.
    """

    def __init__(
        self,
        transcripts: Sequence[Transcript],
        report: Report,
        selects: Selects = lambda event: True,
        show: Progress = lambda done, total: None,
    ) -> None:
        self.transcripts = transcripts
        self._report = report
        self._selects = selects
        self._sessions: dict[str, _Session] = {}
        self._owners: dict[int, int] = {}
        self._file_begins: dict[int, float] = {}
        self._broken: set[int] = set()
        self.done = 0
        self.census = Census()
        self.copies = self._survey(show)

    @property
    def begins(self) -> float:
        """The time of the first event in the files, in seconds since the epoch; 0 if there is none.
        Sessions that are not replayed count, too."""
        return min(self._file_begins.values(), default=0.0)

    @property
    def events(self) -> int:
        """The number of events, without the starts and ends of sessions."""
        return sum(
            session.pending + session.count
            for session in self._sessions.values()
            if session.selected
        )

    @property
    def sessions(self) -> int:
        """The number of sessions to replay."""
        return sum(
            session.selected and bool(session.pending + session.count)
            for session in self._sessions.values()
        )

    @property
    def unreadable(self) -> int:
        """The number of files that could not be read to their end."""
        return len(self._broken)

    def __iter__(self) -> Iterator[SessionEvent]:
        streams = (
            EventStream(begins, partial(self._owned, number))
            for number, begins in self._file_begins.items()
        )
        for event in merged(streams):
            session = self._sessions[event.session]
            if session.selected:
                yield from self._framed(event, session)

    def _framed(self, event: SessionEvent, session: _Session) -> Iterator[SessionEvent]:
        """The event, with a start before a session's first event and an end after its last. A
        session has neither if earlier files already record all of its events."""
        if not session.pending:
            return
        if session.files > 1 and event.kind not in _BOUNDARIES:
            event = replace(event, i=session.count + 1)
        if not session.started:
            session.started = True
            starts = event.kind is Kind.START
            yield event if starts else boundary(event, Kind.START, event.i - 1)
        if event.kind in _BOUNDARIES:
            return
        yield event
        self.done += 1
        session.pending -= 1
        session.count += 1
        if not session.pending:
            yield boundary(event, Kind.END, event.i + 1)

    def _survey(self, show: Progress) -> int:
        """Read every file once and deselect the copies. Returns the number of copies."""
        fingerprints: dict[str, Fingerprint] = {}
        for number in range(len(self.transcripts)):
            self._survey_file(number, fingerprints)
            show(number + 1, len(self.transcripts))
        copies = copied_sessions(fingerprints)
        for name in copies:
            self._sessions[name].selected = False
        return len(copies)

    def _survey_file(self, number: int, fingerprints: dict[str, Fingerprint]) -> None:
        tally = ReadTally()
        for event in self._readable(number, tally):
            self._file_begins.setdefault(number, event.t)
            session = self._sessions.get(event.session)
            if session is None:
                session = self._sessions[event.session] = _Session(self._selects(event))
            if event.kind in _BOUNDARIES or not session.selected:
                continue
            if self._owners.setdefault(_digest(event, event.t), number) == number:
                session.pending += 1
                session.files += session.last_file != number
                session.last_file = number
                fingerprints.setdefault(event.session, Fingerprint(event.t)).add(event)
        self.census.add(self.transcripts[number].format, tally)

    def _readable(self, number: int, tally: ReadTally | None = None) -> Iterator[SessionEvent]:
        """The events of a file up to the first error. Errors are reported once per file."""
        transcript = self.transcripts[number]
        try:
            yield from transcript.events(0, tally)
        except (UsageError, OSError) as error:
            if number not in self._broken:
                cause = error.message if isinstance(error, UsageError) else str(error.strerror)
                self._report(f"{transcript.path} is left out: {cause}")
            self._broken.add(number)

    def _owned(self, number: int) -> Iterator[SessionEvent]:
        for event in self._readable(number):
            if event.kind in _BOUNDARIES or self._owners.get(_digest(event, event.t)) == number:
                yield event
