"""The agent in front, as the rest of the gateway sees it: who asks, what it can be asked, and how
to reach it."""

import asyncio
import secrets
from collections.abc import Callable
from typing import Protocol

from upwell.gateway.eras import Envelope, Wishes, stamped
from upwell.ground.principal import OWNER, Principal
from upwell.ground.trace import LOG
from upwell.ground.types import Reply
from upwell.wire.peer import METHOD_NOT_FOUND, PeerGone, error_body
from upwell.wire.rawjson import NotJson, RawObject, loads

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
READY_SECONDS = 5.0
_ASKABLE = frozenset({"sampling", "elicitation", "roots", "tasks"})
"""What a client says by name that it can be asked; other things are extensions."""
UPDATED = "notifications/resources/updated"


class Channel(Protocol):
    """A way to an agent: a pipe, or a stream of an HTTP answer."""

    async def request(self, method: str, params: bytes) -> Reply:
        """Ask it and wait. A cancelled wait is told to it.

        Raises:
            PeerGone: it is not there any more.
        """
        ...

    async def notify(self, method: str, params: bytes = b"") -> None: ...


class Client(Protocol):
    """Who is behind a request."""

    @property
    def session(self) -> str: ...

    @property
    def agent(self) -> object:
        """Who must not be asked in another one's place: an agent with a connection of its own, else
        the sender of one request, since nothing says whose else is theirs."""
        ...

    @property
    def principal(self) -> Principal:
        """Who was let in by the token; the owner on stdio."""
        ...

    @property
    def modern(self) -> bool: ...

    @property
    def capabilities(self) -> bytes:
        """What it declared, as raw JSON."""
        ...

    @property
    def log_level(self) -> str:
        """The least level of log messages that it wants; "" where it said nothing."""
        ...

    async def ask(self, method: str, params: bytes) -> Reply:
        """Put an upstream's request to it; what it does not offer is answered by an error.

        Raises:
            PeerGone: it is not there any more.
        """
        ...

    async def tell(self, method: str, params: bytes) -> None:
        """Notify it; that it is gone is nobody's concern."""
        ...


class Nobody:
    """Behind what the gateway itself asks of an upstream."""

    session = ""
    agent: object = None
    principal = OWNER
    modern = True
    capabilities = b"{}"
    log_level = ""

    async def ask(self, method: str, params: bytes) -> Reply:
        return declined(method)

    async def tell(self, method: str, params: bytes) -> None:
        return None


NOBODY = Nobody()


def declined(method: str, why: str = "the client does not offer it") -> Reply:
    return Reply(error=error_body(METHOD_NOT_FOUND, f"{method}: {why}"))


def offers(capabilities: bytes, method: str) -> bool:
    """Did the client declare that it can be asked this?"""
    try:
        declared = loads(capabilities)
    except NotJson:
        return False
    if not isinstance(declared, dict):
        return False
    kind = method.partition("/")[0]
    if kind in _ASKABLE:
        return kind in declared
    return bool({"extensions", "experimental"} & set(declared))


def loud_enough(level: object, least: str) -> bool:
    """Does a log message of `level` concern a client that asked for `least`?"""
    if least not in LEVELS or level not in LEVELS:
        return True
    return LEVELS.index(str(level)) >= LEVELS.index(least)


class Session:
    """One agent's connection, and what it said about itself. `channel` is how to reach it when no
    request of its is at hand; `principal` is who was let in by the token, the owner on stdio. A
    `shared` one is that of every request of a principal which came without a session."""

    def __init__(
        self,
        channel: Channel,
        *,
        principal: Principal = OWNER,
        modern: bool = False,
        shared: bool = False,
    ) -> None:
        self.id = f"gateway-{secrets.token_hex(6)}"
        self.channel = channel
        self.principal = principal
        self.modern = modern
        self.shared = shared
        self.capabilities = b"{}"
        self.log_level = ""
        self.listed = b""
        self.uris: set[str] = set()
        self.ready = asyncio.Event()

    async def ask(self, method: str, params: bytes) -> Reply:
        """Ask when no call is under way: once the agent has said that it is ready."""
        if self.modern or not offers(self.capabilities, method):
            return declined(method)
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self.ready.wait()
        except TimeoutError:
            return declined(method, "the client is not ready")
        return await self.channel.request(method, params)

    @property
    def session(self) -> str:
        return self.id

    @property
    def agent(self) -> object:
        return self

    async def tell(self, method: str, params: bytes) -> None:
        await told(self.channel, method, params)

    async def hear(self, method: str, params: bytes) -> None:
        """Something happened that every client of the handshake era is told."""
        if not self.modern:
            await told(self.channel, method, params)


class Listener:
    """A `subscriptions/listen` of a modern client."""

    def __init__(self, channel: Channel, wishes: Wishes, identity: bytes) -> None:
        self.uris = wishes.uris
        self._channel = channel
        self._methods = wishes.methods
        self._identity = identity

    async def hear(self, method: str, params: bytes) -> None:
        if method == UPDATED or method in self._methods:
            await told(self._channel, method, stamped(params or b"{}", self._identity))


class Caller:
    """The client of one request, `identity` its raw id. In the modern era, what an upstream asks of
    it waits in `wanted` until the client calls again with the answers."""

    def __init__(
        self,
        session: Session,
        channel: Channel,
        envelope: Envelope | None,
        identity: bytes | None = None,
    ) -> None:
        self._session = session
        self.channel = channel
        self.envelope = envelope
        self.identity = identity
        self.wanted: dict[str, tuple[str, bytes, asyncio.Future[Reply]]] = {}
        self.on_wanted: Callable[[], None] | None = None

    @property
    def session(self) -> str:
        return self._session.id

    @property
    def agent(self) -> object:
        return self if self._session.shared else self._session

    @property
    def principal(self) -> Principal:
        return self._session.principal

    @property
    def owner(self) -> Session:
        return self._session

    @property
    def modern(self) -> bool:
        return self.envelope is not None

    @property
    def capabilities(self) -> bytes:
        return self.envelope.capabilities if self.envelope else self._session.capabilities

    @property
    def log_level(self) -> str:
        return self.envelope.log_level if self.envelope else self._session.log_level

    async def ask(self, method: str, params: bytes) -> Reply:
        if not offers(self.capabilities, method):
            return declined(method)
        if self.envelope is None:
            return await self.channel.request(method, params)
        if self.on_wanted is None:
            return declined(method, "it cannot be asked in the middle of this request")
        key = f"upwell-{secrets.token_hex(4)}"
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.wanted[key] = (method, params, future)
        self.on_wanted()
        try:
            return await future
        finally:
            self.wanted.pop(key, None)

    async def tell(self, method: str, params: bytes) -> None:
        await told(self.channel, method, params)


async def told(channel: Channel, method: str, params: bytes) -> None:
    """Notify an agent, which may be gone."""
    try:
        await channel.notify(method, params if params != b"{}" else b"")
    except PeerGone as error:
        LOG.debug("the agent is gone: %s", error)


def text_of(params: RawObject, name: str) -> str:
    """A text among the params, "" where there is none."""
    value = params.value(name)
    return value if isinstance(value, str) else ""
