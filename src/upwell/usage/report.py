"""Adds up the counters of several days (`stats_of()`, `rows_by()`), knows what tokens cost, and
writes statistics as text for the command line and for agents (`report()`): totals of memories
surfaced and tokens saved, by day, host, project and tool.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict

from upwell.ground.text.words import BAR_CHARS, bar, counted
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
    return {**{name: kinds[name] for name in names}, **_spent_by_kind(kinds)}


def _spent_by_kind(kinds: Mapping[str, int]) -> dict[str, float]:
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
        **_spent_by_kind(kinds),
    }


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
that writes lessons are added in `app/reporting.py`."""


class Dimension(StrEnum):
    DAY = "day"
    HOST = "host"
    PROJECT = "project"
    TOOL = "tool"


class UsageRow(Struct, frozen=True):
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


AS_OF = "2025-11-24"
PRICES: Mapping[str, tuple[float, float]] = {
    "claude-haiku": (1.00, 5.00),
    "claude-3-5-haiku": (0.80, 4.00),
    "claude-sonnet": (3.00, 15.00),
    "claude-opus": (15.00, 75.00),
    "claude-opus-4-5": (5.00, 25.00),
    "gpt-5": (1.25, 10.00),
    "gpt-5-mini": (0.25, 2.00),
    "gpt-4.1": (2.00, 8.00),
    "gpt-4o": (2.50, 10.00),
    "gemini-2.5-pro": (1.25, 10.00),
    "gemini-2.5-flash": (0.30, 2.50),
    "gemini-3-pro": (2.00, 12.00),
}
"""US dollars per million input and output tokens, by prefixes of model names, as listed by the
providers on `AS_OF`, without caching and discounts. The longest matching prefix applies."""
FREE = (0.0, 0.0)
"""The price of a model that is not in the list, such as a local one."""


class Price(Struct, frozen=True):
    """A price in US dollars per million input tokens. `as_of` is the date of the price list, or ""
    for the user's own price."""

    per_million: float
    model: str
    as_of: str

    def of(self, tokens: int) -> float:
        return tokens * self.per_million / 1_000_000


def price_of(model: str, own_price: float = 0.0) -> Price | None:
    """None if unknown. `own_price` is `agent.input_price`, which overrides the table."""
    if own_price:
        return Price(own_price, model, "")
    prices = prices_of(model)
    return Price(prices[0], model, AS_OF) if prices else None


def prices_of(model: str) -> tuple[float, float] | None:
    """The prices of a model's input and output tokens."""
    name = model.lower().rpartition("/")[2]
    known = [prefix for prefix in PRICES if name.startswith(prefix)]
    return PRICES[max(known, key=len)] if known else None


MAX_TOOLS = 12


def report(
    stats: Stats,
    against: Sequence[Mapping[str, Any]],
    days: int,
    in_words: Callable[[str], str],
    gain: Mapping[str, Any],
) -> list[str]:
    """Return the lines of a report. `against` contains the `id` and `text` of each memory that
    no longer surfaces by itself. `in_words()` puts the code of a reason for silence into words.
    `gain` has the tokens saved, upwell's own costs, and the net."""
    since = "today" if days == 1 else f"in {days} days"
    wrote = bool(stats.lessons.get("asked"))
    if not (stats.decisions or stats.asked or stats.saved or wrote):
        return [f"No event from an agent reached upwell {since}. Try `upwell demo`."]
    lines = [
        *_speech(stats, since),
        *_silence(stats, in_words),
        *_tools(stats, in_words),
        *_savings(stats, gain),
    ]
    for memory in against:
        text = " ".join(memory["text"].split())[:60] or "(forgotten)"
        lines.append(f"  demoted    {memory['id']}  {text}")
    if against:
        lines.append("             undo: upwell stats tune --reset --memory ID")
    return lines


def _speech(stats: Stats, since: str) -> list[str]:
    share = stats.used_share
    used = "use not known yet" if share is None else f"{100 * share:.0f} % used"
    lines = [
        _headline(stats, since),
        "",
        f"  said       {counted(stats.memories, 'memory', 'memories')}: "
        f"{stats.used:,} used, {stats.ignored:,} with no evidence of use",
        f"  rate       {stats.said_per_100:.1f} memories per 100 events, "
        f"{stats.tokens_per_session:,.0f} tokens per session, {used}",
    ]
    if stats.asked:
        lines.append(
            f"  asked      {_times(stats.asked)} by a command or a tool, "
            f"answered {_times(stats.answered)}"
        )
    if stats.late:
        lines.append(
            f"  late       {stats.late:,} not ready in time, "
            f"{stats.offered_late:,} of them said at the next call"
        )
    lines += [
        f"  missing    {place} could not be searched {_times(number)}; `upwell doctor` says why"
        for place, number in stats.missing.items()
    ]
    if stats.judge["asked"]:
        lines.append(f"  judge      {judge_line(stats.judge)}")
    if stats.lessons.get("asked"):
        lines.append(f"  lessons    {lessons_line(stats.lessons)}")
    if stats.intent_model:
        outcomes = ", ".join(f"{n:,} {kind}" for kind, n in stats.intent_model.items())
        lines.append(f"  intents    asked the model: {outcomes}")
    rated = [f"{n:,} {name.replace('_', ' ')}" for name, n in stats.ratings.items() if n]
    lines.append(
        f"  feedback   {', '.join(rated) or 'none; rate with `upwell feedback SURFACING RATING`'}"
    )
    return lines


def _headline(stats: Stats, since: str) -> str:
    if not stats.decisions:
        return f"No event from an agent reached upwell {since}."
    if not stats.surfaced:
        return f"upwell looked {_times(stats.decisions)} {since} and never spoke."
    share = _share(stats.surfaced, stats.decisions)
    return (
        f"upwell looked {_times(stats.decisions)} {since} and spoke {_times(stats.surfaced)} "
        f"({share})."
    )


def _spent(model: Mapping[str, float]) -> str:
    cost = f", cost {model['cost']:,.4f}" if model["cost"] else ""
    return f"{model['tokens_in']:,.0f} + {model['tokens_out']:,.0f} tokens{cost}"


def judge_line(judge: Mapping[str, float]) -> str:
    return (
        f"asked {_times(int(judge['asked']))}: {judge['chosen']:,.0f} chosen, "
        f"{judge['nothing']:,.0f} nothing, {judge['failed']:,.0f} failed; {_spent(judge)}"
    )


def lessons_line(lessons: Mapping[str, float]) -> str:
    return (
        f"{counted(int(lessons['asked']), 'session')} read: {lessons['kept']:,.0f} kept, "
        f"{lessons['confirmed']:,.0f} confirmed, {lessons['dropped']:,.0f} dropped, "
        f"{lessons['failed']:,.0f} failed; {_spent(lessons)}"
    )


def _silence(stats: Stats, in_words: Callable[[str], str]) -> list[str]:
    reasons = sorted(((n, in_words(code)) for code, n in stats.skips.items() if n), reverse=True)
    if not reasons:
        return []
    most = reasons[0][0]
    bars = [f"  {bar(n, most):<{BAR_CHARS}} {n:>7,}  {reason}" for n, reason in reasons]
    return ["", "Why it stayed silent", *bars]


def _tools(stats: Stats, in_words: Callable[[str], str]) -> list[str]:
    shown = stats.beside[:MAX_TOOLS]
    if not shown:
        return []
    names = [row.tool or f"({row.door})" for row in shown]
    width = max(map(len, names))
    lines = [
        f"  {name:<{width}}  {row.decisions:>7,} looked  {row.surfaced:>6,} spoke"
        + (f"  mostly: {in_words(next(iter(row.skips)))}" if row.skips else "")
        for name, row in zip(names, shown, strict=True)
    ]
    left = len(stats.beside) - len(shown)
    return ["", "Where", *lines, *([f"  … and {left} more (--json)"] if left else [])]


def _savings(stats: Stats, gain: Mapping[str, Any]) -> list[str]:
    if not stats.saved:
        return [""]
    share = _share(stats.tokens_saved, stats.tokens_before)
    lines = [
        f"  {saving.tool}  {counted(saving.tokens_saved, 'token')} in "
        f"{counted(saving.results, 'result')}"
        for saving in stats.saved[:5]
    ]
    saved = counted(stats.tokens_saved, "token")
    return ["", f"Saved {saved} of long results ({share})", *lines, *balance(gain), ""]


def balance(gain: Mapping[str, Any]) -> list[str]:
    costs = [(name, -gain[key]) for key, name in COSTS.items() if gain[key]]
    rows = [("saved", gain["saved"]), *costs, ("net", gain["net"])]
    return [f"  {name:<12} {tokens:>12,} tokens" for name, tokens in rows]


def _times(number: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number:,} times")


def _share(part: int, total: int) -> str:
    return f"{100 * part / total:.0f} %" if total else "0 %"
