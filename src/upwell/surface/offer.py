"""Follows what upwell says to an agent, from the search until it is known whether it arrived. The
hooks and the gateway do this in the same way:

    async with offers.offer(cue, seconds) as offer:
        outcome = await offer.outcome()
        …
        offer.deliver(receipt)

Whoever leaves the block without `deliver()` takes the memories back, so that they may surface
again.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

from msgspec.structs import replace

from upwell.ground.background import BackgroundTasks, Receipt
from upwell.ground.trace import LOG
from upwell.ground.types.cue import Cue, Skip, SkipReason, Surfacing, ToolAnswer
from upwell.surface.pipeline import Outcome, Surfacer
from upwell.surface.rules import Guards, Refusal


class Offers:
    """The offers of one door. `guards` are the rules that may refuse a call."""

    def __init__(self, surfacer: Surfacer, guards: Guards | None = None) -> None:
        self._surfacer = surfacer
        self._guards = guards
        self._asking_guards = asyncio.Lock()
        self._searches = BackgroundTasks("surfacing")
        self._returns = BackgroundTasks("recording what arrived")

    @asynccontextmanager
    async def offer(
        self, cue: Cue | Awaitable[Cue], seconds: float = math.inf
    ) -> AsyncIterator["Offer"]:
        """Start to decide about a cue. The caller waits for `seconds` at most."""
        offer = Offer(self._surfacer, cue, seconds, self._searches, self._returns)
        try:
            yield offer
        finally:
            offer.leave()

    async def refusal(self, cue: Cue | Awaitable[Cue], receipt: Receipt) -> Refusal | None:
        """The refusal of a call that is about to be made, or None if the call may be made. A guard
        refuses one call per session. If the refusal does not reach the agent, the guard refuses the
        next matching call as well."""
        guards = self._guards
        if guards is None:
            return None
        # The lock keeps the calls in order, even if the lookup for an earlier call takes longer.
        async with self._asking_guards:
            refusal = await guards.refusal(cue if isinstance(cue, Cue) else await cue)
        if refusal is None:
            return None

        def settle(arrived: bool) -> None:
            if not arrived:
                self._returns.start(guards.withdraw(refusal))

        receipt.when_settled(settle)
        return refusal

    async def drain(self) -> None:
        """Wait until every search has ended and every delivery is recorded."""
        await self._searches.drain()
        await self._returns.drain()

    async def aclose(self) -> None:
        """Stop searching, and finish recording what arrived."""
        self._searches.cancel()
        await self.drain()


class Offer:
    """A decision that is made while its event waits, and what becomes of it."""

    def __init__(
        self,
        surfacer: Surfacer,
        cue: Cue | Awaitable[Cue],
        seconds: float,
        searches: BackgroundTasks,
        returns: BackgroundTasks,
    ) -> None:
        self._surfacer = surfacer
        self._seconds = seconds
        self._searches = searches
        self._returns = returns
        self.is_late = False
        self._is_on_its_way = False
        self._start(cue)

    def _start(self, cue: Cue | Awaitable[Cue]) -> None:
        async def decided() -> tuple[Cue, Outcome]:
            known = cue if isinstance(cue, Cue) else await cue
            return known, await self._surfacer.offer(known)

        self._search = self._searches.start(decided())
        self._deadline = asyncio.get_running_loop().time() + self._seconds

    async def outcome(self) -> Outcome | None:
        """The decision, or None if it is late or has failed."""
        if not self._search.done():
            remaining = self._deadline - asyncio.get_running_loop().time()
            await asyncio.wait({self._search}, timeout=max(0.0, remaining))
        self.is_late = not self._search.done()
        return None if self.is_late or self._has_failed() else self._search.result()[1]

    def may_look_again(self) -> bool:
        """True if there is nothing to say, but the call's result might change that."""
        if not self._search.done() or self._has_failed():
            return False
        outcome = self._search.result()[1]
        # The result of a call does not change these decisions.
        return isinstance(outcome, Skip) and outcome.reason not in (
            SkipReason.DISABLED,
            SkipReason.PAUSED,
            SkipReason.EXCLUDED_PROJECT,
            SkipReason.WRITE_TOOL,
        )

    def look_again(self, answer: ToolAnswer) -> None:
        """Decide again, now also by the result of a call that failed or found nothing."""
        cue, _ = self._search.result()
        self._start(replace(cue, answer=answer, at=None))

    def deliver(self, receipt: Receipt, omitted: int = 0) -> None:
        """The memories are in the reply, without the last `omitted` ones. They count as delivered
        if the reply arrives, and are taken back if it does not."""
        self._is_on_its_way = True

        def conclude(arrived: bool) -> None:
            self._returns.start(self._conclude(omitted, arrived=arrived))

        receipt.when_settled(conclude)

    def leave(self) -> None:
        """Take back what is not on its way to the agent. Memories that were found too late may be
        offered to the session's next call."""
        has_ended = self._search.done() and (
            self._has_failed() or isinstance(self._search.result()[1], Skip)
        )
        if not self._is_on_its_way and not has_ended:
            self._returns.start(self._take_back(late=self.is_late))

    async def _conclude(self, omitted: int, *, arrived: bool) -> None:
        if not arrived:
            LOG.info("memories did not reach the agent")
            await self._take_back(late=False)
            return
        cue, surfacing = self._search.result()
        if isinstance(surfacing, Surfacing):
            deliveries = self._surfacer.deliveries
            if omitted:
                surfacing = await deliveries.cut(surfacing, cue, omitted)
            await deliveries.delivered(surfacing, cue)

    async def _take_back(self, *, late: bool) -> None:
        await asyncio.wait({self._search})
        if not self._has_failed():
            cue, surfacing = self._search.result()
            if isinstance(surfacing, Surfacing):
                await self._surfacer.deliveries.take_back(surfacing, cue, late=late)

    def _has_failed(self) -> bool:
        return self._search.cancelled() or self._search.exception() is not None
