"""What a session has already: the memories that it was told, and what its context contains.

Prompts and tool calls add each memory to a context window only once. `SeenLog` holds the deliveries
of all doors and processes in a home. `ContextSketch` is kept in this process, with a limited size,
until the context is compacted. `LateHits` keeps memories that were found too late for their call.
If a value of this process is lost, the worst effect is that something is repeated.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from fnmatch import fnmatchcase
from itertools import pairwise

from msgspec import Struct

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.host_sessions import is_of_subagent
from upwell.ground.ledger import Entries, EntryKind, Item, TtlStore
from upwell.ground.text.words import fold, terms
from upwell.ground.types.cue import AUTOMATIC_DOORS, Cue, Door
from upwell.ground.types.memory import Hit, Memory, Query
from upwell.hosts import HOSTS
from upwell.memory.base import MemoryReader
from upwell.surface.event import file_of

COMPACTED = "compact"
"""The value of `Cue.text` for a session start that follows a compaction."""
MAX_SESSIONS = 200
MAX_TERMS = 20_000
MAX_FILES = 2_000
"""The maximum number of opened files in one sketch. The file opened longest ago is dropped first.
"""
MAX_READ_CHARS = 40_000
"""How many characters of a text are read. Hosts truncate longer results anyway."""
MAX_PENDING_CHARS = 50_000
"""How many characters of a session's text are kept whole before they are split into terms."""
MIN_NEW_SHARE = 0.35
"""A memory counts as known if less than this share of its terms is new to the context, and if every
number, path and identifier in it is in the context."""
MAX_NAME_CHARS = 200
MAX_PHRASE_CHARS = 400
_COMMAND_ENDS = re.compile(r"&&|\|\|?|;")
_EXACT = re.compile(r"\d|.[_/.:@].|[a-z][A-Z]")
_EDGES = "`'\"()[]{}<>,;.:!?*-"

AUTO_LOADED = frozenset(
    pattern
    for host in HOSTS.values()
    for pattern in (*host.auto_loaded.folder, *host.auto_loaded.fallback, *host.auto_loaded.scoped)
)
"""Patterns, relative to any folder, of the instruction files that at least one host loads by
itself."""


class _TextHashes:
    """Hashes of what `extract` finds in texts. Splitting the texts of a small call takes
    longer than all other work on it, and for most calls the search finds no memory to compare with
    the context. So texts are split only when their hashes are needed, or when too much text is
    waiting."""

    def __init__(self, extract: Callable[[str], Iterable[str]]) -> None:
        self._extract = extract
        self._hashes: set[int] = set()
        self._pending: dict[str, str] = {}
        """The texts that are not split yet, each with its folded form ("" until it is needed)."""
        self._pending_chars = 0

    def add(self, text: str) -> None:
        if text in self._pending:
            return
        self._pending[text] = ""
        self._pending_chars += len(text)
        if self._pending_chars > MAX_PENDING_CHARS:
            self.hashes()

    def hashes(self) -> set[int]:
        for text in self._pending:
            if len(self._hashes) >= MAX_TERMS:
                break
            self._hashes.update(map(hash, self._extract(text)))
        self._pending.clear()
        self._pending_chars = 0
        return self._hashes

    def surely_lack(self, name: str) -> bool:
        """True if no text contains this name. Does not split the texts."""
        return hash(name) not in self._hashes and not any(name in text for text in self._pending)

    def new_among(self, terms: Set[str]) -> int:
        """The number of these terms that occur nowhere in the texts and, in texts that are not
        split yet, not even inside a word. Does not split the texts."""
        for text, folded in self._pending.items():
            self._pending[text] = folded or fold(text.replace("’", "'"))
        texts = self._pending.values()
        return sum(
            hash(term) not in self._hashes and not any(term in text for text in texts)
            for term in terms
        )


class ContextSketch:
    """The terms and files of one session's context."""

    def __init__(self, prompts: int = 0, request: str = "") -> None:
        self.prompts = prompts
        self.request = request
        self.files: OrderedDict[str, None] = OrderedDict()
        self._terms = _TextHashes(_terms_and_names)
        self._phrases = _TextHashes(_phrases)

    def add(self, cue: Cue) -> None:
        """Add a cue's text, arguments and file, and its tool's result."""
        if cue.tool is None:
            # A slash command without arguments (`/clear`) opens no conversation.
            is_command = cue.text.startswith("/") and cue.text.count("/") == 1
            self.prompts += not (is_command and len(cue.text.split()) == 1)
            self.request = cue.text[:MAX_READ_CHARS]
        elif file := file_of(cue):
            self.files[file] = None
            self.files.move_to_end(file)
            if len(self.files) > MAX_FILES:
                self.files.popitem(last=False)
        answers = [cue.answer.text] if cue.answer is not None else []
        for text in (cue.text, *_strings(cue.args), *answers):
            self._terms.add(text[:MAX_READ_CHARS])
            self._phrases.add(text[:MAX_READ_CHARS])

    def terms(self) -> set[int]:
        """The hashes of the terms and of the exact names in the context."""
        return self._terms.hashes()

    def new_share(self, text: str) -> float:
        """The share of the terms of `text` that are new to the context; 0 if there are no terms."""
        new_terms = set(map(hash, terms(text)))
        return len(new_terms - self.terms()) / len(new_terms) if new_terms else 0.0

    def least_new_share(self, text: str) -> float:
        """A lower bound on `new_share()`, ten times as fast to compute. It also counts a term as
        known if it occurs only inside a longer word."""
        own_terms = set(terms(text))
        return self._terms.new_among(own_terms) / len(own_terms) if own_terms else 0.0

    def holds(self, memory: Memory, cue: Cue | None = None) -> bool:
        """True if the context already contains this memory nearly word for word. A passage of a
        file also counts as contained if that file was opened, or if some host loads the file by
        itself. For an episode, only the code in its text matters, apart from code that is part of
        the call in `cue`."""
        if memory.triggers and "`" in memory.text:
            return self._has_met(_conclusion(memory.text, cue))
        if memory.lines is not None:
            source = memory.source
            if any(fnmatchcase(f"/{source}", f"*/{pattern}") for pattern in AUTO_LOADED):
                return True
            if any(file == source or file.endswith(f"/{source}") for file in self.files):
                return True
        names = exact_names(memory.text)
        # The next two checks settle nearly every memory, and need not split the context's texts.
        if any(map(self._terms.surely_lack, names)):
            return False
        if self.least_new_share(memory.text) >= MIN_NEW_SHARE:
            return False
        if self.new_share(memory.text) >= MIN_NEW_SHARE:
            return False
        return all(hash(name) in self.terms() for name in names)

    def _has_met(self, conclusion: Sequence[str]) -> bool:
        """True if the context contains one of the conclusion's commands. If the conclusion has no
        commands, True if the context contains all of its names. A conclusion with neither counts as
        known."""
        phrases = self._phrases.hashes()
        commands = [span for span in conclusion if " " in span]
        if commands:
            return any(hash(command) in phrases for command in commands)
        return all(
            hash(_tail(name)) in phrases or self.terms() & {hash(name), hash(name.strip(_EDGES))}
            for name in conclusion
        )


class ContextSketches:
    """The context sketches of the latest sessions."""

    def __init__(self) -> None:
        self._sketches: OrderedDict[str, ContextSketch] = OrderedDict()

    def of(self, session: str) -> ContextSketch:
        """The sketch of a session; an empty sketch if `session` is ""."""
        if not session:
            return ContextSketch()
        sketch = self._sketches.get(session)
        if sketch is None:
            sketch = self._sketches[session] = ContextSketch()
        self._sketches.move_to_end(session)
        if len(self._sketches) > MAX_SESSIONS:
            self._sketches.popitem(last=False)
        return sketch

    def note(self, cue: Cue) -> None:
        """Add a cue to its session's sketch. A new session begins with an empty sketch."""
        if cue.door == Door.SESSION:
            self._forget(cue.session, goes_on=cue.text == COMPACTED)
        elif cue.session:
            self.of(cue.session).add(cue)

    def compacted(self, session: str) -> None:
        """Forget what a session's context contained, but keep its prompt count and its last
        request, because the session goes on."""
        self._forget(session, goes_on=True)

    def _forget(self, session: str, *, goes_on: bool) -> None:
        sketch = self._sketches.pop(session, None)
        if sketch is not None and goes_on:
            self._sketches[session] = ContextSketch(sketch.prompts, sketch.request)


def exact_names(text: str) -> set[str]:
    """The words of `text` that identify one thing: numbers, paths, identifiers, addresses."""
    return _exact_names(dict.fromkeys(_words(text)))


def _words(text: str) -> list[str]:
    """The words of a text. Angle brackets also separate words, because the host may have put the
    text between tags."""
    return text.replace("<", " ").replace(">", " ").split()


def _terms_and_names(text: str) -> set[str]:
    words = dict.fromkeys(_words(text))
    return {*terms(" ".join(words)), *_exact_names(words)}


def _exact_names(words: Iterable[str]) -> set[str]:
    bare = (word.strip(_EDGES) for word in words)
    return {word for word in bare if len(word) <= MAX_NAME_CHARS and _is_exact(word)}


def _conclusion(text: str, cue: Cue | None) -> list[str]:
    """The code in a text (between backticks), except code that is part of the call in `cue`."""
    own = " ".join(" ".join(_strings(cue.args)).split()) if cue else ""
    spans = (" ".join(span.split()) for span in text.split("`")[1::2])
    return [span for span in spans if span and span not in own]


def _phrases(text: str) -> Iterator[str]:
    """The phrases that identify a conclusion: lines, the commands in them, and the ends of
    paths."""
    for line in dict.fromkeys(text.splitlines()):
        if len(line) <= MAX_PHRASE_CHARS:
            yield from (" ".join(part.split()) for part in _COMMAND_ENDS.split(line))
    paths = dict.fromkeys(word for word in _words(text) if "/" in word)
    yield from map(_tail, _exact_names(paths))


def _tail(path: str) -> str:
    """The last two parts of a path, marked so that they cannot be mistaken for a name in a text."""
    return "…/" + "/".join(path.rstrip("/").split("/")[-2:])


def _is_exact(word: str) -> bool:
    if word.isalpha() and word.islower():
        return False
    if _EXACT.search(word):
        return True
    if word.isascii():
        return False
    return any(a.islower() and b.isupper() for a, b in pairwise(word))


def _strings(args: Mapping[str, object]) -> Iterable[str]:
    yield from (value for value in args.values() if isinstance(value, str))


MAX_STATE_SESSIONS = 5_000


class SessionState[T]:
    """Values by session and key, of at most `max_sessions` sessions. The least recently written
    session is dropped first."""

    def __init__(
        self, *, max_sessions: int = MAX_STATE_SESSIONS, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._max_sessions = max_sessions
        self._clock = clock
        self._sessions: OrderedDict[str, dict[str, tuple[T, float]]] = OrderedDict()

    def get(self, session: str) -> dict[str, T]:
        """Return the session's live values, by key, oldest first."""
        now = self._clock.monotonic()
        values = self._sessions.get(session, {})
        return {key: value for key, (value, expires_at) in values.items() if expires_at > now}

    def put(self, session: str, value: T, *, key: str = "", ttl_seconds: float) -> None:
        """Set the value and restart its time to live."""
        live = self.get(session)
        values = {name: self._sessions[session][name] for name in live if name != key}
        self._sessions[session] = {**values, key: (value, self._clock.monotonic() + ttl_seconds)}
        self._sessions.move_to_end(session)
        while len(self._sessions) > self._max_sessions or not self.get(next(iter(self._sessions))):
            self._sessions.popitem(last=False)

    def pop(self, session: str, key: str = "") -> T | None:
        """Remove and return the value, or None if it does not exist or has expired."""
        value = self.get(session).get(key)
        self._sessions.get(session, {}).pop(key, None)
        return value


LATE_SECONDS = 60.0
"""How long late hits remain on offer."""


class _LateSearch(Struct, frozen=True):
    """A search that ended too late for its cue. `changes` is what `MemoryReader.changes()` returned
    then. The hits lapse when it returns something else."""

    tool: str | None
    query: Query
    judged: bool
    hits: tuple[Hit, ...]
    changes: str


class LateHits:
    """The late hits of each session. A later cue gets them if it is about one of the same files. If
    neither cue names a file, both must have the same words and the same tool. The hits are offered
    only once, and not after any memory has changed."""

    def __init__(self, reader: MemoryReader, clock: Clock) -> None:
        self._offers = SessionState[_LateSearch](clock=clock)
        self._reader = reader

    async def keep(
        self, cue: Cue, query: Query, hits: Sequence[Hit], *, judged: bool = False
    ) -> None:
        """Keep the hits that came too late for this cue, except standing rules, which
        `StandingRules` delivers. With `judged`, the session's next call gets the hits, whatever it
        is about."""
        if not cue.session or all(hit.memory.pinned for hit in hits):
            return
        # `changes()` is called before `known()`, so that the hits also lapse if a memory is deleted
        # in between.
        changes = repr(await self._reader.changes())
        existing = [
            hit
            for hit in hits
            if not hit.memory.pinned and await self._reader.known(hit.memory.id) is not None
        ]
        offer = _LateSearch(cue.tool, query, judged, tuple(existing), changes)
        self._offers.put(cue.session, offer, ttl_seconds=LATE_SECONDS)

    async def take(self, cue: Cue, query: Query) -> list[Hit]:
        """The session's late hits for this cue. Any prompt or tool call that is about to search
        ends the offer, because its own search finds the current memories. An explicit request gets
        no late hits."""
        if cue.door not in AUTOMATIC_DOORS or not cue.session:
            return []
        offer = self._offers.pop(cue.session)
        if offer is None:
            return []
        is_same = bool(set(offer.query.paths) & set(query.paths))
        if not (query.paths or offer.query.paths) and query.texts:
            is_same = query.texts == offer.query.texts and cue.tool == offer.tool
        return await self._current(offer) if is_same else []

    async def take_judged(self, cue: Cue) -> tuple[Query, list[Hit]] | None:
        """The query and the hits from a late verdict, if this cue is a call. If any memory has
        changed, there are no hits. A prompt may change the subject, so it gets only what `take()`
        returns."""
        if cue.door != Door.TOOL or not cue.session:
            return None
        offer = self._offers.get(cue.session).get("")
        if offer is None or not offer.judged:
            return None
        self._offers.pop(cue.session)
        return offer.query, await self._current(offer)

    async def _current(self, offer: _LateSearch) -> list[Hit]:
        return list(offer.hits) if repr(await self._reader.changes()) == offer.changes else []


SESSION_SECONDS = 30 * 86_400.0
"""The lifetime of a session's entries. Hosts may resume a session with its context weeks later."""
RESERVED_SECONDS = 60.0
"""The lifetime of an entry whose delivery is pending. It is short, so that a process that dies
before the delivery does not silence a memory."""
KNOWN = b"\0known"
"""The value of a principal's entry after the rating `already_known`."""
_SEPARATOR = "\n"

Ignored = Callable[[str], Awaitable[bool]]
"""Returns whether agents repeatedly ignored the memory with this id."""


class SeenLog:
    """Records deliveries. Prompts and tool calls read and write the log, and explicit requests only
    write it. A delivery leaves an entry for the session until the session's context is compacted. A
    second entry, for the principal, makes repeats in other sessions rank lower for `ttl_seconds`
    (seed 000: 7 days; with 0, the whole log is off). Repeated episodes keep their rank, because
    they answer an exact trigger. Keys contain the content hash, so an edited memory counts as new.
    """

    def __init__(
        self, ttl_store: TtlStore, ttl_seconds: float, ignored: Ignored | None = None
    ) -> None:
        self._ttl_store = ttl_store
        self._ttl_seconds = ttl_seconds
        self._ignored = ignored

    async def fresh(self, hits: Sequence[Hit], session: str = "", principal: str = "") -> list[Hit]:
        """The hits that this session has not received. Hits that another session of the principal
        received come last, or are left out if the principal knew or ignored them. A subagent has
        its own context and may receive every memory once."""
        if self._ttl_seconds <= 0:
            return list(hits)
        own_keys = [_session_key(hit.memory, session, principal) for hit in hits]
        shared_keys = [_shared_key(hit.memory, principal) for hit in hits]
        marks = [_mark(hit.memory.id, principal) for hit in hits]
        entries = await self._ttl_store.get(EntryKind.SEEN, [*own_keys, *shared_keys, *marks])
        new, repeated = dict[int, Hit](), dict[int, Hit]()
        keys = zip(hits, own_keys, shared_keys, marks, strict=True)
        for place, (hit, own_key, shared_key, mark) in enumerate(keys):
            shared = entries.get(mark) or entries.get(shared_key)
            if session and own_key in entries:
                continue
            if shared is None or shared.value == _value(session) or is_of_subagent(session):
                new[place] = hit
            elif shared.value != KNOWN:
                repeated[place] = hit
        # Only the owner's sessions are watched, so only they take ignored memories into account.
        if self._ignored and repeated and not principal:
            asked = (self._ignored(hit.memory.id) for hit in repeated.values())
            ignored = dict(zip(repeated, await asyncio.gather(*asked), strict=True))
            repeated = {place: hit for place, hit in repeated.items() if not ignored[place]}
        new |= {place: hit for place, hit in repeated.items() if hit.memory.triggers}
        others = [hit for place, hit in repeated.items() if place not in new]
        return [*(new[place] for place in sorted(new)), *others]

    async def reserve(self, memories: Sequence[Memory], session: str, principal: str = "") -> None:
        """Record that these memories are on their way to a session. They count as delivered for a
        minute."""
        if self._ttl_seconds > 0:
            await self._put(memories, session, principal, RESERVED_SECONDS)

    async def record(self, memories: Sequence[Memory], session: str, principal: str = "") -> None:
        """Record that a session received these memories."""
        if self._ttl_seconds <= 0 or not memories:
            return
        entries = [_session_entries(memories, session, principal, SESSION_SECONDS)]
        if not is_of_subagent(session):
            keys = [_shared_key(memory, principal) for memory in memories]
            shared = dict.fromkeys(keys, _value(session))
            entries.append(Entries(EntryKind.SEEN, shared, self._ttl_seconds))
        await self._ttl_store.put_all(*entries)

    async def record_at_start(self, memories: Sequence[Memory], session: str) -> None:
        """Record that a session began with these memories. This does not change their rank in other
        sessions."""
        if self._ttl_seconds > 0:
            await self._put(memories, session, "", SESSION_SECONDS)

    async def withdraw(self, memories: Sequence[Memory], session: str, principal: str = "") -> None:
        """Undo `reserve()`, `record()` or `record_at_start()` for memories that did not arrive."""
        keys = [_session_key(memory, session, principal) for memory in memories]
        shared_keys = [_shared_key(memory, principal) for memory in memories]
        entries = await self._ttl_store.get(EntryKind.SEEN, shared_keys)
        # An entry whose value is another session is kept, because that session received the memory.
        own = [key for key, entry in entries.items() if entry.value == _value(session)]
        await self._ttl_store.delete(EntryKind.SEEN, [*keys, *own])

    async def ids_of(self, session: str) -> list[str]:
        """The ids of the memories that this session received, the latest last."""
        keys = [item.key.rpartition(_SEPARATOR)[2] for item in await self._entries_of(session)]
        return list(dict.fromkeys(key.rpartition(":")[0] for key in keys))

    async def forget(self, session: str) -> None:
        """Allow everything that this session received to surface in it again."""
        await self._ttl_store.delete(
            EntryKind.SEEN, [item.key for item in await self._entries_of(session)]
        )

    async def known(self, memory_id: str, principal: str = "") -> None:
        """Record that a principal already knew this memory. Until the entry expires, the
        principal's sessions do not receive the memory, but their subagents may. If no delivery was
        recorded (for example, after an explicit request outside any session), the entry's key has
        no content hash, so the entry still applies after the text is edited."""
        if self._ttl_seconds > 0:
            entries = await self._ttl_store.scan(EntryKind.SEEN, f"{memory_id}:")
            marked = {
                entry.key: KNOWN
                for entry in entries
                if _SEPARATOR not in entry.key and entry.key.partition("@")[2] == principal
            }
            marked = marked or {_mark(memory_id, principal): KNOWN}
            await self._ttl_store.put(EntryKind.SEEN, marked, ttl_seconds=self._ttl_seconds)

    async def _put(
        self, memories: Sequence[Memory], session: str, principal: str, ttl_seconds: float
    ) -> None:
        if session and memories:
            await self._ttl_store.put_all(
                _session_entries(memories, session, principal, ttl_seconds)
            )

    async def _entries_of(self, session: str) -> list[Item]:
        return await self._ttl_store.scan(EntryKind.SEEN, session + _SEPARATOR)


def _session_entries(
    memories: Sequence[Memory], session: str, principal: str, ttl_seconds: float
) -> Entries:
    keys = [_session_key(memory, session, principal) for memory in memories] if session else []
    return Entries(EntryKind.SEEN, dict.fromkeys(keys, b""), ttl_seconds)


def _value(session: str) -> bytes:
    return session.encode(errors="replace")


def _shared_key(memory: Memory, principal: str) -> str:
    return _mark(memory.id, principal, memory.content_hash)


def _mark(memory_id: str, principal: str, content_hash: str = "") -> str:
    return f"{memory_id}:{content_hash}" + (f"@{principal}" if principal else "")


def _session_key(memory: Memory, session: str, principal: str) -> str:
    return f"{session}{_SEPARATOR}{_shared_key(memory, principal)}"
