"""Short-lived values of this process's sessions. If a value is lost, the worst effect is that
something is repeated."""

from collections import OrderedDict

from upwell.ground.clock import SYSTEM_CLOCK, Clock

MAX_SESSIONS = 5_000


class SessionState[T]:
    """Values by session and key, of at most `max_sessions` sessions. The least recently written
    session is dropped first."""

    def __init__(self, *, max_sessions: int = MAX_SESSIONS, clock: Clock = SYSTEM_CLOCK) -> None:
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
