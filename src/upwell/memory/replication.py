"""Keep a copy of a team's memories up to date, and send the writes that were made in the copy.

Writes go first, so that a page never brings back what was just changed here. Both directions may
be interrupted anywhere: a page and the cursor behind it are one transaction of the copy, and a
write is sent again under the same token until the shared store has acknowledged it.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from upwell.ground.errors import StoreError
from upwell.ground.trace import LOG
from upwell.memory.base import Cursor, Outgoing, Page, SharedMemories

BUSY_SHARE = 0.5
"""The share of the time that filling a copy may keep the processor busy: an agent's events come
first."""


class Copy(Protocol):
    """The copy, in a store of this machine."""

    async def cursors(self) -> Sequence[Cursor]: ...
    async def take(self, page: Page) -> None: ...
    async def checked(self) -> None: ...
    async def outgoing(self) -> Sequence[Outgoing]: ...
    async def sent(self, writes: Sequence[Outgoing]) -> None: ...
    async def refuse(self, write: Outgoing, error: str) -> None: ...


class Replication:
    """Replicates `shared` in `copy`."""

    def __init__(self, copy: Copy, shared: SharedMemories) -> None:
        self._copy = copy
        self._shared = shared

    async def run(self) -> None:
        """Send what waits, and bring the copy up to date.

        Raises:
            StoreError: a store failed; the next run continues.
        """
        await self.push()
        await self.pull()

    async def push(self) -> None:
        """Send the waiting writes.

        Raises:
            StoreError: a store failed, or does not accept one of the writes; the others were sent.
        """
        refused: StoreError | None = None
        tried: set[str] = set()
        while writes := [w for w in await self._copy.outgoing() if w.token not in tried]:
            tried |= {write.token for write in writes}
            try:
                await self._shared.receive(writes)
                await self._copy.sent(writes)
            except StoreError as error:
                refused = await self._push_each(writes, error) or refused
        if refused:
            raise refused

    async def _push_each(
        self, writes: Sequence[Outgoing], failure: StoreError
    ) -> StoreError | None:
        """Send one by one the writes that could not be sent together. Returns the last refusal.

        Raises:
            StoreError: the shared store cannot be reached.
        """
        refusals: list[tuple[Outgoing, StoreError]] = []
        for write in writes:
            try:
                await self._shared.receive([write])
                await self._copy.sent([write])
            except StoreError as error:
                if not await self._is_reachable():
                    raise failure from error
                refusals.append((write, error))
        for write, refusal in refusals:
            LOG.warning("the team's store does not accept memory %s: %s", write.id, refusal)
            await self._copy.refuse(write, refusal.message)
        return refusals[-1][1] if refusals else None

    async def _is_reachable(self) -> bool:
        try:
            await self._shared.pages([])
        except StoreError:
            return False
        return True

    async def pull(self) -> None:
        """Bring the copy up to date.

        Raises:
            StoreError: a store failed.
        """
        behind = await self._copy.cursors()
        while behind:
            pages = await self._shared.pages(behind)
            for page in pages:
                began = time.monotonic()
                await self._copy.take(page)
                if not page.is_last:
                    await asyncio.sleep((time.monotonic() - began) * (1 / BUSY_SHARE - 1))
            behind = [page.cursor for page in pages if not page.is_last]
        await self._copy.checked()
