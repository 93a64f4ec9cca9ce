"""The HTTP sessions of handshake-era agents. They last as long as the process that opened them."""

import asyncio
import secrets

from msgspec import Struct, field

from upwell.gateway.clients import Audience, Session
from upwell.gateway.front.headers import BadRequest
from upwell.gateway.front.streams import OpenRequests, Outbox, Streams
from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.types.principal import Principal
from upwell.ground.types.rpc import Reply
from upwell.wire.peer import INVALID_REQUEST, line_of

MAX_SESSIONS = 1000
MAX_SESSIONS_EACH = 250
"""How many sessions each principal except the owner may have."""
IDLE_SECONDS = 3600.0
_NAME_BYTES = 24


class HttpSession(Struct, eq=False):
    """The session of a handshake-era agent."""

    session: Session
    questions: OpenRequests
    streams: Streams
    used_at: float
    running: dict[bytes, "asyncio.Task[bytes]"] = field(default_factory=dict)
    followed: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    """The streams that the client has opened with GET, keyed by name."""

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.followed


class HttpSessions:
    """Opens, finds and ends sessions. Opening a session ends all sessions that have been idle for
    `IDLE_SECONDS`."""

    def __init__(self, audience: Audience, clock: Clock = SYSTEM_CLOCK) -> None:
        self._audience = audience
        self._clock = clock
        self._sessions: dict[str, HttpSession] = {}

    def open(self, principal: Principal) -> HttpSession:
        """Open a session. At the limit, first end the principal's session that has been idle the
        longest.

        Raises:
            BadRequest: there are too many sessions, and none of the principal's sessions is idle.
        """
        self._make_room(principal)
        questions, streams = OpenRequests(), Streams()
        session = Session(_OwnStream(questions, streams.own), principal=principal)
        session.id = secrets.token_urlsafe(_NAME_BYTES)
        opened = HttpSession(session, questions, streams, self._clock.monotonic())
        self._sessions[session.id] = opened
        self._audience.join(session)
        return opened

    def find(self, name: str, principal: Principal) -> HttpSession | None:
        """Find the session with this name, if it belongs to the principal."""
        known = self._sessions.get(name)
        if known is None or known.session.principal != principal:
            return None
        known.used_at = self._clock.monotonic()
        return known

    def end(self, http_session: HttpSession) -> None:
        """End a session, with its requests and streams."""
        self._sessions.pop(http_session.session.id, None)
        self._audience.leave(http_session.session)
        http_session.questions.close()
        for task in [*http_session.running.values(), *http_session.followed.values()]:
            task.cancel()

    def close(self) -> None:
        """End all sessions."""
        for http_session in list(self._sessions.values()):
            self.end(http_session)

    def end_streams(self) -> None:
        """End all streams that clients have opened with GET."""
        for http_session in self._sessions.values():
            for following in http_session.followed.values():
                following.cancel()

    def _make_room(self, principal: Principal) -> None:
        now = self._clock.monotonic()
        idle = [known for known in self._sessions.values() if known.is_idle]
        idle.sort(key=lambda known: known.used_at)
        for known in idle:
            if now - known.used_at > IDLE_SECONDS:
                self.end(known)
        own = sum(known.session.principal == principal for known in self._sessions.values())
        if len(self._sessions) >= MAX_SESSIONS or (principal.name and own >= MAX_SESSIONS_EACH):
            oldest = next((known for known in idle if self._belongs_to(known, principal)), None)
            if oldest is None:
                raise BadRequest(503, INVALID_REQUEST, "too many sessions are already open")
            self.end(oldest)

    def _belongs_to(self, known: HttpSession, principal: Principal) -> bool:
        return known.session.id in self._sessions and known.session.principal == principal


class _OwnStream:
    """The channel to a handshake-era agent for messages that belong to no request."""

    def __init__(self, questions: OpenRequests, outbox: Outbox) -> None:
        self._questions = questions
        self._outbox = outbox

    async def request(self, method: str, params: bytes) -> Reply:
        return await self._questions.ask(self._outbox.put, method, params)

    async def notify(self, method: str, params: bytes = b"") -> None:
        self._outbox.put(line_of(method, params))
