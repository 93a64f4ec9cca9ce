"""Durable totals of memories surfaced and tokens saved, by day, host, project and tool.

`counts.py` counts the same events by outcome and by door (prompt, tool call …).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct, field

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.ttl_store import EntryKind, TtlStore
from upwell.usage.daily import DailyNumbers


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


class UsagePlace(Struct, frozen=True):
    """Where something happened. Unknown fields are ""."""

    host: str = ""
    project: str = ""
    tool: str = ""


class Total(Struct, frozen=True):
    """One metric's total for one day and place."""

    day: str
    place: UsagePlace
    metric: UsageMetric
    number: int


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


class Breakdown:
    """The stored totals, and those of this process that are not stored yet."""

    def __init__(self, ttl_store: TtlStore, clock: Clock = SYSTEM_CLOCK) -> None:
        self._numbers = DailyNumbers(ttl_store, EntryKind.USAGE, clock, max_name_chars=300)

    def add(self, place: UsagePlace, **numbers: int) -> None:
        """Add to the totals of a place. The keywords are the names of metrics."""
        for name, number in numbers.items():
            self._numbers.add(place.host, place.project, place.tool, UsageMetric(name), by=number)

    async def flush(self) -> None:
        """Store the pending totals. If the store fails, they are lost."""
        await self._numbers.flush()

    async def since(self, days: int) -> list[Total]:
        """Return all totals from the last `days` days, including today.

        Raises:
            StoreError: the store cannot be read.
        """
        return [
            Total(day, UsagePlace(host, project, tool), UsageMetric(metric), number)
            for day, (host, project, tool, metric), number in await self._numbers.since(days)
            if metric in UsageMetric
        ]


def rows_by(totals: Iterable[Total], dimension: Dimension) -> list[UsageRow]:
    """Add up the totals for each value of a dimension. Days are in chronological order. Other
    values are sorted by tokens saved, in descending order."""
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for total in totals:
        name = total.day if dimension is Dimension.DAY else getattr(total.place, dimension)
        sums[name][total.metric] += total.number
    rows = [UsageRow(name, numbers) for name, numbers in sums.items()]
    if dimension is Dimension.DAY:
        return sorted(rows, key=lambda row: row.name)
    return sorted(rows, key=lambda row: (-row.saved, -row[UsageMetric.EVENTS], row.name))


def whole(totals: Iterable[Total]) -> UsageRow:
    """Add up all totals."""
    numbers: Counter[str] = Counter()
    for total in totals:
        numbers[total.metric] += total.number
    return UsageRow("", numbers)
