"""The agents in front of the gateway: their sessions and requests, and how to reach the agents."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from upwell.gateway.eras import Envelope, ListenFilter, stamped
from upwell.ground.background import Receipt, settled
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import OWNER, Principal, Reply
from upwell.hosts import host_of_client
from upwell.wire.peer import METHOD_NOT_FOUND, Message, PeerGone, error_body
from upwell.wire.rawjson import NotJson, RawObject, loads

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
LOGGED = "notifications/message"
UPDATED = "notifications/resources/updated"
READY_SECONDS = 5.0
_ASKABLE = frozenset({"sampling", "elicitation", "roots", "tasks"})
"""To allow one of these kinds of requests, a client declares the capability of the same name. For
any other kind, it must have declared some extension or experimental capability.
"""


class RequestRefused(Exception):
    """`body` is the raw JSON-RPC error object."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.body = error_body(code, message, data)


class Channel(Protocol):
    """A connection to an agent: a pipe, or the stream of an HTTP response."""

    async def request(self, method: str, params: bytes) -> Reply:
        """Send a request and wait for the reply. Cancelling the wait cancels the request. Raises
        PeerGone if the agent has disconnected."""
        ...

    async def notify(self, method: str, params: bytes = b"") -> None: ...


class Client(Protocol):
    """The sender of a request."""

    @property
    def session(self) -> str: ...

    @property
    def agent(self) -> object:
        """Identifies the agent that can answer an upstream's questions. This is the session or,
        for a request without one, the request itself, because nothing links such requests
        to each other.
        """
        ...

    @property
    def principal(self) -> Principal:
        """The holder of the token or, on stdio, the owner of upwell's home."""
        ...

    @property
    def receipt(self) -> Receipt:
        """Reports whether the reply to this request was written to the sender."""
        ...

    @property
    def waited_seconds(self) -> float:
        """How long the sender has been waiting for the reply to this request."""
        ...

    @property
    def modern(self) -> bool: ...

    @property
    def host(self) -> str:
        """The agent host in which the client runs, or the client's own name if the host is unknown.
        Without a name, this is ""."""
        ...

    @property
    def capabilities(self) -> bytes:
        """The declared client capabilities, as raw JSON."""
        ...

    @property
    def log_level(self) -> str:
        """The lowest level of log messages to send, or "" if the client has not set one."""
        ...

    async def ask(self, method: str, params: bytes) -> Reply:
        """Forward an upstream's request to the client. If it has not declared the necessary
        capability, the reply is an error. Raises PeerGone if the client has disconnected."""
        ...

    async def notify(self, method: str, params: bytes) -> None:
        """Send a notification. It is dropped if the client has disconnected."""
        ...


class Nobody:
    """The client of the requests that the gateway makes by itself. It cannot be reached."""

    receipt = settled()
    session = ""
    agent: object = None
    principal = OWNER
    waited_seconds = 0.0
    modern = True
    host = ""
    capabilities = b"{}"
    log_level = ""

    async def ask(self, method: str, params: bytes) -> Reply:
        return declined(method)

    async def notify(self, method: str, params: bytes) -> None:
        return None


NOBODY = Nobody()


def declined(method: str, why: str = "the client does not offer it") -> Reply:
    return Reply(error=error_body(METHOD_NOT_FOUND, f"{method}: {why}"))


def offers(capabilities: bytes, method: str) -> bool:
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


class Session:
    """One agent's connection and what the agent has declared about itself.

    `channel` carries messages that do not belong to a request from the agent. A `shared` session
    represents all requests that a principal sends without specifying a session.
    """

    waited_seconds = 0.0

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
        self.host = ""
        self.capabilities = b"{}"
        self.log_level = ""
        self.listed = b""
        """The latest tool list that the agent received, as raw JSON."""
        self.uris: set[str] = set()
        self.ready = asyncio.Event()
        self.receipt = settled()

    async def ask(self, method: str, params: bytes) -> Reply:
        """Send a request that does not belong to a call, once the agent is ready."""
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

    async def notify(self, method: str, params: bytes) -> None:
        await send_notification(self.channel, method, params)

    async def broadcast(self, method: str, params: bytes) -> None:
        """Send a notification that does not belong to a request. A modern client receives it from
        its `SubscriptionStream` instead."""
        if not self.modern:
            await send_notification(self.channel, method, params)


class SubscriptionStream:
    """The open `subscriptions/listen` request of a modern agent, on which it is told of changes."""

    def __init__(self, channel: Channel, requested: ListenFilter, request_id: bytes) -> None:
        self.uris = requested.uris
        self._channel = channel
        self._methods = requested.methods
        self._request_id = request_id

    async def broadcast(self, method: str, params: bytes) -> None:
        if method == UPDATED or method in self._methods:
            body = stamped(params or b"{}", self._request_id)
            await send_notification(self._channel, method, body)


class ClientQuestion:
    """An upstream's request that a modern client answers in a later call."""

    def __init__(self, method: str, params: bytes) -> None:
        self.method = method
        self.params = params
        self.answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    @property
    def is_open(self) -> bool:
        return not self.answer.done()


class RequestContext:
    """The client of one request. `identity` is the request's raw id. `receipt` is settled when the
    reply has been written. Without a receipt, the reply counts as delivered.

    A modern client accepts no requests. An upstream's questions therefore wait in `questions` until
    the client repeats its call with the answers.
    """

    def __init__(
        self,
        session: Session,
        channel: Channel,
        envelope: Envelope | None,
        identity: bytes | None = None,
        receipt: Receipt | None = None,
    ) -> None:
        self.owner = session
        self.session = session.id
        self.principal = session.principal
        self.receipt = receipt or settled()
        self.channel = channel
        self.envelope = envelope
        self.modern = envelope is not None
        client = envelope.client if envelope else ""
        self.host = host_of_client(client) if client else session.host
        self.identity = identity
        self.questions: dict[str, ClientQuestion] = {}
        self.on_question: Callable[[], None] | None = None
        self._began = time.monotonic()

    @property
    def agent(self) -> object:
        return self if self.owner.shared else self.owner

    @property
    def waited_seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def capabilities(self) -> bytes:
        return self.envelope.capabilities if self.envelope else self.owner.capabilities

    @property
    def log_level(self) -> str:
        return self.envelope.log_level if self.envelope else self.owner.log_level

    async def ask(self, method: str, params: bytes) -> Reply:
        if not offers(self.capabilities, method):
            return declined(method)
        if self.envelope is None:
            return await self.channel.request(method, params)
        if self.on_question is None:
            return declined(method, "the client cannot be asked during this request")
        key = f"upwell-{secrets.token_hex(4)}"
        question = self.questions[key] = ClientQuestion(method, params)
        self.on_question()
        try:
            return await question.answer
        finally:
            self.questions.pop(key, None)

    async def notify(self, method: str, params: bytes) -> None:
        await send_notification(self.channel, method, params)


Method = Callable[[RawObject, RequestContext], Awaitable[RawObject | Reply]]
"""Handles one kind of request. `RequestRefused` and `UpwellError` become JSON-RPC errors."""


async def send_notification(channel: Channel, method: str, params: bytes) -> None:
    """Send a notification. It is dropped if the agent has disconnected."""
    try:
        await channel.notify(method, params if params != b"{}" else b"")
    except PeerGone as error:
        LOG.debug("an agent has disconnected: %s", error)


def text_of(params: RawObject, name: str) -> str:
    """Return the parameter `name`, or "" if it is not a string."""
    value = params.value(name)
    return value if isinstance(value, str) else ""


class Audience:
    """The connected agents. `client_capabilities()` returns, as raw JSON, the client capabilities
    to declare to handshake-era upstreams.
    """

    def __init__(self, client_capabilities: Callable[[], bytes] = lambda: b"{}") -> None:
        self.sessions: dict[str, Session] = {}
        self.listeners: set[SubscriptionStream] = set()
        self.client_capabilities = client_capabilities

    def join(self, session: Session) -> None:
        self.sessions[session.id] = session

    def leave(self, session: Session) -> None:
        self.sessions.pop(session.id, None)

    def only_client(self) -> Client | None:
        return next(iter(self.sessions.values())) if len(self.sessions) == 1 else None

    def log_level(self) -> str:
        """Return the lowest log level that any handshake-era agent has requested, or ""."""
        levels = {session.log_level for session in self._handshake_sessions()}
        return min(levels & set(LEVELS), key=LEVELS.index, default="")

    def is_subscribed(self, uri: str) -> bool:
        return any(uri in receiver.uris for receiver in self._receivers())

    async def relay(self, message: Message, clients: Iterable[Client]) -> None:
        """Pass on an upstream's notification. `clients` are waiting for this upstream's replies."""
        method = message.method or ""
        try:
            params = RawObject.parse(message.params)
            if method == LOGGED:
                await self._relay_log(params, list(clients))
            elif method == UPDATED:
                await self._relay_update(params)
            else:
                await self.announce(method, message.params)
        except NotJson as error:
            LOG.warning("dropping an upstream's %s that is not JSON: %s", method, error)

    async def announce(self, method: str, params: bytes = b"") -> None:
        """Notify all handshake-era agents, and the listeners that requested `method`."""
        for receiver in self._receivers():
            await receiver.broadcast(method, params)

    async def _relay_log(self, params: RawObject, clients: list[Client]) -> None:
        """Send a log message to `clients` or, if there are none, to all handshake-era agents. If
        the receivers belong to several principals, the message is dropped, because it may concern
        only one of them.
        """
        receivers: list[Client] = clients or list(self._handshake_sessions())
        if len({client.principal for client in receivers}) > 1:
            return
        level = params.value("level")
        for client in receivers:
            minimum = client.log_level
            if client.modern and not minimum:
                continue
            # A client gets messages of an unknown level.
            is_known = minimum in LEVELS and level in LEVELS
            if not is_known or LEVELS.index(level) >= LEVELS.index(minimum):
                await client.notify(LOGGED, params.encode())

    async def _relay_update(self, params: RawObject) -> None:
        """Send an update to all subscribers of the resource or of a parent of its URI. If there are
        none, send it to all handshake-era agents."""
        uri = text_of(params, "uri")
        subscribers = [
            receiver
            for receiver in self._receivers()
            if any(uri == up or uri.startswith(up.rstrip("/") + "/") for up in receiver.uris)
        ]
        for receiver in subscribers or self._handshake_sessions():
            await receiver.broadcast(UPDATED, params.encode())

    def _receivers(self) -> list[Session | SubscriptionStream]:
        return [*self.sessions.values(), *self.listeners]

    def _handshake_sessions(self) -> list[Session]:
        return [session for session in self.sessions.values() if not session.modern]
