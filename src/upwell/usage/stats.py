"""The counters of some days, added up: decisions, reasons for silence, the use of memories, and the
tokens saved."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from upwell.ground.types.surfacing import Rating, SkipReason
from upwell.usage.counts import Count, Event

SURFACED = "surfaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The decisions at one door beside one tool ("" for messages)."""

    door: str
    tool: str
    decisions: int
    surfaced: int
    skips: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The tokens that shortening saved for one tool."""

    tool: str
    results: int
    tokens_before: int
    tokens_saved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """The totals of some days. `skips` has every reason and `ratings` every rating, including those
    with a count of 0; `late` surfacings missed their call, and `offered_late` of them were said at
    the next one."""

    decisions: int
    surfaced: int
    memories: int
    used: int
    ignored: int
    late: int
    offered_late: int
    skips: dict[str, int]
    ratings: dict[str, int]
    beside: tuple[Beside, ...]
    saved: tuple[Saved, ...] = ()
    per_day: dict[str, int] = field(default_factory=dict)

    @property
    def tokens_saved(self) -> int:
        return sum(one.tokens_saved for one in self.saved)

    @property
    def tokens_before(self) -> int:
        return sum(one.tokens_before for one in self.saved)


def stats_of(counts: Sequence[Count]) -> Stats:
    """Add up the counters."""
    decided = [count for count in counts if count.event is Event.DECISION]
    by_kind = _summed(decided)
    use = _summed(count for count in counts if count.event is Event.USE)
    late = _summed(count for count in counts if count.event is Event.LATE)
    rated = _summed(count for count in counts if count.event is Event.RATING)
    return Stats(
        decisions=sum(by_kind.values()),
        surfaced=by_kind[SURFACED],
        memories=sum(count.number for count in counts if count.event is Event.SAID),
        used=use["used"],
        ignored=use["ignored"],
        late=late["missed"],
        offered_late=late["offered"],
        skips={str(reason): by_kind[str(reason)] for reason in SkipReason},
        ratings={str(rating): rated[str(rating)] for rating in Rating},
        beside=tuple(_beside(decided)),
        saved=tuple(_saved([count for count in counts if count.event is Event.COMPRESSED])),
        per_day=_by_day(decided),
    )


def described(found: Stats, days: int) -> dict[str, Any]:
    """The totals as JSON."""
    return {
        "days": days,
        "decisions": found.decisions,
        "surfaced": found.surfaced,
        "memories": found.memories,
        "used": found.used,
        "ignored": found.ignored,
        "late": found.late,
        "offered_late": found.offered_late,
        "skips": found.skips,
        "feedback": found.ratings,
        "beside": [
            {
                "door": one.door,
                "tool": one.tool,
                "decisions": one.decisions,
                "surfaced": one.surfaced,
                "skips": one.skips,
            }
            for one in found.beside
        ],
        "compression": {
            "results": sum(one.results for one in found.saved),
            "tokens_before": found.tokens_before,
            "tokens_saved": found.tokens_saved,
            "tools": [
                {
                    "tool": one.tool,
                    "results": one.results,
                    "tokens_before": one.tokens_before,
                    "tokens_saved": one.tokens_saved,
                }
                for one in found.saved
            ],
        },
        "per_day": found.per_day,
    }


def _summed(counts: Iterable[Count]) -> Counter[str]:
    found: Counter[str] = Counter()
    for count in counts:
        found[count.kind] += count.number
    return found


def _beside(decided: Sequence[Count]) -> list[Beside]:
    """The doors and tools with most decisions first."""
    found: list[Beside] = []
    for door, tool in dict.fromkeys((count.door, count.tool) for count in decided):
        kinds = _summed(c for c in decided if (c.door, c.tool) == (door, tool))
        surfaced = kinds.pop(SURFACED, 0)
        skips = {kind: number for kind, number in kinds.most_common() if number}
        total = surfaced + sum(skips.values())
        found.append(Beside(door=door, tool=tool, decisions=total, surfaced=surfaced, skips=skips))
    return sorted(found, key=lambda one: (-one.decisions, one.door, one.tool))


def _saved(counts: Sequence[Count]) -> list[Saved]:
    found: list[Saved] = []
    for tool in dict.fromkeys(count.tool for count in counts):
        kinds = _summed(count for count in counts if count.tool == tool)
        found.append(
            Saved(
                tool=tool,
                results=kinds["results"],
                tokens_before=kinds["tokens_before"],
                tokens_saved=kinds["tokens_saved"],
            )
        )
    return sorted(found, key=lambda one: (-one.tokens_saved, one.tool))


def _by_day(decided: Iterable[Count]) -> dict[str, int]:
    days: Counter[str] = Counter()
    for count in decided:
        days[count.day] += count.number
    return dict(sorted(days.items()))
