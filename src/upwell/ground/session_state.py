"""Short-lived state of sessions: when memories were last shown, and memories found too late for
their call. If a value is lost, the worst effect is that something is repeated."""

from collections import OrderedDict
from collections.abc import Mapping

from msgspec import Struct

from upwell.ground.clock import SYSTEM_CLOCK, Clock

MAX_SESSIONS = 5_000
"""How many sessions a process remembers for each kind of value. The least recently written session
is dropped first.
"""


class _Value(Struct, frozen=True):
    value: bytes
    expires_at: float


class SessionState:
    """Small values of one process's sessions, keyed by session, kind and key.

    Callers choose the kinds, which must not collide. `key` may be empty if a session has only one
    value of a kind.
    """

    def __init__(self, *, max_sessions: int = MAX_SESSIONS, clock: Clock = SYSTEM_CLOCK) -> None:
        self._max_sessions = max_sessions
        self._clock = clock
        self._kinds: dict[str, OrderedDict[str, dict[str, _Value]]] = {}

    def get(self, session: str, kind: str, key: str = "") -> bytes | None:
        """Return the value, or None if it does not exist or has expired."""
        return self.scan(session, kind).get(key)

    def scan(self, session: str, kind: str) -> Mapping[str, bytes]:
        """Return all live values of this kind in the session, by key, oldest first."""
        now = self._clock.monotonic()
        sessions = self._kinds.get(kind)
        values = sessions.get(session, {}) if sessions else {}
        return {key: entry.value for key, entry in values.items() if entry.expires_at > now}

    def put(self, session: str, kind: str, key: str, value: bytes, *, ttl_seconds: float) -> None:
        """Set the value and restart its time to live."""
        now = self._clock.monotonic()
        sessions = self._kinds.setdefault(kind, OrderedDict())
        values = {name: old for name, old in sessions.get(session, {}).items() if name != key}
        live = {name: old for name, old in values.items() if old.expires_at > now}
        sessions[session] = {**live, key: _Value(bytes(value), now + ttl_seconds)}
        sessions.move_to_end(session)
        self._evict(sessions, now)

    def delete(self, session: str, kind: str, key: str = "") -> bool:
        """Remove this value. Returns False if it did not exist."""
        if key not in self.scan(session, kind):
            return False
        del self._kinds[kind][session][key]
        return True

    def _evict(self, sessions: OrderedDict[str, dict[str, _Value]], now: float) -> None:
        while sessions:
            name, values = next(iter(sessions.items()))
            is_dead = all(value.expires_at <= now for value in values.values())
            if not is_dead and len(sessions) <= self._max_sessions:
                return
            del sessions[name]
