"""What clients tell one server: in order, before every request that came later, and without anybody
waiting who reads what clients send. A server that does not take a notice in time never gets it."""

import asyncio
from collections.abc import Awaitable, Callable

from upwell.ground.trace import LOG
from upwell.wire.peer import PeerGone

TAKE_SECONDS = 5.0
"""From when it was told to when it has to be taken."""
MOST_WAITING = 100
MOST_WAITING_BYTES = 1024 * 1024
"""More than either is not kept for a server that takes nothing."""


class Notices:
    """Notices on their way to the server `name`; `send` gives it one."""

    def __init__(self, name: str, send: Callable[[str, bytes], Awaitable[None]]) -> None:
        self._name = name
        self._send = send
        self._waiting: set[asyncio.Task[None]] = set()
        self._last: asyncio.Task[None] | None = None
        self._size = 0

    def tell(self, method: str, params: bytes = b"") -> None:
        """Send it after those before."""
        if len(self._waiting) >= MOST_WAITING or self._size + len(params) > MOST_WAITING_BYTES:
            LOG.warning("upstream %s takes no notices; %s is dropped", self._name, method)
            return
        self._size += len(params)
        deadline = asyncio.get_running_loop().time() + TAKE_SECONDS
        self._last = asyncio.create_task(self._sent(self._last, deadline, method, params))
        self._waiting.add(self._last)
        self._last.add_done_callback(self._waiting.discard)

    async def sent(self) -> None:
        """Wait until what was told so far was taken or given up."""
        if self._last is not None and not self._last.done():
            await asyncio.wait({self._last})

    def close(self) -> None:
        for task in self._waiting:
            task.cancel()

    async def _sent(
        self, before: "asyncio.Task[None] | None", deadline: float, method: str, params: bytes
    ) -> None:
        try:
            if before is not None:
                await asyncio.wait({before})
            async with asyncio.timeout_at(deadline):
                await self._send(method, params)
        except TimeoutError:
            LOG.warning("upstream %s did not take %s in time", self._name, method)
        except PeerGone as error:
            LOG.debug("upstream %s is gone: %s", self._name, error)
        finally:
            self._size -= len(params)
