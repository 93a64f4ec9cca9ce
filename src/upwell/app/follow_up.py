"""Records what agents do with shortened results, for learning and in the trace of the call."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from upwell.app.cuts import Cuts
from upwell.compress.originals import StoredOriginal
from upwell.gateway.calls.fit import Cut
from upwell.ground.background import BackgroundTasks
from upwell.ground.errors import StoreError
from upwell.ground.meters import TOKENS_SAVED
from upwell.ground.text.tokens import count
from upwell.ground.trace import LOG, conclude, contained, is_tracing, span
from upwell.ground.ttl_store import EntryKind, TtlStore
from upwell.ground.types.rpc import ToolCall
from upwell.learn.budgets import Budgets
from upwell.surface.journal import shown_project
from upwell.surface.learning import Learning
from upwell.tools.base import Result, Tool
from upwell.usage.breakdown import UsagePlace

_DAY_SECONDS = 86_400.0
_MAX_TRACES = 2_000


class Traces:
    """Remembers the trace of each call whose result was shortened, so that a later `read_more` of
    that result joins the trace.
    """

    def __init__(self) -> None:
        self._by_key: OrderedDict[str, str] = OrderedDict()

    def note(self, keys: Sequence[str], trace_id: str) -> None:
        """Record that these originals belong to a call in this trace."""
        for key in keys:
            self._by_key[key] = trace_id
            self._by_key.move_to_end(key)
        while len(self._by_key) > _MAX_TRACES:
            self._by_key.popitem(last=False)

    def of(self, key: str) -> str:
        """The trace of the call whose result has this key; "" if this process has no record of
        it."""
        return self._by_key.get(key, "")


class FollowUp:
    """Learns from shortened results: how many were delivered, and which originals an agent read.

    While tracing is on, the trace id of each shortened result is also kept in `ttl_store`, so that
    reading an original joins the trace even in another process or after a restart.
    """

    def __init__(
        self, budgets: Budgets, learning: Learning, cuts: Cuts, ttl_store: TtlStore
    ) -> None:
        self._budgets = budgets
        self._learning = learning
        self._cuts = cuts
        self._ttl_store = ttl_store
        self._reading = BackgroundTasks("counting what is read again")
        self._traces = Traces()
        self._writes = BackgroundTasks("recording a shortened result")

    def delivered(self, call: ToolCall, cut: Cut) -> None:
        """Count a shortened result from a call to an MCP server."""
        tool = f"{call.server}__{call.tool}"
        if cut.keys and not call.read_command:
            self._budgets.served(tool, cut.keys)
        self.shortened_by_hook(call, cut)

    def shortened_by_hook(self, call: ToolCall, cut: Cut) -> None:
        """Count a shortened result that does not count for the tool's learned budget, because the
        agent reads the original on the command line, where this process does not see it.
        """
        TOKENS_SAVED.add(call.server, by=cut.tokens_before - cut.tokens_after)
        self._learning.shortened(_place_of(call), cut.tokens_before, cut.tokens_after)
        # The figures are stored at once, because another process may show them before this one
        # records its next result.
        self._writes.start(self._learning.store_figures())
        self._cuts.note(call, cut)
        self._traces.note(cut.keys, call.trace_id)
        if cut.keys and is_tracing():
            self._writes.start(self._keep(cut.keys, call.trace_id))

    def on_follow_up(self, original: StoredOriginal, text: str) -> None:
        """Count `text`, the part of an original that an agent has read."""
        self._budgets.on_follow_up(original.key)
        self._reading.start(self.read_again(original.key, text))

    async def read_again(self, key: str, text: str) -> str:
        """Count the tokens of `text`, which the agent reads from the original with this key.
        Returns `text`."""
        try:
            row = await self._cuts.call_of(key)
        except StoreError as error:
            LOG.warning("a reading of an original was not counted: %s", error)
            return text
        if row is not None:
            tokens = await asyncio.to_thread(count, text)
            place = UsagePlace(row["host"], row["project"], row["tool"])
            self._learning.breakdown.add(place, read_again=tokens)
            await self._learning.store_figures()
        return text

    def traced(self, tool: Tool) -> Tool:
        """Wrap a tool that reads originals. Each run becomes a span in the trace of the call that
        returned the original."""

        async def run(args: Mapping[str, Any], session: str) -> Result:
            key = str(args.get("key", ""))
            trace_id = await self._trace_of(key) if is_tracing() else ""
            with span("upwell.read_on", trace_id=trace_id, tool=tool.name) as current:
                result = await tool.run(args, session)
                conclude(current, "read")
                return result

        return replace(tool, run=run)

    async def aclose(self) -> None:
        await self._reading.drain()
        await self._writes.drain()

    async def _keep(self, keys: Sequence[str], trace_id: str) -> None:
        with contained("keeping the trace of a result"):
            traces = dict.fromkeys(keys, trace_id.encode())
            await self._ttl_store.put(EntryKind.TRACE, traces, ttl_seconds=_DAY_SECONDS)

    async def _trace_of(self, key: str) -> str:
        if known := self._traces.of(key):
            return known
        with contained("looking up the trace of a result"):
            item = (await self._ttl_store.get(EntryKind.TRACE, [key])).get(key)
            return item.value.decode() if item else ""
        return ""


def _place_of(call: ToolCall) -> UsagePlace:
    return UsagePlace(call.host, shown_project(call.cwd), f"{call.server}__{call.tool}")
