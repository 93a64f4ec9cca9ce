"""The front for stdio, which serves one agent of either era."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from upwell.gateway.clients import Audience, Session
from upwell.gateway.front.handshake import Hello
from upwell.gateway.routing.router import Router
from upwell.ground.background import BackgroundTasks, Receipt
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import Reply
from upwell.wire.lines import Line, Sink
from upwell.wire.peer import INTERNAL_ERROR, Message, Peer, PeerGone, error_body
from upwell.wire.rawjson import NotJson, RawObject

DRAIN_SECONDS = 5.0
"""How much time the running requests get to finish when the gateway is told to exit."""
MAX_RUNNING = 4096
"""How many requests from an agent may run at once. Further requests are refused. If the agent does
not read the refusals, nothing more is read from the agent.
"""


class StdioFront:
    """One agent's connection. Requests run concurrently. Each request gets one reply, unless it is
    cancelled."""

    def __init__(self, router: Router, audience: Audience, hello: Hello) -> None:
        self._router = router
        self._audience = audience
        self._hello = hello
        self._requests = BackgroundTasks("requests on stdio")
        self._running: dict[asyncio.Task[None], bytes] = {}

    async def serve(self, lines: AsyncIterator[Line], sink: Sink) -> None:
        """Serve requests until the agent disconnects, then cancel those still running. If `serve()`
        itself is cancelled, running requests first have `DRAIN_SECONDS` to finish."""
        self._peer = Peer(lines, sink, self._take, answers_malformed=True)
        self._session = Session(self._peer, modern=self._hello.modern)
        self._session.capabilities = self._hello.capabilities
        self._audience.join(self._session)
        try:
            await self._peer.run()
        except asyncio.CancelledError:
            if self._running:
                await asyncio.wait(self._running, timeout=DRAIN_SECONDS)
            raise
        finally:
            self._audience.leave(self._session)
            await self._requests.aclose()

    async def _take(self, message: Message) -> None:
        if message.id is not None and len(self._running) >= MAX_RUNNING:
            why = f"{MAX_RUNNING} requests are running; try again later"
            body = error_body(INTERNAL_ERROR, why)
            await self._peer.answer(message.id, Reply(error=body))
        elif message.id is not None:
            task = self._requests.start(self._answer(message.id, message))
            self._running[task] = message.id
            task.add_done_callback(self._running.pop)
        elif message.method == "notifications/cancelled":
            with suppress(NotJson):
                identity = RawObject.parse(message.params).get("requestId")
                for task, running_identity in self._running.items():
                    if running_identity == identity:
                        task.cancel()
        elif message.method == "notifications/initialized":
            self._session.ready.set()
        else:
            self._router.notify(message.method or "", message.params)

    async def _answer(self, identity: bytes, message: Message) -> None:
        receipt = Receipt()
        try:
            # The reply may be megabytes long, so no name keeps it while it is sent.
            await self._peer.answer(
                identity, await self._router.reply(message, self._session, self._peer, receipt)
            )
            receipt.settle(True)
        except PeerGone as error:
            LOG.info("an answer could not be delivered: %s", error)
        finally:
            receipt.settle(False)
