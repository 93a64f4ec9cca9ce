"""Totals of memories surfaced and tokens saved, by day, host, project and tool."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

from msgspec import Struct, field

from upwell.ground.types.cue import Door
from upwell.usage.counts import Count, CountedEvent


class UsageMetric(StrEnum):
    """The totals. Token counts are estimates from `ground.text.tokens`."""

    EVENTS = "events"
    ASKED = "asked"
    """Explicit questions, such as `upwell context`. They are not included in `SPOKE`."""
    SPOKE = "spoke"
    """Events that made memories surface."""
    MEMORIES = "memories"
    SAID_TOKENS = "said_tokens"
    """Tokens in the memories that surfaced."""
    RESULTS = "results"
    """Results that were shortened."""
    BEFORE = "before"
    AFTER = "after"
    """The token counts of those results, before and after shortening."""
    READ_AGAIN = "read_again"
    """Tokens of originals that an agent read after it had received the shortened result."""
    TOOL_TOKENS = "tool_tokens"
    """Tokens of the descriptions of upwell's own tools, once for each session that listed them."""


COSTS: Mapping[str, str] = {
    "read_again": "read again",
    "said_tokens": "memories",
    "tool_tokens": "own tools",
    "judge_tokens": "judge",
    "lesson_tokens": "lessons",
}
"""The tokens that upwell itself costs, and their short names. Those of the judge and of the model
that writes lessons are counted in `counts.py`."""


class Dimension(StrEnum):
    """The dimensions by which totals are grouped."""

    DAY = "day"
    HOST = "host"
    PROJECT = "project"
    TOOL = "tool"


class UsageRow(Struct, frozen=True):
    """The totals for one value of a dimension."""

    name: str
    totals: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, metric: UsageMetric) -> int:
        return self.totals.get(metric, 0)

    @property
    def saved(self) -> int:
        """Tokens that shortening kept out of the context."""
        return self[UsageMetric.BEFORE] - self[UsageMetric.AFTER]

    @property
    def net(self) -> int:
        """`saved` minus the tokens that upwell added to the context."""
        return self.saved - sum(self.totals.get(cost, 0) for cost in COSTS)

    def described(self) -> dict[str, object]:
        """Return the totals as JSON."""
        numbers = {str(metric): self[metric] for metric in UsageMetric}
        return {"name": self.name, **numbers, "saved": self.saved, "net": self.net}


def rows_by(counts: Iterable[Count], dimension: Dimension) -> list[UsageRow]:
    """Add up the totals for each value of a dimension. Days are in chronological order. Other
    values are sorted by tokens saved, in descending order."""
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for count in counts:
        name = getattr(count, dimension)
        if dimension is Dimension.TOOL:
            name = count.tool or count.door
        for metric, number in _metrics_of(count):
            sums[name][metric] += number
    rows = [UsageRow(name, numbers) for name, numbers in sums.items() if any(numbers.values())]
    if dimension is Dimension.DAY:
        return sorted(rows, key=lambda row: row.name)
    return sorted(rows, key=lambda row: (-row.saved, -row[UsageMetric.EVENTS], row.name))


def whole(counts: Iterable[Count]) -> UsageRow:
    """Add up all totals."""
    numbers: Counter[str] = Counter()
    for count in counts:
        for metric, number in _metrics_of(count):
            numbers[metric] += number
    return UsageRow("", numbers)


def _metrics_of(count: Count) -> Iterator[tuple[UsageMetric, int]]:
    number = count.number
    if count.event is CountedEvent.DECISION:
        yield UsageMetric.ASKED if count.door == Door.ASK else UsageMetric.EVENTS, number
        if count.kind == "surfaced" and count.door != Door.ASK:
            yield UsageMetric.SPOKE, number
    elif count.event is CountedEvent.SAID and count.door != Door.ASK:
        is_number = count.kind == "memories"
        yield UsageMetric.MEMORIES if is_number else UsageMetric.SAID_TOKENS, number
    elif count.event is CountedEvent.COMPRESSED and count.kind == "tokens_saved":
        yield UsageMetric.AFTER, -number
    elif count.event is CountedEvent.COMPRESSED and count.kind == "tokens_before":
        yield UsageMetric.BEFORE, number
        yield UsageMetric.AFTER, number
    elif count.event is CountedEvent.COMPRESSED:
        yield UsageMetric.RESULTS, number
    elif count.event in (CountedEvent.READ_AGAIN, CountedEvent.TOOL_TOKENS):
        yield UsageMetric(count.event), number
