"""The TTL store contains entries that expire, such as the originals of shortened results, the seen
log (which memories each session was given), cached responses and usage counters.

Losing an entry must do no harm. Durable data belongs in `memory.db`. Every entry has a kind and
a time to live. A kind may have a cap in bytes, beyond which the oldest entries are evicted. The
durable implementation is `sqlite/ttl_store.py`.
"""

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.text.format import counted
from upwell.ground.types.rpc import Ping


class EntryKind(StrEnum):
    """The kinds of entries, each with one owner. Never change a value, because it is a key on
    disk."""

    CHORE = "chore"
    COMPACTION = "compacted"
    COMPRESSION_REMARK = "compression_missing"
    COMPRESSION_REPORT = "compression_feedback"
    COUNT = "count"
    CUT = "cut"
    DECISION = "decision"
    HOST_SESSION = "host_session"
    LEARNED = "learned"
    LESSON = "lesson"
    OPENING = "opening"
    ORIGINAL = "original"
    PASSAGE = "passage"
    PLACE = "place"
    QUERY = "query"
    RECEIVED = "received"
    RESPONSE = "response"
    REVIEWED = "reviewed"
    RULES = "rules"
    SEEN = "seen"
    STEP = "step"
    TRACE = "trace"
    TUNE = "tune"
    USAGE = "usage"
    USE = "use"
    WATCHED = "watched"
    WAY = "way"


class Item(Struct, frozen=True, kw_only=True):
    """One entry of a TTL store. `put()` sets `value`, and `incr()` adds to `number`. Times are in
    epoch seconds."""

    key: str
    value: bytes = b""
    number: int = 0
    created_at: float = 0.0
    expires_at: float = 0.0


class Entries(Struct, frozen=True):
    """Values of one kind, by key, and their time to live."""

    kind: str
    values: Mapping[str, bytes]
    ttl_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TtlOptions:
    """`max_bytes` maps a kind to its cap. Other kinds have no cap."""

    max_bytes: Mapping[str, int] = field(default_factory=dict)


class TtlStore(Protocol):
    """A store of expiring entries, shared by all processes that open it.

    Callers choose kinds and keys. Apart from `drop()` and `ping()`, methods treat an expired entry
    as absent, even if `expire()` has not removed it yet. Most methods of the durable
    implementations raise `StoreError` if the database fails.
    """

    async def get(self, kind: str, keys: Sequence[str]) -> dict[str, Item]:
        """Return the entries that exist for `keys`, by key."""
        ...

    async def put(self, kind: str, values: Mapping[str, bytes], *, ttl_seconds: float) -> None:
        """Set the value of each key and restart its time to live."""
        await self.put_all(Entries(kind, values, ttl_seconds))

    async def put_all(self, *entries: Entries) -> None:
        """Like several `put()` calls, but in one step."""
        ...

    async def compare_and_set(
        self, kind: str, key: str, expected: bytes | None, value: bytes, *, ttl_seconds: float
    ) -> bool:
        """Set `key` to `value` if the current value is `expected`. None means that the key must be
        absent.

        Returns whether the value was set. If several processes race with the same `expected`,
        exactly one of them succeeds, provided that no `value` equals `expected`.
        """
        ...

    async def touch(self, kind: str, key: str, *, ttl_seconds: float) -> bool:
        """Restart the time to live of `key`. Returns False if the key is absent."""
        ...

    async def incr(self, kind: str, by: Mapping[str, int], *, ttl_seconds: float) -> None:
        """Add to the number of each key, starting from zero, and restart its time to live."""
        ...

    async def scan(self, kind: str, prefix: str = "") -> list[Item]:
        """Return the entries whose key begins with `prefix`, oldest first."""
        ...

    async def newest(
        self, kind: str, *, limit: int, before: float = math.inf, holding: Sequence[bytes] = ()
    ) -> list[Item]:
        """Return at most `limit` entries, newest first, that were written before `before` (epoch
        seconds) and whose values contain all of `holding`. All entries of the kind must have the
        same time to live."""
        ...

    async def delete(self, kind: str, keys: Sequence[str]) -> int:
        """Remove these keys. Returns the number of keys that were present."""
        ...

    async def drop(self, kind: str, prefix: str = "") -> int:
        """Remove all entries whose key begins with `prefix`, even expired ones. Returns the number
        of removed entries.
        """
        ...

    async def expire(self) -> int:
        """Remove all expired entries. Returns the number of removed entries."""
        ...

    async def ping(self) -> Ping:
        """Report the number of entries, including expired ones."""
        ...


_CHECKS_PER_CAP = 50
"""The size of a kind is measured each time a fiftieth of its cap has been written. One process
therefore exceeds the cap only slightly.
"""


_PAGE_BYTES = 4096
_LOCAL_BYTES = 900
_ROW_BYTES = 90


def file_bytes(size: int) -> int:
    """Estimate the space that an entry takes in the file if its key and value have `size` bytes.

    Keys are random, so B-tree pages are about two thirds full. A payload that is too large for its
    page takes whole overflow pages (sqlite.org/fileformat2.html, section 1.6).
    """
    if size <= _LOCAL_BYTES:
        return (size + _ROW_BYTES) * 3 // 2
    return (size // _PAGE_BYTES + 1) * _PAGE_BYTES + _LOCAL_BYTES


def is_due(unchecked: dict[str, int], kind: str, values: Mapping[str, bytes], cap: int) -> bool:
    """Return whether to measure a kind after writing `values`. A measurement reads the sizes of all
    entries of the kind. `unchecked` counts the bytes written to each kind since the last
    measurement.
    """
    bytes_written = unchecked.get(kind, 0) + sum(map(len, values.values()))
    due = kind not in unchecked or bytes_written * _CHECKS_PER_CAP >= cap
    unchecked[kind] = 0 if due else bytes_written
    return due


class MemoryTtlStore(TtlStore):
    """A TTL store in this process's memory, for data that must not or cannot be written to disk."""

    def __init__(self, *, options: TtlOptions | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._options = options or TtlOptions()
        self._clock = clock
        self._kinds: dict[str, OrderedDict[str, Item]] = {}

    async def get(self, kind: str, keys: Sequence[str]) -> dict[str, Item]:
        alive = self._alive(kind)
        return {key: alive[key] for key in keys if key in alive}

    async def put_all(self, *entries: Entries) -> None:
        for group in entries:
            self._set(group.kind, group.values, group.ttl_seconds)

    async def compare_and_set(
        self, kind: str, key: str, expected: bytes | None, value: bytes, *, ttl_seconds: float
    ) -> bool:
        # There is no await between the check and the write, so the exchange is atomic.
        item = self._alive(kind).get(key)
        if (item.value if item else None) != expected:
            return False
        self._set(kind, {key: value}, ttl_seconds)
        return True

    async def touch(self, kind: str, key: str, *, ttl_seconds: float) -> bool:
        item = self._alive(kind).get(key)
        if item is None:
            return False
        self._kinds[kind][key] = replace(item, expires_at=self._clock.now() + ttl_seconds)
        return True

    async def incr(self, kind: str, by: Mapping[str, int], *, ttl_seconds: float) -> None:
        now = self._clock.now()
        alive = self._alive(kind)
        for key, amount in by.items():
            old = alive.get(key) or Item(key=key, created_at=now)
            self._kinds.setdefault(kind, OrderedDict())[key] = Item(
                key=key,
                value=old.value,
                number=old.number + amount,
                created_at=old.created_at,
                expires_at=now + ttl_seconds,
            )

    async def scan(self, kind: str, prefix: str = "") -> list[Item]:
        matches = [item for key, item in self._alive(kind).items() if key.startswith(prefix)]
        return sorted(matches, key=lambda item: item.created_at)

    async def newest(
        self, kind: str, *, limit: int, before: float = math.inf, holding: Sequence[bytes] = ()
    ) -> list[Item]:
        matches = [
            item
            for item in self._alive(kind).values()
            if item.created_at < before and all(part in item.value for part in holding)
        ]
        matches.sort(key=lambda item: item.created_at, reverse=True)
        return matches[:limit]

    async def delete(self, kind: str, keys: Sequence[str]) -> int:
        present = self._alive(kind).keys() & set(keys)
        for key in present:
            del self._kinds[kind][key]
        return len(present)

    async def drop(self, kind: str, prefix: str = "") -> int:
        items = self._kinds.get(kind, OrderedDict())
        dropped_keys = [key for key in items if key.startswith(prefix)]
        for key in dropped_keys:
            del items[key]
        return len(dropped_keys)

    async def expire(self) -> int:
        removed = 0
        for kind in self._kinds:
            before = len(self._kinds[kind])
            self._kinds[kind] = OrderedDict(self._alive(kind))
            removed += before - len(self._kinds[kind])
        return removed

    async def ping(self) -> Ping:
        return Ping(
            ok=True,
            detail=f"{counted(sum(map(len, self._kinds.values())), 'entry', 'entries')} in memory",
        )

    def _set(self, kind: str, values: Mapping[str, bytes], ttl_seconds: float) -> None:
        now = self._clock.now()
        items = self._kinds.setdefault(kind, OrderedDict())
        for key, value in values.items():
            number = items[key].number if key in self._alive(kind) else 0
            items.pop(key, None)
            items[key] = Item(
                key=key,
                value=bytes(value),
                number=number,
                created_at=now,
                expires_at=now + ttl_seconds,
            )
        cap = self._options.max_bytes.get(kind)
        while cap is not None and sum(len(item.value) for item in items.values()) > cap:
            items.popitem(last=False)

    def insert(self, kind: str, item: Item) -> None:
        self._kinds.setdefault(kind, OrderedDict())[item.key] = item

    def _alive(self, kind: str) -> dict[str, Item]:
        now = self._clock.now()
        items = self._kinds.get(kind, OrderedDict())
        return {key: item for key, item in items.items() if item.expires_at > now}
