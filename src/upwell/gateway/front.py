"""The server in front on stdio: one agent, in either era."""

import asyncio
from collections.abc import AsyncIterator

from upwell.gateway.audience import Audience
from upwell.gateway.client import Caller, Session
from upwell.gateway.desk import Desk
from upwell.gateway.directory import Directory
from upwell.gateway.eras import Envelope
from upwell.gateway.greeting import Hello
from upwell.ground.trace import LOG
from upwell.wire.lines import Line, Sink
from upwell.wire.peer import Message, Peer, PeerGone
from upwell.wire.rawjson import NotJson, RawObject

DRAIN_SECONDS = 5.0
"""How long calls may still run when we are asked to end."""


class Front:
    """One agent's connection. Every request is answered once; requests run side by side."""

    def __init__(self, desk: Desk, directory: Directory, audience: Audience, hello: Hello) -> None:
        self._desk = desk
        self._directory = directory
        self._audience = audience
        self._hello = hello
        self._running: dict[bytes, asyncio.Task[None]] = {}

    async def serve(self, lines: AsyncIterator[Line], sink: Sink) -> None:
        """Answer until the agent closes its side, then end what is still running. When we are
        cancelled, what runs may finish first, for a moment."""
        peer = Peer(lines, sink, self._incoming, complains=True)
        self._peer = peer
        self._session = session = Session(peer, modern=self._hello.modern)
        session.capabilities = self._hello.capabilities
        self._audience.join(session)
        try:
            await peer.run()
        except asyncio.CancelledError:
            if self._running:
                await asyncio.wait(self._running.values(), timeout=DRAIN_SECONDS)
            raise
        finally:
            self._audience.leave(session)
            for task in list(self._running.values()):
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _incoming(self, message: Message) -> None:
        if message.id is not None:
            self._begin(message.id, message)
        elif message.method == "notifications/cancelled":
            self._cancel(message)
        elif message.method == "notifications/initialized":
            self._session.ready.set()
        else:
            await self._directory.tell(message.method or "", message.params)

    def _begin(self, identity: bytes, message: Message) -> None:
        task = asyncio.create_task(self._answer(identity, message))
        self._running[identity] = task
        task.add_done_callback(lambda done: self._over(identity, done))

    def _over(self, identity: bytes, done: "asyncio.Task[None]") -> None:
        if self._running.get(identity) is done:
            del self._running[identity]

    def _cancel(self, message: Message) -> None:
        try:
            identity = RawObject.parse(message.params).get("requestId")
        except NotJson:
            return
        if identity is not None and identity in self._running:
            self._running[identity].cancel()

    async def _answer(self, identity: bytes, message: Message) -> None:
        def caller_of(envelope: Envelope | None) -> Caller:
            return Caller(self._session, self._peer, envelope, identity)

        try:
            reply = await self._desk.reply(message, caller_of)
            await self._peer.answer(identity, reply)
        except PeerGone as error:
            LOG.info("an answer could not be delivered: %s", error)
