"""The list of strategies. Importing it is cheap: a strategy is imported when it is first used."""

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from upwell.compress.base import Strategy, Tools

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
    check(name)
    from upwell.compress.base import NO_TOOLS

    return _class_of(name)(tools or NO_TOOLS)


@lru_cache
def _class_of(name: str) -> "type[Strategy]":
    from pkgutil import resolve_name

    strategy: type[Strategy] = resolve_name(STRATEGIES[name])
    return strategy


def check(name: str) -> None:
    """Check that a strategy has this name.

    Raises:
        UsageError: no strategy has it; the hint suggests the nearest name.
    """
    if name in STRATEGIES:
        return
    from difflib import get_close_matches

    from upwell.ground.errors import UsageError

    nearest = get_close_matches(name, STRATEGIES, 1, 0.4)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(STRATEGIES)}"
    raise UsageError(f"no compression strategy is called {name!r}", hint=hint)
