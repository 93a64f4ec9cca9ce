"""Adds up the counters of several days."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict

from upwell.ground.types.cue import Door, Rating, SkipReason
from upwell.usage.events import Count, CountedEvent

SURFACED = "surfaced"


class Beside(Struct, frozen=True, kw_only=True):
    """The decisions about calls of one tool, or about other events of one kind (`door`). `tool` is
    "" for events that are not tool calls."""

    door: str
    tool: str
    decisions: int
    surfaced: int
    skips: dict[str, int]


class Saved(Struct, frozen=True, kw_only=True):
    tool: str
    results: int
    tokens_before: int
    tokens_saved: int


class Stats(Struct, frozen=True, kw_only=True):
    """The totals of several days.

    `asked` and `answered` count explicit questions, which do not count as `decisions`. `skips` and
    `ratings` contain all reasons for silence and all ratings, even if their count is 0. `late`
    counts decisions whose memories were not ready for their call, and `offered_late` those whose
    memories were offered with a later call. `missing` maps the name of a store to the number of
    searches in which the store failed. `judge` contains the verdicts of the judge, its tokens and
    their cost, and `lessons` those of the model that writes lessons. `intent_model` counts the
    outcomes of `intent.use_llm`.
    """

    decisions: int
    surfaced: int
    memories: int
    tokens: int
    asked: int
    answered: int
    sessions: int
    used: int
    ignored: int
    late: int
    offered_late: int
    skips: dict[str, int]
    ratings: dict[str, int]
    beside: tuple[Beside, ...]
    saved: tuple[Saved, ...] = ()
    missing: dict[str, int] = field(default_factory=dict)
    per_day: dict[str, int] = field(default_factory=dict)
    judge: Mapping[str, float] = field(default_factory=dict)
    lessons: Mapping[str, float] = field(default_factory=dict)
    intent_model: dict[str, int] = field(default_factory=dict)

    @property
    def said_per_100(self) -> float:
        return 100.0 * self.memories / self.decisions if self.decisions else 0.0

    @property
    def tokens_per_session(self) -> float:
        return self.tokens / self.sessions if self.sessions else 0.0

    @property
    def used_share(self) -> float | None:
        """The share of used memories among those known to be used or ignored, or None if there are
        none."""
        verdicts = self.used + self.ignored
        return self.used / verdicts if verdicts else None

    @property
    def tokens_saved(self) -> int:
        return sum(row.tokens_saved for row in self.saved)

    @property
    def tokens_before(self) -> int:
        return sum(row.tokens_before for row in self.saved)


def stats_of(counts: Sequence[Count]) -> Stats:
    by_event: defaultdict[CountedEvent, list[Count]] = defaultdict(list)
    for each in counts:
        by_event[each.event].append(each)
    totals = {event: _summed(by_event[event]) for event in CountedEvent}
    decided = [count for count in by_event[CountedEvent.DECISION] if count.door != Door.ASK]
    per_day: Counter[str] = Counter()
    for count in decided:
        per_day[count.day] += count.number
    by_kind = _summed(decided)
    said = _summed(count for count in by_event[CountedEvent.SAID] if count.door != Door.ASK)
    explicit = totals[CountedEvent.DECISION] - by_kind
    use, late, rated = (
        totals[event] for event in (CountedEvent.USE, CountedEvent.LATE, CountedEvent.RATING)
    )
    return Stats(
        decisions=sum(by_kind.values()),
        surfaced=by_kind[SURFACED],
        memories=said["memories"],
        tokens=said["tokens"],
        asked=sum(explicit.values()),
        answered=explicit[SURFACED],
        sessions=len(totals[CountedEvent.SESSION]),
        used=use["used"],
        ignored=use["ignored"],
        late=late["missed"],
        offered_late=late["offered"],
        skips={str(reason): by_kind[str(reason)] for reason in SkipReason},
        ratings={str(rating): rated[str(rating)] for rating in Rating},
        beside=tuple(_beside(decided)),
        saved=tuple(_saved(by_event[CountedEvent.COMPRESSED])),
        missing=dict(totals[CountedEvent.MISSING]),
        per_day=dict(sorted(per_day.items())),
        intent_model=dict(totals[CountedEvent.INTENT]),
        judge=judge_totals(totals[CountedEvent.JUDGE]),
        lessons=lesson_totals(totals[CountedEvent.LESSON]),
    )


def described(stats: Stats, days: int) -> dict[str, Any]:
    return {
        "days": days,
        "decisions": stats.decisions,
        "surfaced": stats.surfaced,
        "memories": stats.memories,
        "tokens": stats.tokens,
        "asked": stats.asked,
        "answered": stats.answered,
        "sessions": stats.sessions,
        "said_per_100": round(stats.said_per_100, 2),
        "tokens_per_session": round(stats.tokens_per_session, 1),
        "used_share": None if stats.used_share is None else round(stats.used_share, 4),
        "used": stats.used,
        "ignored": stats.ignored,
        "late": stats.late,
        "offered_late": stats.offered_late,
        "skips": stats.skips,
        "missing": stats.missing,
        "feedback": stats.ratings,
        "beside": [asdict(row) for row in stats.beside],
        "compression": {
            "results": sum(row.results for row in stats.saved),
            "tokens_before": stats.tokens_before,
            "tokens_saved": stats.tokens_saved,
            "tools": [asdict(row) for row in stats.saved],
        },
        "judge": dict(stats.judge),
        "lessons": dict(stats.lessons),
        "intent_model": stats.intent_model,
        "per_day": stats.per_day,
    }


def _summed(counts: Iterable[Count]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for count in counts:
        totals[count.kind] += count.number
    return totals


def _beside(decided: Sequence[Count]) -> list[Beside]:
    by_place: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for count in decided:
        by_place[count.door, count.tool][count.kind] += count.number
    rows = [
        Beside(
            door=door,
            tool=tool,
            decisions=sum(kinds.values()),
            surfaced=kinds.pop(SURFACED, 0),
            skips={kind: number for kind, number in kinds.most_common() if number},
        )
        for (door, tool), kinds in by_place.items()
    ]
    return sorted(rows, key=lambda row: (-row.decisions, row.door, row.tool))


def _saved(counts: Sequence[Count]) -> list[Saved]:
    by_tool: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for count in counts:
        by_tool[count.tool][count.kind] += count.number
    names = ("results", "tokens_before", "tokens_saved")
    rows = [
        Saved(tool=tool, **{name: kinds[name] for name in names}) for tool, kinds in by_tool.items()
    ]
    return sorted(rows, key=lambda row: (-row.tokens_saved, row.tool))


def judge_totals(by_kind: Mapping[str, int]) -> dict[str, float]:
    """`failed` includes unusable verdicts."""
    kinds = Counter(by_kind)
    kinds["failed"] += kinds["unusable"]
    names = ("asked", "chosen", "nothing", "failed", "late", "cached", "capped")
    return {**{name: kinds[name] for name in names}, **_spent(kinds)}


def _spent(kinds: Mapping[str, int]) -> dict[str, float]:
    return {
        "tokens_in": kinds["tokens_in"],
        "tokens_out": kinds["tokens_out"],
        "cost": kinds["millionths"] / 1_000_000,
    }


def lesson_totals(by_kind: Mapping[str, int]) -> dict[str, float]:
    """`dropped` counts the lessons that did not pass."""
    kinds = Counter(by_kind)
    names = ("asked", "failed", "kept", "replaced", "taken_back", "confirmed")
    return {
        **{name: float(kinds[name]) for name in names},
        "dropped": sum(n for kind, n in kinds.items() if kind.startswith("dropped_")),
        **_spent(kinds),
    }
