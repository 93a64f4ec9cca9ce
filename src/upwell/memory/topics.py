"""Index the topics of memories, and find rare words.

The topics of a memory are its tags, its namespace, and the five most frequent words in its text.
The index exists only in this process. It is built in the background. Every store has a token that
changes when any process writes to the store. If a token has changed when the index is used, upwell
reads the changed memories again.
"""

import asyncio
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from itertools import batched

from msgspec import Struct, field

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.project import is_seen
from upwell.ground.text.words import STOP_WORDS, fold
from upwell.ground.types.memory import Memory
from upwell.ground.types.rpc import is_visible
from upwell.memory.base import IndexSource
from upwell.memory.ranking.terms import EVERYDAY_WORDS, sound, word_list

MAX_WORDS = 5
MIN_CHARS, MAX_CHARS = 3, 30
"""The length limits for words that become topics."""
SHARED_BY = 2
"""How many memories must share a word before it is listed as a topic. Words that are not listed can
still be looked up."""
MAX_READ_CHARS = 4_000
MAX_INDEXED = 10_000
"""The index covers this many of the newest memories of each store."""
RARE_SHARE = 0.01
MIN_HOLDING = 2
"""A word is rare if at most 1 % of all memories, or at most two memories, contain it."""
_BATCH = 500
_SEPARATORS = re.compile(r"[\s_-]+")
_UNTELLING = frozenset(map(fold, STOP_WORDS)) | EVERYDAY_WORDS


class Topic(Struct, frozen=True):
    """A topic, with the number and the namespaces of its memories."""

    name: str
    memory_count: int
    namespaces: tuple[str, ...]


class _Entry(Struct, frozen=True):
    """The topics of a memory, and the fields that determine its visibility. `changed_at` shows
    whether the entry is current. `labels` are the tags and the namespace, and `words` come from the
    text."""

    id: str
    changed_at: float
    project: str | None
    namespace: str
    created_at: float
    expires_at: float | None
    labels: frozenset[str]
    words: frozenset[str]

    def is_seen(self, project: str | None, namespaces: Sequence[str], now: float) -> bool:
        if self.expires_at is not None and self.expires_at <= now:
            return False
        if not is_visible(self.namespace, namespaces):
            return False
        return is_seen(self.project, project)


class _Index(Struct):
    """The topics of one store. `token` is the store's token at the last read. `ids` maps topics to
    memory ids."""

    token: Hashable = None
    entries: dict[str, _Entry] = field(default_factory=dict)
    ids: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def put(self, entry: _Entry) -> None:
        self.drop(entry.id)
        self.entries[entry.id] = entry
        for topic in entry.labels | entry.words:
            self.ids[topic].add(entry.id)

    def drop(self, memory_id: str) -> None:
        entry = self.entries.pop(memory_id, None)
        for topic in entry.labels | entry.words if entry else ():
            self.ids[topic].discard(memory_id)
            if not self.ids[topic]:
                del self.ids[topic]

    def outdated(self, stamps: Mapping[str, float]) -> list[str]:
        return [
            memory_id
            for memory_id, changed_at in stamps.items()
            if memory_id not in self.entries or self.entries[memory_id].changed_at != changed_at
        ]


CatchUp = Callable[[str | None], Awaitable[None]]
"""Reads changes in the files that a project sees."""


async def no_files(project: str | None) -> None:
    """Do nothing, because there are no files."""


class Topics:
    """The topics of every memory in `stores`, a list that may grow. `all()` and `about()` run
    `catch_up` first. The methods raise StoreError if a store fails."""

    def __init__(
        self,
        stores: Sequence[IndexSource],
        *,
        catch_up: CatchUp = no_files,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._stores = stores
        self._read_changed_files = catch_up
        self._clock = clock
        self._indexes: list[_Index] = []
        self._refreshing = asyncio.Lock()

    async def all(self, project: str | None = None, namespaces: Sequence[str] = ()) -> list[Topic]:
        """The topics of the memories that a project sees in these namespaces, most frequent first,
        then by name. An empty `namespaces` means every namespace."""
        await self._read_changed_files(project)
        await self.refresh()
        now = self._clock.now()
        holders: defaultdict[str, list[_Entry]] = defaultdict(list)
        for index in self._indexes:
            for entry in index.entries.values():
                if entry.is_seen(project, namespaces, now):
                    for topic in entry.labels | entry.words:
                        holders[topic].append(entry)
        listed = [
            Topic(name, len(entries), tuple(sorted({entry.namespace for entry in entries})))
            for name, entries in holders.items()
            if len(entries) >= SHARED_BY or any(name in entry.labels for entry in entries)
        ]
        return sorted(listed, key=lambda topic: (-topic.memory_count, topic.name))

    async def about(
        self, topic: str, project: str | None = None, namespaces: Sequence[str] = ()
    ) -> list[str]:
        """The ids of the memories with a topic, newest first; empty for an unknown topic."""
        await self._read_changed_files(project)
        await self.refresh()
        now, key = self._clock.now(), normal(topic)
        entries = [
            entry
            for index in self._indexes
            for memory_id in index.ids.get(key, ())
            if (entry := index.entries[memory_id]).is_seen(project, namespaces, now)
        ]
        return [
            entry.id for entry in sorted(entries, key=lambda entry: (-entry.created_at, entry.id))
        ]

    async def refresh(self) -> None:
        """Bring the index up to date with all writes since the last refresh."""
        async with self._refreshing:
            stores = tuple(self._stores)
            self._indexes += [_Index() for _ in stores[len(self._indexes) :]]
            for store, index in zip(stores, self._indexes, strict=True):
                token = await store.changes()
                if token != index.token:
                    stamps = await store.stamps(limit=MAX_INDEXED)
                    for memory_id in index.entries.keys() - stamps.keys():
                        index.drop(memory_id)
                    for ids in batched(index.outdated(stamps), _BATCH):
                        memories = await store.get_many(ids)
                        for entry in await asyncio.to_thread(_entries, memories):
                            index.put(entry)
                    index.token = token


def normal(topic: str) -> str:
    """The normal form of a topic: lower case, with a single `-` for each run of whitespace, `_` and
    `-`."""
    return _SEPARATORS.sub("-", sound(topic).strip().lower()).strip("-")


def words_of(text: str) -> frozenset[str]:
    """The most frequent words in a text, except for stop words and everyday words. If several are
    equally frequent, the earlier ones win."""
    counts = Counter(
        word
        for word in word_list(sound(text[:MAX_READ_CHARS]))
        if MIN_CHARS <= len(word) <= MAX_CHARS and word not in _UNTELLING and not word.isdigit()
    )
    return frozenset(sys.intern(word) for word, _ in counts.most_common(MAX_WORDS))


def _entries(memories: Sequence[Memory]) -> list[_Entry]:
    return [
        _Entry(
            id=memory.id,
            changed_at=memory.updated_at or 0.0,
            project=memory.project,
            namespace=memory.namespace,
            created_at=memory.created_at or 0.0,
            expires_at=memory.expires_at,
            labels=frozenset(filter(None, map(normal, [memory.namespace, *memory.tags]))),
            words=words_of(memory.text),
        )
        for memory in memories
    ]


class Rarity:
    """Finds rare words. A rare word in a reply suggests that a memory with that word was used."""

    def __init__(self, stores: Sequence[IndexSource]) -> None:
        self._stores = stores

    async def rare(self, words: Sequence[str]) -> set[str]:
        """Return the words that only a few memories in all projects contain, excluding everyday
        words. Raises StoreError if a store fails."""
        uncommon_words = [word for word in words if word not in EVERYDAY_WORDS]
        holding: Counter[str] = Counter()
        memories = 0
        for store in self._stores:
            counts = await store.word_counts(uncommon_words)
            memories += counts.memories
            holding.update(counts.holding)
        most = max(MIN_HOLDING, int(memories * RARE_SHARE))
        return {word for word in uncommon_words if holding[word] <= most}
