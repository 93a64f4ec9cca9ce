"""The list of strategies, and `compress.*` in `config.toml`. Importing this is cheap, because each
strategy is imported only when first used.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from upwell.ground.settings import CHOICES

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
    from pkgutil import resolve_name

    strategy: Strategy = resolve_name(STRATEGIES[name])
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


NOT_PER_TOOL = frozenset({"original_ttl_seconds"})
"""All originals are stored together, so this setting cannot differ by tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressOptions:
    """The `compress.*` settings. Each key but those in `NOT_PER_TOOL` can also be set per server
    and tool pattern.

    `strategy`: a name in `STRATEGIES`.
    `profile`: how much of a result is delivered if no limit is set. With `balanced`, commands,
    searches and pages get less than other tools. With `lean`, every tool gets half as much. With
    `light`, every tool gets twice the agent's usual budget. Files that the agent reads are not
    affected.
    `max_result_tokens`: soft limit. If only `max_result_chars` is set, tokens are not limited. If
    neither is set, the limit in tokens depends on the kind of tool, on `profile`, and on the
    agent's context window.
    `max_result_chars`: soft limit; None means no limit in characters.
    `min_result_retention`: share of a response that must be delivered if its original is not
    stored, 0..1.
    `llm_timeout_seconds`: how long `llm_summary` waits for the model.
    `original_ttl_seconds`: how long the original of a shortened response can be read after its last
    use.
    """

    strategy: str = field(default="auto", metadata={CHOICES: tuple(STRATEGIES)})
    profile: str = field(default="balanced", metadata={CHOICES: ("light", "balanced", "lean")})
    max_result_tokens: int | None = None
    max_result_chars: int | None = None
    min_result_retention: float = 0.65
    llm_timeout_seconds: float = 60.0
    original_ttl_seconds: float = 86_400.0
