"""Short-lived state of sessions, such as when memories were last shown, memories found too late for
their call, and calls that wait for an answer from their client.

All of this state is stored through `SessionState`, so that replicas of a gateway can share it. If a
value is lost, the worst effect is that something is repeated or retried.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError
from upwell.ground.ttl_store import TtlStore

MAX_SESSIONS = 5_000
"""How many sessions a process remembers for each kind of value. The least recently written session
is dropped first.
"""


class SessionState(Protocol):
    """Small values, keyed by session, kind and key.

    Callers choose the kinds, which must not collide. `key` may be empty if a session has only one
    value of a kind. `is_shared`: whether other processes see the values. If so, each access takes a
    round trip. `is_cut_off`: whether the shared storage failed in the last `get()` or `put()`.
    While it fails, other processes do not see the values that this process sets, and this process
    may miss values in the storage.
    """

    is_shared: bool
    is_cut_off: bool

    def now(self) -> float:
        """Return epoch seconds by the storage's clock. All processes that share the values use this
        clock, because one machine's own clock may be wrong."""
        ...

    async def get(self, session: str, kind: str, key: str = "") -> bytes | None:
        """Return the value, or None if it does not exist or has expired."""
        ...

    async def scan(self, session: str, kind: str) -> Mapping[str, bytes]:
        """Return all live values of this kind in the session, by key, oldest first."""
        ...

    async def put(
        self, session: str, kind: str, key: str, value: bytes, *, ttl_seconds: float
    ) -> None:
        """Set the value and restart its time to live."""
        ...

    async def delete(self, session: str, kind: str, key: str = "") -> bool:
        """Remove this value. Returns False if it did not exist. If several callers delete the same
        value, only one of them gets True.
        """
        ...

    async def compare_and_set(
        self,
        session: str,
        kind: str,
        key: str,
        value: bytes,
        *,
        expected: bytes | None,
        ttl_seconds: float,
    ) -> bool:
        """Atomically set the value if the current value equals `expected`; None means that there
        must be no value. If it differs, change nothing and return False.
        """
        ...


class _Value(Struct, frozen=True):
    value: bytes
    expires_at: float


class LocalSessionState:
    """The state of one process's sessions."""

    is_shared = False
    is_cut_off = False

    def __init__(self, *, max_sessions: int = MAX_SESSIONS, clock: Clock = SYSTEM_CLOCK) -> None:
        self._max_sessions = max_sessions
        self._clock = clock
        self._kinds: dict[str, OrderedDict[str, dict[str, _Value]]] = {}

    def now(self) -> float:
        return self._clock.now()

    async def get(self, session: str, kind: str, key: str = "") -> bytes | None:
        return self._live(session, kind).get(key)

    async def scan(self, session: str, kind: str) -> Mapping[str, bytes]:
        return self._live(session, kind)

    async def put(
        self, session: str, kind: str, key: str, value: bytes, *, ttl_seconds: float
    ) -> None:
        self._set(session, kind, key, value, ttl_seconds)

    async def delete(self, session: str, kind: str, key: str = "") -> bool:
        if key not in self._live(session, kind):
            return False
        del self._kinds[kind][session][key]
        return True

    async def compare_and_set(
        self,
        session: str,
        kind: str,
        key: str,
        value: bytes,
        *,
        expected: bytes | None,
        ttl_seconds: float,
    ) -> bool:
        if self._live(session, kind).get(key) != expected:
            return False
        self._set(session, kind, key, value, ttl_seconds)
        return True

    def _set(self, session: str, kind: str, key: str, value: bytes, ttl_seconds: float) -> None:
        now = self._clock.monotonic()
        sessions = self._kinds.setdefault(kind, OrderedDict())
        values = {name: old for name, old in sessions.get(session, {}).items() if name != key}
        live = {name: old for name, old in values.items() if old.expires_at > now}
        sessions[session] = {**live, key: _Value(bytes(value), now + ttl_seconds)}
        sessions.move_to_end(session)
        self._evict(sessions, now)

    def _evict(self, sessions: OrderedDict[str, dict[str, _Value]], now: float) -> None:
        while sessions:
            name, values = next(iter(sessions.items()))
            is_dead = all(value.expires_at <= now for value in values.values())
            if not is_dead and len(sessions) <= self._max_sessions:
                return
            del sessions[name]

    def _live(self, session: str, kind: str) -> dict[str, bytes]:
        now = self._clock.monotonic()
        sessions = self._kinds.get(kind)
        values = sessions.get(session, {}) if sessions else {}
        return {key: entry.value for key, entry in values.items() if entry.expires_at > now}


class StoredSessionState:
    """The state of several processes' sessions, in a TTL store that they share. While the store
    fails, the process uses values of its own, which other processes do not see. `ahead` returns how
    many seconds the store's clock is ahead of `clock`.
    """

    is_shared = True

    def __init__(
        self,
        ttl_store: TtlStore,
        *,
        clock: Clock = SYSTEM_CLOCK,
        ahead: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._ttl_store = ttl_store
        self._clock = clock
        self._ahead = ahead
        self._local = LocalSessionState(clock=clock)
        self.is_cut_off = False

    def now(self) -> float:
        return self._clock.now() + self._ahead()

    async def get(self, session: str, kind: str, key: str = "") -> bytes | None:
        name = _name(session, key)
        try:
            item = (await self._ttl_store.get(_kind(kind), [name])).get(name)
            self.is_cut_off = False
        except StoreError:
            item = None
            self.is_cut_off = True
        return item.value if item else await self._local.get(session, kind, key)

    async def scan(self, session: str, kind: str) -> Mapping[str, bytes]:
        prefix = _name(session, "")
        local = await self._local.scan(session, kind)
        try:
            items = await self._ttl_store.scan(_kind(kind), prefix)
        except StoreError:
            return local
        return {**{item.key.removeprefix(prefix): item.value for item in items}, **local}

    async def put(
        self, session: str, kind: str, key: str, value: bytes, *, ttl_seconds: float
    ) -> None:
        try:
            values = {_name(session, key): value}
            await self._ttl_store.put(_kind(kind), values, ttl_seconds=ttl_seconds)
        except StoreError:
            self.is_cut_off = True
            await self._local.put(session, kind, key, value, ttl_seconds=ttl_seconds)
        else:
            self.is_cut_off = False
            await self._local.delete(session, kind, key)

    async def delete(self, session: str, kind: str, key: str = "") -> bool:
        was_local = await self._local.delete(session, kind, key)
        try:
            deleted = await self._ttl_store.delete(_kind(kind), [_name(session, key)])
        except StoreError:
            deleted = 0
        return bool(deleted) or was_local

    async def compare_and_set(
        self,
        session: str,
        kind: str,
        key: str,
        value: bytes,
        *,
        expected: bytes | None,
        ttl_seconds: float,
    ) -> bool:
        try:
            return await self._ttl_store.compare_and_set(
                _kind(kind), _name(session, key), expected, value, ttl_seconds=ttl_seconds
            )
        except StoreError:
            return await self._local.compare_and_set(
                session, kind, key, value, expected=expected, ttl_seconds=ttl_seconds
            )


def _kind(kind: str) -> str:
    return f"session:{kind}"


def _name(session: str, key: str) -> str:
    """The length of the session's name ensures that the keys of two sessions cannot be equal."""
    return f"{len(session)}:{session}{key}"
