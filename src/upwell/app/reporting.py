"""Statistics, savings, learned values and decisions, for the command line, the dashboard and
upwell's own tool; and the latest events, also as they happen. Savings are net of what upwell itself
costs: memories, descriptions of its tools, originals that were read after all, and the models that
judge memories and write lessons.
"""

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from upwell.app.memory import MemoryApp
from upwell.config import Config
from upwell.ground.text.words import counted, iso
from upwell.ground.types.cue import SkipReason
from upwell.ground.types.memory import Hit
from upwell.surface.explain import REASONS, account_of_past, reason_of, why_shown
from upwell.surface.render import preview
from upwell.tools.recall import entry
from upwell.usage.events import CUT, Count, CountedEvent
from upwell.usage.report import (
    Dimension,
    Price,
    UsageMetric,
    UsageRow,
    described,
    price_of,
    report,
    rows_by,
    stats_of,
    whole,
)

_MODELS = {CountedEvent.JUDGE: "judge_tokens", CountedEvent.LESSON: "lesson_tokens"}
_MILLIONTHS = "millionths"
Models = Mapping[str, Counter[tuple[CountedEvent, str]]]
"""For each day, the tokens of each kind of question to a model, and their price."""


async def gain(app: MemoryApp, days: int) -> dict[str, Any]:
    """The totals of the last `days` days, including today: `upwell stats gain --json`.

    Raises:
        StoreError: `ledger.db` cannot be read.
    """
    counts = await app.learning.counts.since(days)
    price = price_now(app.config)
    return {
        "days": days,
        "price": price
        and {"per_million": price.per_million, "model": price.model, "as_of": price.as_of},
        "total": total(counts, price),
        **{f"by_{dimension}": rows(counts, price, dimension) for dimension in Dimension},
    }


def total(counts: Sequence[Count], price: Price | None = None) -> dict[str, Any]:
    """The sum of everything, less the tokens of all models that upwell asked."""
    asked: Counter[tuple[CountedEvent, str]] = Counter()
    for models in _models(counts).values():
        asked.update(models)
    return _described_usage(whole(counts), price, asked)


def rows(
    counts: Sequence[Count], price: Price | None, dimension: Dimension
) -> list[dict[str, Any]]:
    """The totals of each host, project, tool or day: `upwell stats --by --json`. The tokens of
    models are known only by day."""
    found = rows_by(counts, dimension)
    models: Models = {}
    if dimension is Dimension.DAY:
        models = _models(counts)
        found += [UsageRow(day) for day in models.keys() - {row.name for row in found}]
        found.sort(key=lambda row: row.name)
    return [_described_usage(row, price, models.get(row.name, Counter())) for row in found]


def _models(counts: Iterable[Count]) -> Models:
    models: defaultdict[str, Counter[tuple[CountedEvent, str]]] = defaultdict(Counter)
    for count in counts:
        if count.event in _MODELS and count.kind in ("tokens_in", "tokens_out", _MILLIONTHS):
            kind = _MILLIONTHS if count.kind == _MILLIONTHS else "tokens"
            models[count.day][count.event, kind] += count.number
    return models


def price_now(config: Config) -> Price | None:
    """The price of the user's model; None if it is unknown."""
    return price_of(config.agent.model, config.agent.input_price)


def sentence(figures: Mapping[str, Any]) -> str:
    """The gain in one sentence, to share."""
    total = figures["total"]
    if not total["results"]:
        return "Nothing was shortened yet."
    share = f"{100 * total['saved'] / total['before']:.0f} %" if total["before"] else "0 %"
    long = f"{counted(total['results'], 'long result')} became {share} shorter"
    if total["net"] < 0:
        return (
            f"upwell added {-total['net']:,} tokens more than it saved in {figures['days']} days, "
            f"although {long}."
        )
    money = f", about ${total['money']:,.2f}" if (total["money"] or 0) > 0 else ""
    return (
        f"upwell kept {total['net']:,} tokens out of the context in {figures['days']} days{money}: "
        f"{long}."
    )


def _described_usage(
    row: UsageRow, price: Price | None, models: Counter[tuple[CountedEvent, str]]
) -> dict[str, Any]:
    events = row[UsageMetric.EVENTS]
    tokens = {name: models[event, "tokens"] for event, name in _MODELS.items()}
    money = None
    if price is not None:
        # Tokens of an unknown price are counted at the price of the agent.
        cost = sum(
            models[event, _MILLIONTHS] / 1_000_000 or price.of(models[event, "tokens"])
            for event in _MODELS
        )
        money = round(price.of(row.net) - cost, 4)
    return {
        **row.described(),
        **tokens,
        "net": row.net - sum(tokens.values()),
        "per_100": round(100 * row[UsageMetric.MEMORIES] / events, 2) if events else 0.0,
        "money": money,
    }


async def report_of(app: MemoryApp, days: int) -> list[str]:
    """The lines of `upwell stats` for the last `days` days, with each tool's learned values."""
    counts = await app.learning.counts.since(days)
    lines = report(stats_of(counts), await demoted(app), days, in_words, total(counts))
    lines += [
        f"  {row.tool}: threshold {row.min_score:.2f}, suggested {row.suggested:.2f} ({row.why})"
        for row in await app.learning.learned.thresholds()
        if row.samples
    ]
    lines += [
        f"  {ratio.tool}: budget × {ratio.ratio:.2f} from {ratio.samples} reports"
        for ratio in await app.budgets.learned()
        if ratio.samples
    ]
    return lines


def in_words(code: str) -> str:
    """A reason for silence, in words."""
    return REASONS[SkipReason(code)] if code in list(SkipReason) else code.replace("_", " ")


async def demoted(app: MemoryApp) -> list[dict[str, Any]]:
    """The memories that no longer surface by themselves, worst rated first."""
    demotions = sorted(app.learning.learned.demoted.items(), key=lambda pair: (-pair[1], pair[0]))
    texts = await texts_of(app, [memory_id for memory_id, _ in demotions])
    return [
        {"id": memory_id, "negatives": negatives, "text": texts.get(memory_id, "")}
        for memory_id, negatives in demotions
    ]


async def texts_of(app: MemoryApp, ids: Sequence[str]) -> dict[str, str]:
    """The texts of these memories, keyed by id, excluding deleted ones."""
    found = {memory_id: await app.memory.get(memory_id) for memory_id in dict.fromkeys(ids)}
    return {memory_id: entry.text for memory_id, entry in found.items() if entry}


async def stats(app: MemoryApp, days: int) -> dict[str, Any]:
    """The totals of the last `days` days, including today: `upwell stats --json`."""
    totals = stats_of(await app.learning.counts.since(days))
    return {**described(totals, days), "demoted": await demoted(app)}


async def learned(app: MemoryApp) -> dict[str, Any]:
    """`upwell stats tune --json`: the threshold (in use and suggested) and the budget of each tool,
    and the memories that no longer surface by themselves.

    Raises:
        StoreError: a store cannot be read.
    """
    thresholds = {
        threshold.tool: threshold for threshold in await app.learning.learned.thresholds()
    }
    budgets = {budget.tool: budget for budget in await app.budgets.learned()}
    missed = await app.budgets.missed()
    tools: list[dict[str, Any]] = []
    for tool in sorted({*thresholds, *budgets, *missed}):
        known, budget = thresholds.get(tool), budgets.get(tool)
        base = app.learning.learned.min_score(tool)
        tools.append(
            {
                "tool": tool,
                "min_score": round(known.min_score if known else base, 4),
                "suggested": round(known.suggested if known else base, 4),
                "samples": known.samples if known else 0,
                "why": known.why if known else "no ratings yet",
                "budget_ratio": budget.ratio if budget else 1.0,
                "budget_samples": budget.samples if budget else 0,
                "missing": [
                    {"at": iso(remark.at), "kind": remark.kind, "text": remark.text}
                    for remark in missed.get(tool, ())
                ],
            }
        )
    return {"tools": tools, "demoted": await demoted(app)}


async def accounts(
    app: MemoryApp, recent: Sequence[Mapping[str, Any]]
) -> list[tuple[Mapping[str, Any], list[str]]]:
    """Each decision with its explanation in words."""
    texts = await texts_of(
        app, [memory_id for decision in recent for memory_id, _ in decision["memories"]]
    )
    is_empty = await is_memory_empty(app)
    return [(decision, account_of_past(decision, texts, is_empty=is_empty)) for decision in recent]


async def memories(app: MemoryApp, query: str, limit: int) -> list[dict[str, Any]]:
    """The memories that match `query`, or the newest, like the hits of `upwell recall --json`."""
    if query.strip():
        return [entry(hit) for hit in await app.memory.search(query, limit=limit)]
    return [entry(Hit(memory=memory, score=0.0)) for memory in await app.memory.list(limit=limit)]


async def is_memory_empty(app: MemoryApp) -> bool:
    """True if there are no memories, notes or documents, and no memory server is configured.

    Raises:
        StoreError: the memory cannot be read.
    """
    if app.config.ltm.transport is not None or app.config.ltm.url or app.notes.memories():
        return False
    if await app.memory.list(limit=1):
        return False
    files, _ = await app.documents.catalog.counts()
    return files == 0


EXACT = ("host", "project", "session", "tool")
"""A filter on one of these fields has to match the whole value."""
POLL_SECONDS = 1.0
QUIET_POLLS = 5
_BATCH = 500
_COMMIT_SECONDS = 60.0
_TEXT_CHARS = 300
Shown = dict[str, Any]


async def events(
    app: MemoryApp,
    filters: Mapping[str, str],
    limit: int,
    before: float = math.inf,
    after: float = -math.inf,
) -> list[Shown]:
    """The latest events that match and were written between `after` and `before`, newest first.
    `filters` may contain values for the fields in
    `EXACT`, a part of the `file`, and `spoke`, which selects the events in which a memory surfaced
    or a result was shortened.

    Raises:
        StoreError: the journal cannot be read.
    """
    await app.surfacer.journal.flush()
    await app.cuts.flush()
    rows = await app.events.latest(
        limit,
        before=before,
        after=after,
        matching={name: value for name, value in filters.items() if name in EXACT},
        file=filters.get("file", ""),
        spoke=bool(filters.get("spoke")),
    )
    decisions = [app.surfacer.journal.described(row) for row in rows if row.kind != CUT]
    cuts = [app.cuts.described(row) for row in rows if row.kind == CUT]
    texts = await texts_of(app, [name for item in decisions for name, _ in item["memories"]])
    codes = {decision["outcome"] for decision in decisions}
    is_empty = SkipReason.NO_CANDIDATES in codes and await is_memory_empty(app)
    ratings = await app.learning.learned.ratings_given() if texts else {}
    shown = [_described(decision, texts, ratings, is_empty) for decision in decisions]
    return sorted([*shown, *cuts], key=lambda event: event["at"], reverse=True)


async def following(
    app: MemoryApp, filters: Mapping[str, str], after: float
) -> AsyncIterator[Sequence[Shown]]:
    """Yield matching events written after the time `after`, oldest first, as they arrive. While
    there are none, yield an empty list from time to time. Never ends.

    Raises:
        StoreError: the journal cannot be read.
    """
    quiet, seen = 0, set[tuple[str, float]]()
    while True:
        latest = await events(app, filters, _BATCH, after=after)
        fresh = [event for event in reversed(latest) if _version(event) not in seen]
        seen = {_version(event) for event in latest}
        quiet = 0 if fresh else quiet + 1
        if fresh or quiet >= QUIET_POLLS:
            quiet = 0
            yield fresh
        # Another process may still commit events that it wrote a moment ago.
        after = max([after, *(event["written"] - _COMMIT_SECONDS for event in latest)])
        await asyncio.sleep(POLL_SECONDS)


def _described(
    decision: Mapping[str, Any],
    texts: Mapping[str, str],
    ratings: Mapping[tuple[str, str], str],
    is_empty: bool,
) -> dict[str, Any]:
    evidence = decision["evidence"]
    memories = [
        {
            "id": memory_id,
            "score": score,
            "text": preview(texts[memory_id], (), _TEXT_CHARS) if memory_id in texts else "",
            "why": why_shown(decision, memory_id),
            "is_rule": "pinned" in evidence.get(memory_id, {}),
            "rating": str(ratings.get((decision["id"], memory_id), "")),
        }
        for memory_id, score in decision["memories"]
    ]
    return {
        "kind": "event",
        "id": decision["id"],
        "at": decision["at"],
        "written": decision["written"],
        "host": decision["host"],
        "project": decision["project"],
        "session": decision["session"],
        "trace_id": decision["trace_id"],
        "door": decision["door"],
        "tool": decision["tool"] or decision["door"],
        "file": decision["file"],
        "step": decision["step"],
        "moment": decision["moment"],
        "code": decision["outcome"],
        "is_routine": decision["outcome"] == SkipReason.ROUTINE,
        "reason": "" if memories else reason_of(decision, is_empty=is_empty),
        "memories": memories,
        "tokens": decision["tokens"],
        "took_ms": decision["took_ms"],
    }


def _version(event: Shown) -> tuple[str, float]:
    """Identifies a version of an event. A changed decision is written again under the same id."""
    return event["id"], event["written"]
