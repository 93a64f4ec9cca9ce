"""What an upstream says unasked: progress, notices, and requests of its own for a client."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from upwell.gateway.client import Client, declined
from upwell.gateway.inflight import PROGRESS, InFlight
from upwell.ground.trace import LOG
from upwell.ground.types import Reply
from upwell.wire.peer import INTERNAL_ERROR, Message, PeerBabbled, PeerGone, error_body
from upwell.wire.rawjson import NotJson, RawObject, check

MOST_ASKED = 100
"""So many requests of a server may wait for a client at once; more are declined."""
MOST_ANSWERS = 2_000
"""So many answers may wait to be read by the server; what it asks beyond them is dropped."""
CANCELLED = "notifications/cancelled"
Answer = Callable[[bytes, Reply], Awaitable[None]]


class Surroundings(Protocol):
    """What an upstream's connection sees of the rest of the gateway."""

    def declared(self) -> bytes:
        """The capabilities of our clients, as raw JSON, for the handshake."""
        ...

    async def heard(self, message: Message, clients: list[Client]) -> None:
        """The upstream notified us; `clients` wait for it to answer."""
        ...

    def only_client(self) -> Client | None:
        """The client, where there is just one."""
        ...


class Inbound:
    """Takes what a server sends of its own accord; `answer` sends what it gets back."""

    def __init__(
        self, name: str, in_flight: InFlight, around: Surroundings, answer: Answer
    ) -> None:
        self._name = name
        self._in_flight = in_flight
        self._around = around
        self._send = answer
        self._answers: dict[bytes, asyncio.Task[None]] = {}

    async def take(self, message: Message) -> None:
        """Requests and notices go to whom they concern."""
        if message.method == PROGRESS:
            await self._in_flight.progressed(message.params)
        elif message.method == CANCELLED:
            self._withdrawn(message)
        elif message.id is None:
            await self._around.heard(message, self._in_flight.clients())
        elif len(self._answers) >= MOST_ANSWERS:
            LOG.warning("upstream %s asks and does not read what it is answered", self._name)
        else:
            task = asyncio.create_task(self._answer(message.id, message))
            self._answers[message.id] = task
            task.add_done_callback(lambda done: self._over(message.id or b"", done))

    def close(self) -> None:
        """Nobody waits for answers any more."""
        for task in list(self._answers.values()):
            task.cancel()

    def _withdrawn(self, message: Message) -> None:
        """The server takes a request of its own back."""
        try:
            identity = RawObject.parse(message.params).get("requestId") or b""
        except NotJson:
            return
        if identity in self._answers:
            self._answers[identity].cancel()

    async def _answer(self, identity: bytes, message: Message) -> None:
        """Answer a request of the server; not from the loop that reads, or a server that does not
        read could hold it up."""
        try:
            if len(self._answers) <= MOST_ASKED:
                reply = await self._relayed(message)
            else:
                body = error_body(INTERNAL_ERROR, f"more than {MOST_ASKED} requests at once")
                reply = Reply(error=body)
            await self._send(identity, reply)
        except PeerGone as error:
            LOG.debug("upstream %s asked and went: %s", self._name, error)

    def _over(self, identity: bytes, done: "asyncio.Task[None]") -> None:
        if self._answers.get(identity) is done:
            del self._answers[identity]

    async def _relayed(self, message: Message) -> Reply:
        """The client's own answer to a request of the server."""
        method = message.method or ""
        if method == "ping":
            return Reply(result=b"{}")
        waiting, only = self._in_flight.clients(), self._around.only_client()
        client = self._in_flight.whose(only)
        if client is None:
            why = "no client is there to be asked"
            if len(waiting) > 1:
                why = "several clients wait, and it cannot be told whose request this is"
            elif waiting or only:
                why = "it may be about a call that was given up, and nobody else is asked"
            return declined(method, why)
        try:
            with self._in_flight.asking(client):
                reply = await client.ask(method, message.params)
            check(reply.error or reply.result)
            return reply
        except NotJson as error:
            return declined(method, f"the client's answer is not JSON: {error}")
        except PeerGone:
            return declined(method, "the client is gone")
        except PeerBabbled as error:
            return declined(method, str(error))
