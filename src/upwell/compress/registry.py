"""The list of strategies. Importing it is cheap, because each strategy is imported only when first
used."""

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from upwell.compress.base import Strategy

STRATEGIES = {
    "auto": "upwell.compress.strategies:auto",
    "none": "upwell.compress.strategies:pass_through",
    "truncate": "upwell.compress.strategies:truncate",
    "hybrid": "upwell.compress.strategies:hybrid",
    "selective": "upwell.compress.selective:selective",
    "progressive": "upwell.compress.progressive:progressive",
    "extract_fields": "upwell.compress.strategies:extract_fields",
    "schema_pruning": "upwell.compress.strategies:schema_pruning",
    "skeleton": "upwell.compress.strategies:skeleton",
    "llm_summary": "upwell.compress.strategies:llm_summary",
}
"""Maps the name of each strategy to its function, as `module:function`."""


def load(name: str) -> "Strategy":
    """Import the strategy called `name`.

    Raises:
        UsageError: no strategy has this name; the hint suggests the nearest one or lists all.
    """
    check(name)
    return _function_at(STRATEGIES[name])


@lru_cache
def _function_at(place: str) -> "Strategy":
    from pkgutil import resolve_name

    strategy: Strategy = resolve_name(place)
    return strategy


def check(name: str) -> None:
    """Check that a strategy has this name.

    Raises:
        UsageError: no strategy has this name; the hint suggests the nearest one or lists all.
    """
    if name in STRATEGIES:
        return
    from difflib import get_close_matches

    from upwell.ground.errors import UsageError

    nearest = get_close_matches(name, STRATEGIES, 1, 0.4)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(STRATEGIES)}"
    raise UsageError(f"no compression strategy is called {name!r}", hint=hint)
