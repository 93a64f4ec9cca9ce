"""Tracks the calls to an upstream, and finds the clients for each message from it. A progress
notification contains a token from the gateway, which identifies the call. Requests and log messages
identify no call, so they go to the clients that have calls in flight. If a request could be for
several clients, it is declined, because an answer from the wrong client would be worse. For
`ABANDONED_SECONDS` after a client cancels a call, or until the server answers the call, a request
could also be for that client.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from msgspec import Struct

from upwell.gateway.clients import Client, Session, declined
from upwell.gateway.eras import meta_of
from upwell.ground.background import BackgroundTasks
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import Reply
from upwell.wire.peer import (
    INTERNAL_ERROR,
    LARGE_BYTES,
    Message,
    PeerGone,
    ProtocolError,
    error_body,
    own_id,
)
from upwell.wire.rawjson import NotJson, RawObject, check

PROGRESS = "notifications/progress"
CANCELLED = "notifications/cancelled"
ABANDONED_SECONDS = 300.0
"""How long after a cancellation a server's requests may still be about the cancelled call. An
answer to the call ends this period, but most servers never send one."""
MAX_ABANDONED = 1_000
LATE_LOG_SECONDS = 5.0
"""How long after the end of a call a server's log messages may still be about it."""


class CallTimeout(Struct):
    """The timeout of a call. Progress restarts it. It is paused while the client answers a
    question from the server, because a person may have to answer.
    """

    _timeout: asyncio.Timeout
    _seconds: float
    _pauses: int = 0

    def restart(self) -> None:
        # asyncio cannot reschedule a timeout that has expired.
        if not self._pauses and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._seconds)

    def pause(self) -> None:
        self._pauses += 1
        if not self._timeout.expired():
            self._timeout.reschedule(None)

    def resume(self) -> None:
        self._pauses -= 1
        self.restart()


class Call(Struct, eq=False):
    """A request to the server. `sent` is True once the server may have received the request."""

    client: Client
    timeout: CallTimeout | None
    params: RawObject
    sent: bool = False
    token: bytes | None = None
    """The client's own progress token, as raw JSON."""
    open_questions: int = 0
    """The number of the server's questions that the client has not answered yet."""


class InFlight:
    """The calls to one upstream that its messages may be about, some of which have just ended."""

    def __init__(self) -> None:
        self._calls: dict[Call, None] = {}
        self._abandoned: dict[Call, float] = {}
        self._recent: dict[object, tuple[Client, float]] = {}
        """The session of each agent with a call that has ended, and until when a log message may be
        about that call."""
        self._by_token: dict[bytes, Call] = {}
        self._tokens = itertools.count(1)

    @contextmanager
    def track(
        self, params: RawObject, client: Client, timeout: CallTimeout | None = None
    ) -> Iterator[Call]:
        """Treat the call as in flight inside the block. In its `params`, the gateway's progress
        token replaces the client's."""
        call = Call(client, timeout, params)
        own_token = b""
        if "_meta" in params:
            meta = meta_of(params)
            call.token = meta.get("progressToken")
            if call.token is not None:
                own_token = b"%d" % next(self._tokens)
                self._by_token[own_token] = call
                call.params = params.replaced(
                    "_meta", meta.replaced("progressToken", own_token).encode()
                )
        self._calls[call] = None
        try:
            yield call
        except asyncio.CancelledError:
            if call.sent and client.agent:
                self._abandoned[call] = time.monotonic() + ABANDONED_SECONDS
            if len(self._abandoned) > MAX_ABANDONED:
                del self._abandoned[next(iter(self._abandoned))]
            raise
        finally:
            del self._calls[call]
            # Only a session can still be reached once the reply to its call has been sent.
            if isinstance(agent := client.agent, Session):
                self._forget_old_ends()
                self._recent[agent] = (agent, time.monotonic() + LATE_LOG_SECONDS)
            self._by_token.pop(own_token, None)

    def clients(self) -> list[Client]:
        """Return one client for each agent with calls in flight: the client of its latest call."""
        latest = {call.client.agent: call.client for call in self._calls if call.client.agent}
        return list(latest.values())

    def listeners(self) -> list[Client]:
        """Return the clients that a log message may be for: those with calls in flight, and other
        principals whose calls have just ended. If no calls are in flight, return all whose calls
        have just ended."""
        self._forget_old_ends()
        clients = self.clients()
        principals = {client.principal for client in clients}
        ended = [client for client, _ in self._recent.values()]
        return clients + [client for client in ended if client.principal not in principals]

    def answered(self, call: Call) -> None:
        """The server answered a cancelled call after all."""
        self._abandoned.pop(call, None)

    def addressee(self, idle_client: Client | None = None) -> Client | None:
        """Return the client that a server's request is for, or None if that is uncertain. If no
        call is in flight, only `idle_client` is considered. If all clients belong to one principal,
        those that are already being asked are skipped, because a call that is waiting for an answer
        rarely asks again.
        """
        clients = self.clients() or [client for client in (idle_client,) if client]
        if len(clients) > 1 and len({client.principal for client in clients}) == 1:
            asked_agents = {call.client.agent for call in self._calls if call.open_questions}
            clients = [client for client in clients if client.agent not in asked_agents]
        if len(clients) != 1:
            return None
        now = time.monotonic()
        self._abandoned = {call: end for call, end in self._abandoned.items() if end > now}
        is_certain = {call.client.agent for call in self._abandoned} <= {clients[0].agent}
        return clients[0] if is_certain else None

    @contextmanager
    def asking(self, client: Client) -> Iterator[None]:
        """Pause the timeouts of all calls from this client's agent while it is being asked."""
        agents_calls = [call for call in self._calls if call.client.agent == client.agent]
        timeouts = [call.timeout for call in agents_calls if call.timeout]
        clients_calls = [call for call in agents_calls if call.client is client]
        for call in clients_calls:
            call.open_questions += 1
        for timeout in timeouts:
            timeout.pause()
        try:
            yield
        finally:
            for call in clients_calls:
                call.open_questions -= 1
            for timeout in timeouts:
                timeout.resume()

    async def relay_progress(self, raw: bytes) -> None:
        try:
            params = RawObject.parse(raw)
        except NotJson:
            return
        call = self._by_token.get(own_id(params.get("progressToken") or b""))
        if call is None or call.token is None:
            LOG.debug("progress of a call that has ended")
            return
        if call.timeout:
            call.timeout.restart()
        await call.client.notify(PROGRESS, params.replaced("progressToken", call.token).encode())

    def _forget_old_ends(self) -> None:
        now = time.monotonic()
        self._recent = {agent: item for agent, item in self._recent.items() if item[1] > now}


MAX_QUESTIONS = 100
"""How many of a server's requests may wait for clients at once. Further requests are declined."""
MAX_ANSWERS = 2_000
"""How many answers a server may leave unread. Its further requests are dropped."""
Answer = Callable[[bytes, Reply], Awaitable[None]]


class Surroundings(Protocol):
    """The rest of the gateway, as an upstream's connection sees it."""

    def client_capabilities(self) -> bytes: ...

    async def notified(self, message: Message, clients: list[Client]) -> None:
        """Handle a notification from the upstream. `clients` have calls to it in flight."""
        ...

    def only_client(self) -> Client | None:
        """The connected client, if there is exactly one."""
        ...


class Inbound:
    """Handles a server's requests and notifications. `answer` sends a reply to the server."""

    def __init__(
        self, name: str, in_flight: InFlight, surroundings: Surroundings, answer: Answer
    ) -> None:
        self._name = name
        self._in_flight = in_flight
        self._around = surroundings
        self._send = answer
        self.tasks = BackgroundTasks(f"requests of upstream {name}")
        self._answers: dict[bytes, asyncio.Task[None]] = {}

    async def take(self, message: Message) -> None:
        """Pass a message on to the clients that it is for. Params that are not JSON at every level
        are not passed on."""
        if message.method == PROGRESS:
            await self._in_flight.relay_progress(message.params)
        elif message.method == CANCELLED:
            with suppress(NotJson):
                identity = RawObject.parse(message.params).get("requestId") or b""
                if identity in self._answers:
                    self._answers[identity].cancel()
        elif message.id is None:
            try:
                await _check(message.params)
            except NotJson as error:
                LOG.warning("upstream %s: dropping its %s: %s", self._name, message.method, error)
                return
            await self._around.notified(message, self._in_flight.listeners())
        elif len(self.tasks) >= MAX_ANSWERS:
            LOG.warning("upstream %s sends requests and reads no answers", self._name)
        else:
            # Not awaited, because the read loop must continue even if the server reads no answers.
            task = self.tasks.start(self._answer(message.id, message))
            self._answers[message.id] = task
            task.add_done_callback(lambda done: self._forget(message.id or b"", done))

    async def _answer(self, identity: bytes, message: Message) -> None:
        try:
            if len(self.tasks) <= MAX_QUESTIONS:
                reply = await self._relayed(message)
            else:
                body = error_body(INTERNAL_ERROR, f"more than {MAX_QUESTIONS} requests at once")
                reply = Reply(error=body)
            await self._send(identity, reply)
        except PeerGone as error:
            LOG.debug("upstream %s ended before its request was answered: %s", self._name, error)

    def _forget(self, identity: bytes, done: "asyncio.Task[None]") -> None:
        # If the server has reused the id, another task is now stored under it.
        if self._answers.get(identity) is done:
            del self._answers[identity]

    async def _relayed(self, message: Message) -> Reply:
        method = message.method or ""
        if method == "ping":
            return Reply(result=b"{}")
        clients, connected_client = self._in_flight.clients(), self._around.only_client()
        client = self._in_flight.addressee(connected_client)
        if client is None:
            return declined(method, _unattributed(len(clients), connected_client))
        try:
            await _check(message.params)
            with self._in_flight.asking(client):
                reply = await client.ask(method, message.params)
            await _check(reply.error or reply.result)
            return reply
        except NotJson as error:
            return declined(method, f"the question or its answer is not JSON: {error}")
        except PeerGone:
            return declined(method, "the client has disconnected")
        except ProtocolError as error:
            return declined(method, str(error))


async def _check(raw: bytes) -> None:
    if len(raw) < LARGE_BYTES:
        check(raw)
    else:
        await asyncio.to_thread(check, raw)


def _unattributed(client_count: int, connected_client: Client | None) -> str:
    if client_count > 1:
        return "several clients have calls in flight, and the request identifies none of them"
    if client_count or connected_client:
        return "the request may concern a cancelled call, whose client cannot be asked any more"
    return "no client is connected"
