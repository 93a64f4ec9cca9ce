"""The knobs of surfacing. Names and defaults are those of the seeds (000, 003, 004)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from upwell.ground.settings import MOST
from upwell.ground.text.lexicon import Lexicon, shipped
from upwell.ground.types import Cue, IntentKind

Weight = Annotated[float, Meta(gt=0, le=MOST)]
Weights = Mapping[IntentKind, Mapping[str, Weight]]
"""By what factor memories of a namespace come sooner, by intent and namespace."""

NAMESPACE_WEIGHTS: Weights = {
    IntentKind.HOWTO: {"patterns": 1.5, "learnings": 1.3},
    IntentKind.TROUBLESHOOT: {"blockers": 1.5, "learnings": 1.3},
    IntentKind.LOCATION: {"decisions": 1.5, "context": 1.3},
    IntentKind.EXPLANATION: {"decisions": 1.5, "context": 1.3},
    IntentKind.COMPARISON: {"decisions": 1.5, "patterns": 1.3},
}
"""ADR-002, and its sequel for comparisons (DESIGN 4.8); everything else weighs 1."""


class InjectionMode(StrEnum):
    APPEND = "append"
    PREPEND = "prepend"
    SECTION = "section"


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfaceOptions:
    """`surface.*`. `templates` map a tool pattern to a query with `{argument}` places. An intent
    that `namespace_weights` does not name keeps its table of `NAMESPACE_WEIGHTS`."""

    enabled: bool = True
    injection_mode: InjectionMode = InjectionMode.APPEND
    max_injection_chars: int = 3000
    max_tokens: int = 4000
    max_count: int = 15
    tool_count: int = 3
    preview_chars: int = 200
    session_max_bytes: int = 1200
    timeout_seconds: float = 3.0
    race_ms: int = 300
    rate_per_minute: int = 15
    cooldown_seconds: float = 5.0
    cooldown_similarity: float = 0.95
    dedup_ttl_seconds: float = 604_800.0
    circuit_max_failures: int = 3
    circuit_reset_seconds: float = 60.0
    min_score: float = 0.5
    min_response_chars: int = 0
    exclude_tools: tuple[str, ...] = ()
    templates: Mapping[str, str] = field(default_factory=dict)
    namespace_weights: Weights = field(default_factory=dict)
    multi_match_boost: float = 1.15
    feedback_demotion_negative_threshold: int = 3
    query_retention_days: float = 30.0
    persist_query_text: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "namespace_weights", {**NAMESPACE_WEIGHTS, **self.namespace_weights}
        )


_SCALES: Mapping[str, Mapping[str, int]] = {
    "small": {"max_injection_chars": 1500, "max_tokens": 1500, "max_count": 5, "tool_count": 2},
    "large": {"max_injection_chars": 4500, "max_tokens": 6000, "max_count": 20, "tool_count": 5},
}


def scaled_to(size: str) -> Mapping[str, int]:
    """Sizes of injections for a `small` or `large` window (seed 000); none for the default."""
    return _SCALES.get(size, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentOptions:
    """`intent.*` (seed 004). `use_llm` asks the model of `llm.*` about prompts as well."""

    min_confidence: float = 0.5
    required: bool = False
    use_llm: bool = False
    llm_timeout_ms: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextOptions:
    """`memory_context.*` (seed 003)."""

    enabled: bool = True
    max_results: int = 4
    include_recency: bool = True
    half_life_days: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything the pipeline obeys. `of_cue` gives what holds beside a tool (None: a message) in a
    window of so many tokens (None: the usual one), beside which `surface` holds for the session
    as a whole and for every other cue."""

    surface: SurfaceOptions = field(default_factory=SurfaceOptions)
    intent: IntentOptions = field(default_factory=IntentOptions)
    memory_context: ContextOptions = field(default_factory=ContextOptions)
    lexicon: Lexicon = field(default_factory=shipped)
    of_cue: Callable[[str | None, int | None], SurfaceOptions] | None = None

    def beside(self, cue: Cue) -> "Options":
        """What holds for this cue: its tool's own (`server__tool`, or as its host calls it), in
        sizes of its window."""
        if self.of_cue is None or (cue.tool is None and cue.window is None):
            return self
        surface = self.of_cue(cue.tool, cue.window)
        return self if surface is self.surface else replace(self, surface=surface)
