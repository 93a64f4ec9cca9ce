"""How much of a tool's responses to keep, learned from what agents say and do about them.

A ratio multiplies the budget of one tool. It is raised when an agent reports that something was
missing or comes back for the rest, lowered when it reports too much, always within bounds, and
read once at the start of a session: within one the same response gives the same bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from upwell.ground.shelf import Shelf

SHELF_KIND = "compression_feedback"
KEPT_SECONDS = 30 * 86_400.0

LEAST, MOST = 0.5, 3.0
_STEP = 0.15
_FEW = 3
"""Reports below which nothing is changed; one agent's mood is not a tendency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnOptions:
    """`learn.*`: `auto_tune` is the one switch of all tuning; `implicit_signals` of noticing what
    agents make use of."""

    auto_tune: bool = True
    implicit_signals: bool = True


class Report(StrEnum):
    """What an agent says of a shortened response, and what it does."""

    TRUNCATED = "truncated"
    MISSING_EXAMPLE = "missing_example"
    MISSING_METADATA = "missing_metadata"
    WRONG_TOPIC = "wrong_topic"
    TOO_LONG = "too_long"
    OTHER = "other"
    CAME_BACK = "came_back"
    """It fetched the rest by `read_more`, `select_sections` or `search_original`."""
    SERVED = "served"
    """A shortened response was delivered."""


_SAYS_TOO_LITTLE = (Report.TRUNCATED, Report.MISSING_EXAMPLE, Report.MISSING_METADATA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """What was learned of one tool: `ratio` to multiply its budget with, from `samples` reports."""

    tool: str
    ratio: float
    samples: int


def ratio_of(tool: str, counts: Mapping[str, int]) -> Ratio:
    """The ratio that follows from how often each `Report` was made of `tool`.

    Each net report of too little raises it by 15 %, of too much lowers it likewise. Coming back
    counts a third of a report, and only as far as it happens more often than one time in five.
    """
    little = sum(counts.get(kind, 0) for kind in _SAYS_TOO_LITTLE)
    much = counts.get(Report.TOO_LONG, 0)
    back = max(0.0, counts.get(Report.CAME_BACK, 0) - counts.get(Report.SERVED, 0) / 5)
    samples = little + much + counts.get(Report.CAME_BACK, 0)
    if samples < _FEW:
        return Ratio(tool=tool, ratio=1.0, samples=samples)
    net = little - much + back / 3
    return Ratio(tool=tool, ratio=min(MOST, max(LEAST, (1.0 + _STEP) ** net)), samples=samples)


async def record(shelf: Shelf, tool: str, report: Report) -> None:
    """Count one report of `tool` (its name as `server__tool`)."""
    await shelf.incr(SHELF_KIND, {f"{tool}|{report}": 1}, ttl_seconds=KEPT_SECONDS)


async def ratios(shelf: Shelf) -> list[Ratio]:
    """What was learned of every tool that was reported on, by name."""
    counts: dict[str, dict[str, int]] = {}
    for item in await shelf.scan(SHELF_KIND):
        tool, _, report = item.key.rpartition("|")
        counts.setdefault(tool, {})[report] = item.number
    return [ratio_of(tool, counts[tool]) for tool in sorted(counts)]


async def forget(shelf: Shelf) -> int:
    """Forget what was learned. Returns how many counters went."""
    return await shelf.drop(SHELF_KIND)
