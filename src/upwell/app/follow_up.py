"""Records what agents do with shortened results, for learning and in the trace of the call."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from upwell.app.cuts import Cuts
from upwell.compress.originals import StoredOriginal
from upwell.ground.background import BackgroundTasks
from upwell.ground.errors import StoreError
from upwell.ground.meters import TOKENS_SAVED
from upwell.ground.text.tokens import count
from upwell.ground.trace import LOG, conclude, contained, is_tracing, span
from upwell.ground.types.rpc import ToolCall
from upwell.learn.budgets import Budgets
from upwell.surface.learning import Learning
from upwell.tools.base import Result, Tool
from upwell.usage.counts import CountedEvent

if TYPE_CHECKING:
    from upwell.gateway.calls.fit import Cut


class FollowUp:
    """Learns from shortened results: how many were delivered, and which originals an agent read."""

    def __init__(self, budgets: Budgets, learning: Learning, cuts: Cuts) -> None:
        self._budgets = budgets
        self._learning = learning
        self._cuts = cuts
        self._reading = BackgroundTasks("counting what is read again")

    def delivered(self, call: ToolCall, cut: "Cut") -> None:
        """Count a shortened result from a call to an MCP server."""
        tool = f"{call.server}__{call.tool}"
        if cut.keys and not call.read_command:
            self._budgets.served(tool, cut.keys)
        self.shortened_by_hook(call, cut)

    def shortened_by_hook(self, call: ToolCall, cut: "Cut") -> None:
        """Count a shortened result that does not count for the tool's learned budget, because the
        agent reads the original on the command line, where this process does not see it.
        """
        TOKENS_SAVED.add(call.server, by=cut.tokens_before - cut.tokens_after)
        self._cuts.note(call, cut)

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
            place = {name: row[name] for name in ("host", "project", "tool")}
            self._learning.counts.add(CountedEvent.READ_AGAIN, by=tokens, **place)
            await self._learning.counts.flush()
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

    async def _trace_of(self, key: str) -> str:
        with contained("looking up the trace of a result"):
            row = await self._cuts.call_of(key)
            return str(row["trace_id"]) if row else ""
        return ""
