"""Fitting tool responses to an agent's budget, by what they are and what the agent asks.

    from upwell.compress import compress
    compress(text, max_tokens=2_000, query="which test failed?").text

Strategies and everything they need are loaded when first used.
"""

from typing import TYPE_CHECKING

from upwell.ground.types import Compressed

if TYPE_CHECKING:
    from upwell.compress.base import Strategy, Tools

__all__ = ["STRATEGIES", "compress", "load"]

STRATEGIES = {
    "auto": "auto:Auto",
    "none": "none:PassThrough",
    "truncate": "truncate:Truncate",
    "hybrid": "hybrid:Hybrid",
    "selective": "selective:Selective",
    "progressive": "progressive:Progressive",
    "extract_fields": "fields:ExtractFields",
    "schema_pruning": "schema:SchemaPruning",
    "skeleton": "skeleton:Skeleton",
    "llm_summary": "summary:Summary",
}
"""Name → module and class in this package. A new strategy is a file and a line here."""


def load(name: str, tools: "Tools | None" = None) -> "Strategy":
    """The strategy called `name`, with what it may use.

    Raises:
        UsageError: there is none; the hint names the nearest.
    """
    from importlib import import_module

    if name not in STRATEGIES:
        raise _unknown(name)
    from upwell.compress.base import NO_TOOLS

    module, _, title = STRATEGIES[name].partition(":")
    made = getattr(import_module(f"upwell.compress.{module}"), title)
    strategy: Strategy = made(tools or NO_TOOLS)
    return strategy


def _unknown(name: str) -> Exception:
    from difflib import get_close_matches

    from upwell.ground.errors import UsageError

    near = get_close_matches(name, STRATEGIES, 1, 0.4)
    known = ", ".join(STRATEGIES)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {known}"
    return UsageError(f"no compression strategy is called {name!r}", hint=hint)


def compress(
    text: str,
    *,
    max_chars: int | None = None,
    max_tokens: int | None = None,
    query: str | None = None,
    strategy: str = "auto",
    name: str = "",
) -> Compressed:
    """Fit `text` into `max_chars` and `max_tokens`, hard limits both; `query` says what matters.

    `name`, a path or URL, is a hint at what the text is. Without a limit the text comes back as
    it is. Nothing outside of the text is used: no model, no store.

    Raises:
        UsageError: the strategy is unknown, or a limit is negative.
    """
    from upwell.compress.compressor import Compressor
    from upwell.ground.errors import UsageError
    from upwell.ground.types import Budget, Passage

    if strategy not in STRATEGIES:
        raise _unknown(strategy)
    if min(max_chars or 0, max_tokens or 0) < 0:
        raise UsageError("a budget cannot be negative", hint="give 0 or more")
    budget = Budget(hard_chars=max_chars, hard_tokens=max_tokens)
    passage = Passage(text=text, query=query or "", name=name)
    return Compressor().compress(passage, budget, strategy=strategy)
