"""The options for surfacing, many with names and defaults from the seeds (000, 003, 004)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta

from upwell.ground.settings import MAX_NUMBER
from upwell.ground.text.lexicon import Lexicon, shipped
from upwell.ground.types.cue import PROBE_SESSIONS, Cue, IntentKind, Moment

Weight = Annotated[float, Meta(gt=0, le=MAX_NUMBER)]
Weights = Mapping[IntentKind, Mapping[str, Weight]]
"""Factors that multiply scores for ranking, by intent and namespace."""

NAMESPACE_WEIGHTS: Weights = {
    IntentKind.HOWTO: {"patterns": 1.5, "learnings": 1.3},
    IntentKind.TROUBLESHOOT: {"blockers": 1.5, "learnings": 1.3},
    IntentKind.LOCATION: {"decisions": 1.5, "context": 1.3},
    IntentKind.EXPLANATION: {"decisions": 1.5, "context": 1.3},
    IntentKind.COMPARISON: {"decisions": 1.5, "patterns": 1.3},
}
"""The default weights, from ADR-002. The row for `COMPARISON` is an addition. Every other namespace
has the factor 1."""


TELLING_MOMENTS = tuple(moment for moment in Moment if moment is not Moment.ROUTINE)
"""The default of `surface.moments`: the moments at which upwell may speak unasked."""


class InjectionMode(StrEnum):
    APPEND = "append"
    PREPEND = "prepend"
    SECTION = "section"


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfaceOptions:
    """The `surface.*` settings. `templates` maps a tool pattern to a query with `{argument}`
    placeholders. Intents missing from `namespace_weights` use the weights in `NAMESPACE_WEIGHTS`.
    `moments` lists the moments at which upwell may speak unasked. If it is "all", a search may
    start at any moment, and every kind of memory may surface. With `judge`, the model in
    `llm.*` chooses the memories."""

    enabled: bool = True
    moments: Literal["all"] | tuple[Moment, ...] = TELLING_MOMENTS
    injection_mode: InjectionMode = InjectionMode.APPEND
    max_injection_chars: int = 3000
    max_tokens: int = 4000
    max_count: int = 15
    preview_chars: int = 200
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
    templates: Mapping[str, str] = field(default_factory=dict)
    namespace_weights: Weights = field(default_factory=dict)
    multi_match_boost: float = 1.15
    feedback_demotion_negative_threshold: int = 3
    judge: bool = False
    query_retention_days: float = 30.0
    persist_query_text: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "namespace_weights", {**NAMESPACE_WEIGHTS, **self.namespace_weights}
        )


NOT_PER_TOOL = frozenset(
    {
        "moments",
        "dedup_ttl_seconds",
        "circuit_max_failures",
        "circuit_reset_seconds",
        "templates",
        "feedback_demotion_negative_threshold",
        "judge",
        "query_retention_days",
    }
)
"""Keys of `surface.*` that cannot differ by tool, because they apply to a session, a memory or a
whole home."""

_SCALES: Mapping[str, Mapping[str, int]] = {
    "small": {"max_injection_chars": 1500, "max_tokens": 1500, "max_count": 5},
    "large": {"max_injection_chars": 4500, "max_tokens": 6000, "max_count": 20},
}


def scaled_to(size: str) -> Mapping[str, int]:
    """The limits on injected memories for a `small` or `large` context window; empty for others."""
    return _SCALES.get(size, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions:
    """`calls` is the maximum number of questions per session. `prices` are those of a million input
    and output tokens; 0 means that no cost is counted. With `waits`, every event waits for its
    verdict."""

    calls: int = 40
    prices: tuple[float, float] = (0.0, 0.0)
    waits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentOptions:
    """The `intent.*` settings. With `use_llm`, the model configured in `llm.*` also classifies
    prompts."""

    min_confidence: float = 0.5
    required: bool = False
    use_llm: bool = False
    llm_timeout_ms: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextOptions:
    """The `memory_context.*` settings."""

    enabled: bool = True
    max_results: int = 4
    include_recency: bool = True
    half_life_days: float = 30.0


READ_COMMAND = "upwell read"
"""The command that prints a memory or a result in full. Its argument is the id or the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """Everything that configures the pipeline. `surface` applies to messages and to whole sessions.
    `of_cue` takes a tool (None for a message) and the size of the context window in tokens (None if
    unknown), and returns the options for them. `commands_in` returns the commands in a transcript
    that its session needs again after a compaction."""

    surface: SurfaceOptions = field(default_factory=SurfaceOptions)
    intent: IntentOptions = field(default_factory=IntentOptions)
    memory_context: ContextOptions = field(default_factory=ContextOptions)
    lexicon: Lexicon = field(default_factory=shipped)
    of_cue: Callable[[str | None, int | None], SurfaceOptions] | None = None
    is_paused: Callable[[str], bool] | None = None
    is_excluded: Callable[[str | None], bool] | None = None
    judge: JudgeOptions = field(default_factory=JudgeOptions)
    commands_in: Callable[[str], Sequence[str]] | None = None

    def records(self, cue: Cue) -> bool:
        """True if this cue may be recorded. Test cues from `upwell setup` and cues in an excluded
        project must not be recorded."""
        return not (cue.session.startswith(PROBE_SESSIONS) or self.excludes(cue.cwd))

    def excludes(self, folder: str | None) -> bool:
        """True if the user has excluded this folder."""
        return self.is_excluded is not None and self.is_excluded(folder)

    def pauses(self, session: str) -> bool:
        """True if the user has paused this session."""
        return self.is_paused is not None and self.is_paused(session)

    def for_cue(self, cue: Cue) -> "PipelineOptions":
        """The options for this cue's tool (`server__tool`, or the host's own name for the tool),
        with sizes that suit the context window."""
        if self.of_cue is None or (cue.tool is None and cue.window is None):
            return self
        surface = self.of_cue(cue.tool, cue.window)
        return self if surface is self.surface else replace(self, surface=surface)
