"""Estimates how many tokens `hook.compress` would have saved in past sessions."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from upwell.config import Config
from upwell.episodes.events import WRITERS, Kind, SessionEvent
from upwell.gateway.calls.budgets import default_tokens
from upwell.gateway.calls.fit import NOTICE_TOKENS, WORTH_SHORTENING
from upwell.ground.text.tokens import count
from upwell.ground.types.rpc import ToolCall
from upwell.hook.tool_output import UNTOUCHED_TOOLS


class Savings(Struct):
    """Counts the results of all tools that an agent called: their tokens, and the tokens that
    shortening to the configured budgets would have saved. The readers of transcripts truncate very
    long results, so both token counts are lower bounds.
    """

    config: Config
    results: int = 0
    shortened: int = 0
    tokens: int = 0
    saved: int = 0

    def watch(self, events: Iterable[SessionEvent]) -> Iterator[SessionEvent]:
        """Yield the events, and count their results."""
        for event in events:
            if event.kind is Kind.TOOL and event.out:
                self._add(event)
            yield event

    def described(self) -> dict[str, int]:
        """The counts, for JSON."""
        return {
            "results": self.results,
            "shortened": self.shortened,
            "tokens": self.tokens,
            "saved": self.saved,
        }

    def _add(self, event: SessionEvent) -> None:
        tokens = count(event.out)
        self.results += 1
        self.tokens += tokens
        if event.tool in UNTOUCHED_TOOLS | WRITERS:
            return
        call = ToolCall(server=event.host, tool=event.tool, params=b"{}", args=event.args)
        options = self.config.compress_for(event.host, event.tool)
        budget = options.max_result_tokens
        if budget is None:
            budget = default_tokens(call, options, self.config.result_tokens())
        if tokens * WORTH_SHORTENING > budget:
            self.shortened += 1
            self.saved += max(0, tokens - budget - NOTICE_TOKENS)
