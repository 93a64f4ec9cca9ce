"""The HTTP sessions of handshake-era agents.

A session's streams and requests belong to the process that serves the session. `SessionState`,
which replicas may share, contains a record of the session: its principal and what its agent has
declared. With this record, another process can continue the session, but without its streams. While
the shared state is unreachable, a process cannot tell which sessions exist. It then continues its
own sessions, and opens any other session that a principal asks for by a plausible name. Once the
state is reachable again, each of these sessions is recorded when it is next used.
"""

import asyncio
import re
import secrets
from typing import Any

import orjson
from msgspec import Struct, field

from upwell.gateway.clients import Audience, Session
from upwell.gateway.front.headers import BadRequest
from upwell.gateway.front.streams import Outbox, Questions, Streams
from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.session_state import SessionState
from upwell.ground.trace import contained
from upwell.ground.types.principal import Principal
from upwell.ground.types.rpc import Reply
from upwell.wire.peer import INVALID_REQUEST, line_of

MAX_SESSIONS = 1000
MAX_SESSIONS_EACH = 250
"""How many sessions each principal except the owner may have."""
IDLE_SECONDS = 3600.0
CHECK_SECONDS = 1.0
"""How long a process relies on its last check that the session still exists."""
KIND = "http_session"
_NAME_BYTES = 24
_NAME = re.compile(r"[\w-]{32}", re.ASCII)


class HttpSession(Struct, eq=False):
    """The session of a handshake-era agent."""

    session: Session
    questions: Questions
    streams: Streams
    used_at: float
    recorded_at: float = 0.0
    is_recorded: bool = False
    checked_at: float = 0.0
    running: dict[bytes, "asyncio.Task[bytes]"] = field(default_factory=dict)
    followed: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    """The streams that the client has opened with GET, keyed by name."""

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.followed


class HttpSessions:
    """Opens, finds and ends sessions. Opening a session ends all sessions that have been idle for
    `IDLE_SECONDS`."""

    def __init__(
        self, audience: Audience, state: SessionState, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._audience = audience
        self._state = state
        self._clock = clock
        self._sessions: dict[str, HttpSession] = {}

    async def open(self, principal: Principal) -> HttpSession:
        """Open a session. At the limit, first end the principal's session that has been idle the
        longest.

        Raises:
            BadRequest: there are too many sessions, and none of the principal's sessions is idle.
        """
        await self._make_room(principal)
        return self._opened(secrets.token_urlsafe(_NAME_BYTES), principal)

    async def record(self, http_session: HttpSession) -> None:
        """Record the session for `IDLE_SECONDS`."""
        http_session.recorded_at = self._clock.monotonic()
        session = http_session.session
        value = orjson.dumps(
            {
                "principal": _identity(session.principal),
                "capabilities": session.capabilities.decode(),
                "log_level": session.log_level,
                "host": session.host,
            }
        )
        with contained("recording an HTTP session"):
            await self._state.put(session.id, KIND, "", value, ttl_seconds=IDLE_SECONDS)
            http_session.is_recorded = not self._state.is_cut_off

    async def find(self, name: str, principal: Principal) -> HttpSession | None:
        """Find the session with this name, if it belongs to the principal.

        Raises:
            BadRequest: another process opened the session, and there is no room for it in this one.
        """
        known = self._sessions.get(name) or await self._restored(name, principal)
        if known is None or known.session.principal != principal:
            return None
        known.used_at = self._clock.monotonic()
        if known.used_at - known.checked_at > CHECK_SECONDS and not await self._exists(known):
            self._drop(known)
            return None
        if known.used_at - known.recorded_at > IDLE_SECONDS / 2:
            await self.record(known)
        return known

    async def _exists(self, known: HttpSession) -> bool:
        """Return False if another process has ended the session."""
        known.checked_at = self._clock.monotonic()
        if known.checked_at - known.recorded_at >= IDLE_SECONDS:
            return True  # the record expired by itself
        with contained("looking up an HTTP session"):
            value = await self._state.get(known.session.id, KIND)
            if self._state.is_cut_off:
                known.is_recorded = False
            elif not known.is_recorded:
                await self.record(known)
            else:
                return value is not None
        return True

    async def end(self, http_session: HttpSession) -> None:
        """End a session. Other processes notice this when they next look for the session."""
        self._drop(http_session)
        with contained("ending an HTTP session"):
            await self._state.delete(http_session.session.id, KIND)

    def close(self) -> None:
        """Stop serving all sessions in this process. Another process may continue them."""
        for http_session in list(self._sessions.values()):
            self._drop(http_session)

    def end_streams(self) -> None:
        """End all streams that clients have opened with GET."""
        for http_session in self._sessions.values():
            for following in http_session.followed.values():
                following.cancel()

    async def _restored(self, name: str, principal: Principal) -> HttpSession | None:
        """Continue a session that another process opened for this principal."""
        value: bytes | None = None
        with contained("looking up an HTTP session"):
            value = await self._state.get(name, KIND)
        if value is None:
            return await self._adopted(name, principal) if self._state.is_cut_off else None
        record: dict[str, Any] = orjson.loads(value)
        if record["principal"] != _identity(principal):
            return None
        restored = await self._continued(name, principal)
        restored.session.capabilities = record["capabilities"].encode()
        restored.session.log_level = record["log_level"]
        restored.session.host = record.get("host", "")
        restored.is_recorded = True
        return restored

    async def _adopted(self, name: str, principal: Principal) -> HttpSession | None:
        """While the shared state is unreachable, continue a session that another process may have
        opened. The principal has presented a token, so it is enough that the name looks like one
        that upwell generates."""
        return await self._continued(name, principal) if _NAME.fullmatch(name) else None

    async def _continued(self, name: str, principal: Principal) -> HttpSession:
        await self._make_room(principal)
        # Another request may have continued the session in the meantime.
        continued = self._sessions.get(name) or self._opened(name, principal)
        continued.session.ready.set()
        return continued

    def _opened(self, name: str, principal: Principal) -> HttpSession:
        questions, streams = Questions(), Streams()
        session = Session(_OwnStream(questions, streams.own), principal=principal)
        session.id = name
        opened = HttpSession(session, questions, streams, self._clock.monotonic())
        self._sessions[name] = opened
        self._audience.join(session)
        return opened

    async def _make_room(self, principal: Principal) -> None:
        now = self._clock.monotonic()
        idle = [known for known in self._sessions.values() if known.is_idle]
        idle.sort(key=lambda known: known.used_at)
        for known in idle:
            if now - known.used_at > IDLE_SECONDS:
                await self.end(known)
        own = sum(known.session.principal == principal for known in self._sessions.values())
        if len(self._sessions) >= MAX_SESSIONS or (principal.name and own >= MAX_SESSIONS_EACH):
            oldest = next((known for known in idle if self._belongs_to(known, principal)), None)
            if oldest is None:
                raise BadRequest(503, INVALID_REQUEST, "too many sessions are already open")
            await self.end(oldest)

    def _belongs_to(self, known: HttpSession, principal: Principal) -> bool:
        return known.session.id in self._sessions and known.session.principal == principal

    def _drop(self, http_session: HttpSession) -> None:
        self._sessions.pop(http_session.session.id, None)
        self._audience.leave(http_session.session)
        http_session.questions.close()
        for task in [*http_session.running.values(), *http_session.followed.values()]:
            task.cancel()


class _OwnStream:
    """The channel to a handshake-era agent for messages that belong to no request."""

    def __init__(self, questions: Questions, outbox: Outbox) -> None:
        self._questions = questions
        self._outbox = outbox

    async def request(self, method: str, params: bytes) -> Reply:
        return await self._questions.ask(self._outbox.put, method, params)

    async def notify(self, method: str, params: bytes = b"") -> None:
        self._outbox.put(line_of(method, params))


def _identity(principal: Principal) -> list[Any]:
    rights = [list(principal.namespaces), principal.tenant, str(principal.role)]
    return [principal.name, *rights]
