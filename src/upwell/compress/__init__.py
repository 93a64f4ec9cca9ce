"""Fit tool responses into an agent's budget, guided by their content and the agent's question.

    from upwell.compress import compress
    compress(text, max_tokens=2_000, query="which test failed?").text

Importing this package is cheap: a strategy is imported when it is first used.
"""

from typing import TYPE_CHECKING

from upwell.ground.types.compression import Compressed

if TYPE_CHECKING:
    from upwell.compress.base import Strategy, Tools

__all__ = ["STRATEGIES", "compress", "load"]

STRATEGIES = {
    "auto": "upwell.compress.strategies:Auto",
    "none": "upwell.compress.strategies:PassThrough",
    "truncate": "upwell.compress.strategies:Truncate",
    "hybrid": "upwell.compress.strategies:Hybrid",
    "selective": "upwell.compress.selective:Selective",
    "progressive": "upwell.compress.progressive:Progressive",
    "extract_fields": "upwell.compress.strategies:ExtractFields",
    "schema_pruning": "upwell.compress.strategies:SchemaPruning",
    "skeleton": "upwell.compress.strategies:Skeleton",
    "llm_summary": "upwell.compress.strategies:Summary",
}
"""Name → class, written `module:class`. Add a strategy by writing the class and a line here."""


def load(name: str, tools: "Tools | None" = None) -> "Strategy":
    """Create the strategy called `name`, with the `tools` that it may use.

    Raises:
        UsageError: no strategy has this name; the hint suggests the nearest one.
    """
    from pkgutil import resolve_name

    if name not in STRATEGIES:
        raise _unknown(name)
    from upwell.compress.base import NO_TOOLS

    strategy: Strategy = resolve_name(STRATEGIES[name])(tools or NO_TOOLS)
    return strategy


def _unknown(name: str) -> Exception:
    from difflib import get_close_matches

    from upwell.ground.errors import UsageError

    nearest = get_close_matches(name, STRATEGIES, 1, 0.4)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(STRATEGIES)}"
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
    """Fit `text` into `max_chars` and `max_tokens`, both hard limits.

    `query` is the agent's question; content that answers it is preferred. `name`, a path or URL,
    helps to detect the kind of text. Without a limit the text is returned unchanged. The function
    uses no model and stores nothing.

    Raises:
        UsageError: the strategy is unknown, or a limit is negative.
    """
    from upwell.compress.compressor import Compressor
    from upwell.ground.errors import UsageError
    from upwell.ground.types.compression import Budget, Passage

    if strategy not in STRATEGIES:
        raise _unknown(strategy)
    if min(max_chars or 0, max_tokens or 0) < 0:
        raise UsageError("a budget cannot be negative", hint="use 0 or more")
    budget = Budget(hard_chars=max_chars, hard_tokens=max_tokens)
    passage = Passage(text=text, query=query or "", name=name)
    return Compressor().compress(passage, budget, strategy=strategy)
