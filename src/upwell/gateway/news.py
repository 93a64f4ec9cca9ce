"""The news of a modern upstream: one `subscriptions/listen` for everything, opened anew whenever
the resources that are followed change."""

import asyncio
from collections.abc import Iterable

from upwell.gateway.connection import Connection
from upwell.gateway.eras import listen_params
from upwell.ground.errors import UpstreamError
from upwell.ground.trace import LOG
from upwell.wire.rawjson import RawObject


class News:
    """Keeps the stream open. Servers of the handshake era need none."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._listening: asyncio.Task[None] | None = None

    def follow(self, uris: Iterable[str]) -> None:
        """Hear of changed lists, and of these resources, from now on."""
        about = self._connection.about
        params = listen_params(about.capabilities, uris) if about.modern else None
        before, self._listening = self._listening, None
        if params is not None:
            self._listening = asyncio.create_task(self._listen(params))
        if before is not None:
            before.cancel()

    def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()

    async def _listen(self, params: RawObject) -> None:
        try:
            reply = await self._connection.ask("subscriptions/listen", params)
            if reply.error:
                LOG.info("no news of this upstream: %s", reply.error[:200])
        except UpstreamError as error:
            LOG.debug("the news ended: %s", error)
