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
from upwell.ground.types import Reply
from upwell.wire.lines import Line, Sink
from upwell.wire.peer import INTERNAL_ERROR, Message, Peer, PeerGone, error_body
from upwell.wire.rawjson import NotJson, RawObject

DRAIN_SECONDS = 5.0
"""How long calls may still run when we are asked to end."""
MOST_RUNNING = 4096
"""Requests of one agent at once. More are refused, and while it does not read that, no more of what
it sends is read."""


class Front:
    """One agent's connection. Every request is answered once; requests run side by side."""

    def __init__(self, desk: Desk, directory: Directory, audience: Audience, hello: Hello) -> None:
        self._desk = desk
        self._directory = directory
        self._audience = audience
        self._hello = hello
        self._running: dict[asyncio.Task[None], bytes] = {}

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
                await asyncio.wait(self._running, timeout=DRAIN_SECONDS)
            raise
        finally:
            self._audience.leave(session)
            running = list(self._running)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _incoming(self, message: Message) -> None:
        if message.id is not None and len(self._running) >= MOST_RUNNING:
            body = error_body(INTERNAL_ERROR, f"{MOST_RUNNING} requests are under way; ask later")
            await self._peer.answer(message.id, Reply(error=body))
        elif message.id is not None:
            self._begin(message.id, message)
        elif message.method == "notifications/cancelled":
            self._cancel(message)
        elif message.method == "notifications/initialized":
            self._session.ready.set()
        else:
            self._directory.tell(message.method or "", message.params)

    def _begin(self, identity: bytes, message: Message) -> None:
        task = asyncio.create_task(self._answer(identity, message))
        self._running[task] = identity
        task.add_done_callback(self._running.pop)

    def _cancel(self, message: Message) -> None:
        try:
            identity = RawObject.parse(message.params).get("requestId")
        except NotJson:
            return
        for task, running in self._running.items():
            if running == identity:
                task.cancel()

    async def _answer(self, identity: bytes, message: Message) -> None:
        def caller_of(envelope: Envelope | None) -> Caller:
            return Caller(self._session, self._peer, envelope, identity)

        try:
            reply = await self._desk.reply(message, caller_of)
            await self._peer.answer(identity, reply)
        except PeerGone as error:
            LOG.info("an answer could not be delivered: %s", error)
