"""Counts what this process has done since it started, for its metrics.

Label values are names from the configuration or from fixed lists. Tenants, principals, sessions and
tools are never labels. The metrics are therefore few and reveal nothing about a tenant to others.
Counting takes about a microsecond and never fails.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

MAX_SERIES = 200
"""The maximum number of label combinations per meter. All others are counted under `OTHER`."""
OTHER = "other"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""The upper bounds of a histogram's buckets."""


class Meter:
    """A counter for each combination of label values. It only goes up."""

    def __init__(self, name: str, help: str, *labels: str) -> None:
        self.name = name
        self.help = help
        self.labels = labels
        self._totals: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}

    def add(self, *values: str, by: float = 1.0) -> None:
        key = _bounded(values, self._totals)
        self._totals[key] = self._totals.get(key, 0.0) + by

    @property
    def totals(self) -> Mapping[tuple[str, ...], float]:
        return dict(self._totals)


class Histogram:
    """Durations in seconds, for each combination of label values."""

    def __init__(self, name: str, help: str, *labels: str) -> None:
        self.name = name
        self.help = help
        self.labels = labels
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, seconds: float, *values: str) -> None:
        key = _bounded(values, self._sums)
        counts = self._counts.setdefault(key, [0] * (len(SECONDS) + 1))
        counts[bisect_left(SECONDS, seconds)] += 1
        self._sums[key] = self._sums.get(key, 0.0) + seconds

    @property
    def totals(self) -> Mapping[tuple[str, ...], tuple[Sequence[int], float]]:
        """How many durations fell into each bucket (the last has no upper bound), and their
        sum."""
        return {key: (tuple(counts), self._sums[key]) for key, counts in self._counts.items()}


def _bounded(values: tuple[str, ...], known: Mapping[tuple[str, ...], object]) -> tuple[str, ...]:
    return values if values in known or len(known) < MAX_SERIES else (OTHER,) * len(values)


CALLS = Meter(
    "upwell_calls_total", "Tool calls to servers, by server and outcome", "server", "outcome"
)
CALL_SECONDS = Histogram(
    "upwell_call_seconds", "Duration of tool calls, including fitting and memories", "server"
)
DECISIONS = Meter(
    "upwell_decisions_total",
    "Decisions, by door and outcome: surfaced, or the reason for surfacing nothing",
    "door",
    "outcome",
)
DECISION_SECONDS = Histogram("upwell_decision_seconds", "Duration of decisions, by door", "door")
MEMORIES = Meter("upwell_memories_delivered_total", "Memories that agents received")
TOKENS_SAVED = Meter("upwell_tokens_saved_total", "Tokens left out by fitting, by server", "server")
DENIALS = Meter("upwell_denials_total", "Requests refused at the door, by HTTP status", "status")
LOSSES = Meter(
    "upwell_database_losses_total", "How often the connection to the team's database was lost"
)

METERS = (CALLS, DECISIONS, MEMORIES, TOKENS_SAVED, DENIALS, LOSSES)
HISTOGRAMS = (CALL_SECONDS, DECISION_SECONDS)
