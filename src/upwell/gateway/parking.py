"""Calls that wait for their client: a server of the handshake era asks in the middle of a call, a
client of the modern era can only be asked by a result. So the call stays open, the client gets
`input_required` with a state that names it, and comes back with the answers.
"""

import asyncio
import secrets
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from upwell.gateway.client import Caller
from upwell.gateway.eras import input_required
from upwell.ground.types import Reply
from upwell.wire.rawjson import RawObject

MARK = "upwell-parked-"
PARKED_SECONDS = 600.0
MOST_PARKED = 1000


@dataclass(slots=True)
class _Parked:
    """A call under way, for whom it is, and what ends it when nobody comes back."""

    caller: Caller
    task: "asyncio.Task[Reply]"
    wanted: asyncio.Event
    expiry: asyncio.TimerHandle | None = None


class Parking:
    """Holds open calls until their clients come back."""

    def __init__(self) -> None:
        self._parked: dict[str, _Parked] = {}

    async def run(self, caller: Caller, work: Coroutine[Any, Any, Reply]) -> Reply:
        """The outcome of `work`, or what the client is asked first."""
        wanted = asyncio.Event()
        caller.on_wanted = wanted.set
        return await self._next(_Parked(caller, asyncio.create_task(work), wanted))

    async def resume(self, state: str, params: RawObject, caller: Caller) -> Reply | None:
        """Go on with the answers that came. None: no call waits under this state."""
        parked = self._parked.get(state)
        if parked is None or parked.caller.session != caller.session:
            return None
        del self._parked[state]
        if parked.expiry is not None:
            parked.expiry.cancel()
        parked.caller.channel = caller.channel
        answers = RawObject.parse(params.get("inputResponses") or b"{}")
        for key, (_method, _params, future) in list(parked.caller.wanted.items()):
            if (answer := answers.get(key)) is not None and not future.done():
                future.set_result(Reply(result=answer))
        await asyncio.sleep(0)
        if any(not future.done() for _, _, future in parked.caller.wanted.values()):
            parked.wanted.set()
        return await self._next(parked)

    async def _next(self, parked: _Parked) -> Reply:
        asked = asyncio.create_task(parked.wanted.wait())
        try:
            await asyncio.wait({parked.task, asked}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            parked.task.cancel()
            raise
        finally:
            asked.cancel()
        if parked.task.done():
            return parked.task.result()
        return Reply(result=self._park(parked).encode())

    def _park(self, parked: _Parked) -> RawObject:
        parked.wanted.clear()
        state = MARK + secrets.token_urlsafe(18)
        if len(self._parked) >= MOST_PARKED:
            self._abandon(next(iter(self._parked)))
        self._parked[state] = parked
        loop = asyncio.get_running_loop()
        parked.expiry = loop.call_later(PARKED_SECONDS, self._abandon, state)
        requests = {
            key: (method, params)
            for key, (method, params, future) in parked.caller.wanted.items()
            if not future.done()
        }
        return input_required(requests, state)

    def _abandon(self, state: str) -> None:
        if parked := self._parked.pop(state, None):
            parked.task.cancel()
