"""Learns from sessions: from each turn when it ends, and from transcripts of past sessions."""

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import batched
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace

from upwell.app.shortening import Savings
from upwell.capture.inbox import Inbox, Proposal
from upwell.capture.sessions import Findings, Ways, findings_in, without_excluded
from upwell.episodes.events import SessionEvent
from upwell.ground.errors import UsageError
from upwell.ground.ledger import EntryKind, TtlStore
from upwell.ground.project import project_of
from upwell.ground.secrets.redact import has_secret
from upwell.ground.types.memory import LESSON, Memory, Trust
from upwell.memory.library import Library
from upwell.memory.places import Places
from upwell.memory.records import masked
from upwell.replay.transcripts import Transcript, own_bytes, transcripts_at
from upwell.replay.transcripts.base import ReadTally

MAX_TURN_BYTES = 2_000_000
"""At most this many bytes from the end of a transcript are read after a turn."""
MAX_DELETED = 500
MAX_HELD = 10_000_000
SESSION = "session:"
"""How the source of a finding from a session begins."""
READ_TTL_SECONDS = 400 * 86_400.0


class Gain(Struct):
    """What was learned from sessions. `displaced` counts older proposals that were dropped to make
    room, `strengthened` counts known memories that a session confirmed, and `read_before` counts
    transcripts that were skipped because they had been read before. `redacted` lists the rules that
    masked a secret.
    """

    proposed: int = 0
    displaced: int = 0
    stored: int = 0
    strengthened: int = 0
    places: int = 0
    redacted: tuple[str, ...] = ()
    read_before: int = 0

    def add(self, other: "Gain") -> None:
        """Add the figures of another session."""
        self.proposed += other.proposed
        self.displaced += other.displaced
        self.stored += other.stored
        self.strengthened += other.strengthened
        self.places += other.places
        self.read_before += other.read_before
        self.redacted = tuple(dict.fromkeys([*self.redacted, *other.redacted]))


class Holdings(Struct, frozen=True, kw_only=True):
    """The keys of a home's memories, open proposals, places and ways to run things, of the
    transcripts that were read, and of the sessions that a model has read or is to read. The
    memories include those that were not learned from sessions.
    """

    memories: frozenset[str] = frozenset()
    proposals: frozenset[str] = frozenset()
    places: frozenset[str] = frozenset()
    ways: frozenset[str] = frozenset()
    transcripts: frozenset[str] = frozenset()
    sessions: frozenset[str] = frozenset()

    def since(self, earlier: "Holdings") -> "Holdings":
        """The holdings that are not in `earlier`."""
        before = asdict(earlier)
        return Holdings(**{kind: keys - before[kind] for kind, keys in asdict(self).items()})


class PastResults(Struct, frozen=True, kw_only=True):
    """How many transcripts were read, the tokens of all tools' results in them, and those that
    shortening would have saved."""

    transcripts: int = 0
    tokens: int = 0
    saved: int = 0


class SessionCapture:
    """Stores the findings of sessions. The places of files and symbols are stored immediately.
    Other new findings become proposals in the inbox or, with `accepts`, memories, as if the user
    had accepted them.
    Past sessions in a folder for which `is_excluded()` is true are skipped.

    The TTL store records how far each transcript was read, and what shortening its results would
    have saved (a new `savings()` counts that). `end_turn()` continues there, and
    `read()` skips a transcript that was read to its end. A file that became smaller was rewritten,
    and is read again. The methods raise StoreError if the store or the inbox fails.
    """

    def __init__(
        self,
        library: Library,
        places: Places,
        inbox: Inbox,
        ttl_store: TtlStore,
        *,
        accepts: bool = False,
        is_excluded: Callable[[str | None], bool] | None = None,
        savings: Callable[[], Savings],
    ) -> None:
        self._savings = savings
        self._library = library
        self._places = places
        self._ways = Ways(ttl_store)
        self._inbox = inbox
        self._ttl_store = ttl_store
        self._accepts = accepts
        self._is_excluded = is_excluded

    async def end_turn(self, transcript: str, session: str, cwd: str | None) -> Gain:
        """Learn from what the turn added to the session's transcript, if its format allows this."""
        project = project_of(cwd)
        size = own_bytes(transcript)
        if not size or project is None:
            return Gain()
        known = await self._reading(transcript)
        if known.size == size:
            return Gain()
        start = max(known.size if known.size < size else 0, size - MAX_TURN_BYTES)
        source = f"{SESSION}{session[:40]}"
        findings = await asyncio.to_thread(
            lambda: self._findings_from(transcript, start, project, cwd, source)
        )
        if findings is None:
            return Gain()
        gain = await self.keep(findings)
        await self._record(transcript, replace(known, size=size))
        return gain

    async def read(
        self, transcript: Transcript, *, again: bool = False, tally: ReadTally | None = None
    ) -> Gain:
        """Learn from a past session's transcript, unless it was read before. With `again`, read it
        anyway. `tally`, if given, counts what was understood.

        Raises:
            UsageError, OSError: the file cannot be read.
        """
        path = str(transcript.path)
        size = transcript.path.stat().st_size
        if not again and (await self._reading(path)).size == size:
            return Gain(read_before=1)
        gain, savings = Gain(), self._savings()
        found = await asyncio.to_thread(
            lambda: list(
                _findings_of(savings.watch(transcript.events(0, tally)), self._is_excluded)
            )
        )
        for findings in found:
            gain.add(await self.keep(findings))
        await self._record(path, _Reading(size, savings.tokens, savings.saved))
        return gain

    async def keep(self, findings: Findings) -> Gain:
        """Store the findings of a session."""
        gain = Gain(places=len(findings.places))
        await self._places.keep(map(_masked, findings.places))
        open_proposals: list[Proposal] = []
        proposals = {proposal.id: proposal for proposal in await self._ways.add(findings)}
        proposals |= {proposal.id: proposal for proposal in findings.proposals}
        for proposal in proposals.values():
            known = await self._library.store.get(proposal.id)
            if known is not None:
                # The same session may be read again, or a copy of it, which confirms nothing.
                # Forked and copied sessions repeat the times of their originals.
                is_later = not proposal.at or proposal.at > (known.updated_at or 0.0)
                if known.provenance.session != proposal.session and is_later:
                    await self._library.store.add([strengthened(known, proposal.at or 0.0)])
                    gain.strengthened += 1
            elif self._accepts and not self._inbox.is_settled(proposal):
                added = await self._library.add(proposal.memory(Trust.USER))
                gain.add(Gain(stored=1, redacted=added.redacted))
            else:
                open_proposals.append(proposal)
        if open_proposals:
            intake = await asyncio.to_thread(self._inbox.propose, open_proposals)
            gain.add(
                Gain(proposed=intake.new, displaced=intake.displaced, redacted=intake.redacted)
            )
        return gain

    async def holdings(self) -> Holdings:
        """What the home contains now."""
        proposals = await asyncio.to_thread(self._inbox.waiting)

        async def keys(kind: EntryKind, start: str | tuple[str, ...] = "") -> frozenset[str]:
            items = await self._ttl_store.scan(kind)
            return frozenset(item.key for item in items if item.key.startswith(start))

        return Holdings(
            memories=frozenset(await self._library.store.stamps(limit=MAX_HELD)),
            proposals=frozenset(proposal.id for proposal in proposals),
            places=await keys(EntryKind.PLACE),
            ways=await keys(EntryKind.WAY),
            transcripts=await keys(EntryKind.LEARNED),
            # How the keys of sessions that a model has read, or is to read, begin.
            sessions=await keys(EntryKind.LESSON, ("read:", "origin:", "due:")),
        )

    async def with_later(self, holdings: Holdings) -> Holdings:
        """These holdings, together with what the daemon learned while a model wrote lessons: all
        the lessons, the sessions that a model has read or is to read, and the proposals from
        sessions."""
        now = await self.holdings()
        proposals = await asyncio.to_thread(self._inbox.waiting)
        later = (item.id for item in proposals if item.source.startswith(SESSION))
        return replace(
            holdings,
            memories=holdings.memories.union(memory.id for memory in await self._lessons()),
            proposals=holdings.proposals.union(later),
            sessions=holdings.sessions | now.sessions,
        )

    async def past(self) -> PastResults:
        """The figures of the transcripts that were read."""
        readings = [_reading(item.value) for item in await self._ttl_store.scan(EntryKind.LEARNED)]
        return PastResults(
            transcripts=len(readings),
            tokens=sum(reading.tokens for reading in readings),
            saved=sum(reading.saved for reading in readings),
        )

    async def places_known(self) -> int:
        """For how many names and files a place is known."""
        return len(await self._ttl_store.scan(EntryKind.PLACE))

    async def forget(self, holdings: Holdings) -> None:
        """Delete the part of these holdings that was learned from sessions, so that it can be
        learned again. Proposals that a person has accepted and lessons that a person has edited or
        pinned in the meantime stay, because they are now that person's memories.
        """
        for memory in await self.learned(holdings):
            await self._library.delete(memory.id)
        await asyncio.to_thread(self._inbox.withdraw, sorted(holdings.proposals))
        for kind, keys in (
            (EntryKind.PLACE, holdings.places),
            (EntryKind.WAY, holdings.ways),
            (EntryKind.LEARNED, holdings.transcripts),
            (EntryKind.LESSON, holdings.sessions),
        ):
            for batch in batched(sorted(keys), MAX_DELETED):
                await self._ttl_store.delete(kind, batch)

    async def learned(self, holdings: Holdings) -> list[Memory]:
        """The memories in these holdings that still exist and were learned from sessions."""
        memories = [await self._library.store.get(memory_id) for memory_id in holdings.memories]
        return [known for known in memories if known and _is_learned(known)]

    async def own_lessons(self) -> int:
        """How many lessons a person has edited or pinned."""
        return sum(not _is_learned(memory) for memory in await self._lessons())

    async def accepted(self, holdings: Holdings) -> list[Memory]:
        """The memories that a person accepted from the proposals in these holdings."""
        memories = [await self._library.store.get(key) for key in sorted(holdings.proposals)]
        return [known for known in memories if known]

    async def _lessons(self) -> list[Memory]:
        memories = await self._library.list(limit=MAX_HELD)
        return [memory for memory in memories if memory.provenance.door == LESSON]

    def _findings_from(
        self, transcript: str, start: int, project: str, cwd: str | None, source: str
    ) -> Findings | None:
        """The findings from the byte `start` on. None if the format can only be read whole, which
        `read()` does."""
        try:
            (known,) = transcripts_at([Path(transcript)])
        except UsageError:
            return None
        if not known.format.resumes:
            return None
        events = [replace(event, cwd=event.cwd or cwd) for event in known.events(start)]
        return findings_in(without_excluded(events, self._is_excluded), project, source)

    async def _reading(self, path: str) -> "_Reading":
        key = _key(path)
        item = (await self._ttl_store.get(EntryKind.LEARNED, [key])).get(key)
        return _reading(item.value) if item else _Reading()

    async def _record(self, path: str, reading: "_Reading") -> None:
        value = f"{reading.size} {reading.tokens} {reading.saved}".encode()
        await self._ttl_store.put(
            EntryKind.LEARNED, {_key(path): value}, ttl_seconds=READ_TTL_SECONDS
        )


class _Reading(Struct, frozen=True):
    """How many bytes of a transcript were read, and the tokens of its results: all, and those that
    shortening would have saved."""

    size: int = 0
    tokens: int = 0
    saved: int = 0


def _reading(value: bytes) -> _Reading:
    fields = value.split()
    # An earlier version recorded only the size.
    return _Reading(*map(int, fields)) if all(map(bytes.isdigit, fields)) else _Reading()


def _is_learned(memory: Memory) -> bool:
    if memory.provenance.door == LESSON:
        return memory.trust is Trust.AGENT and not memory.pinned
    return memory.provenance.door == "capture"


def _findings_of(
    events: Iterable[SessionEvent], is_excluded: Callable[[str | None], bool] | None
) -> Iterator[Findings]:
    """The findings of each session in a transcript, without what it did in excluded projects. A
    session whose folder is gone is skipped, because its findings could not be checked.
    """
    for recorded in by_session(events).values():
        session = without_excluded(recorded, is_excluded)
        cwd = next((event.cwd for event in session if event.cwd), None)
        project = project_of(cwd)
        if project is not None and os.path.isdir(project):
            yield findings_in(session, project, f"{SESSION}{session[0].session[:40]}")


def by_session(events: Iterable[SessionEvent]) -> dict[str, list[SessionEvent]]:
    """The events of each session, by its name."""
    sessions: dict[str, list[SessionEvent]] = {}
    for event in events:
        sessions.setdefault(event.session, []).append(event)
    return sessions


def _masked(place: Memory) -> Memory:
    fields = (place.text, *place.paths, *place.symbols, *place.triggers)
    return masked(place)[0] if has_secret("\n".join(fields)) else place


def strengthened(known: Memory, at: float) -> Memory:
    """The memory after another session confirmed it at the time `at`."""
    last = max(known.updated_at or 0.0, at)
    return replace(known, occurrences=known.occurrences + 1, updated_at=last)


def _key(path: str) -> str:
    return hashlib.sha256(path.encode("utf-8", "replace")).hexdigest()[:32]
