"""Keep a copy of a team's memories up to date, and send the writes made in the copy.

Writes are sent first, so that no page undoes a change that was just made here. Both directions can
be interrupted at any point. The copy applies a page and its cursor in one transaction. A write is
sent again with the same token until the shared store acknowledges it.
"""

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import Protocol

from upwell.ground.errors import StoreError
from upwell.ground.trace import LOG
from upwell.memory.team.base import ChangePage, Cursor, Outgoing, RefusedWrite, SharedMemories

BUSY_SHARE = 0.5
"""Filling a copy takes up at most this share of the time, so that an agent's events are not
delayed."""


class Copy(Protocol):
    """The copy, in a store on this machine."""

    async def cursors(self) -> Sequence[Cursor]: ...
    async def take(self, page: ChangePage) -> None: ...
    async def checked(self) -> None: ...
    async def outgoing(self, *, again: bool, tried: Collection[str] = ()) -> Sequence[Outgoing]: ...
    async def sent(self, writes: Sequence[Outgoing]) -> None: ...
    async def refuse(self, write: Outgoing, error: str) -> None: ...


class Replication:
    """Replicates `shared` in `copy`."""

    def __init__(self, copy: Copy, shared: SharedMemories) -> None:
        self._copy = copy
        self._shared = shared

    async def run(self, *, again: bool = True) -> None:
        """Send the waiting writes, and bring the copy up to date.

        Raises:
            StoreError: a store failed. The next run continues where this one stopped.
        """
        await self.push(again=again)
        await self.pull()

    async def push(self, *, again: bool = True) -> None:
        """Send the waiting writes. If `again` is set, writes that were refused earlier are sent
        too. A refused write keeps waiting, and the copy records the reason.

        Raises:
            StoreError: a store failed.
        """
        tried: set[str] = set()
        while writes := await self._copy.outgoing(again=again, tried=tried):
            tried |= {write.token for write in writes}
            try:
                refusals = await self._shared.receive(writes)
            except StoreError as error:
                refusals = await self._push_each(writes, error)
            await self._settle(writes, refusals)

    async def _settle(self, writes: Sequence[Outgoing], refusals: Sequence[RefusedWrite]) -> None:
        reasons = {refusal.token: refusal.reason for refusal in refusals}
        await self._copy.sent([write for write in writes if write.token not in reasons])
        for write in writes:
            if reason := reasons.get(write.token):
                LOG.warning("the team's store does not accept memory %s: %s", write.id, reason)
                await self._copy.refuse(write, reason)

    async def _push_each(
        self, writes: Sequence[Outgoing], failure: StoreError
    ) -> Sequence[RefusedWrite]:
        """Send writes one by one, because sending them together failed. Returns those that fail.

        Raises:
            StoreError: the shared store cannot be reached.
        """
        refusals: list[RefusedWrite] = []
        for write in writes:
            try:
                refusals += await self._shared.receive([write])
            except StoreError as error:
                if not await self._is_reachable():
                    raise failure from error
                refusals.append(RefusedWrite(write.token, error.message))
        return refusals

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
