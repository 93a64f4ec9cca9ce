"""The savings in tokens and money for `upwell stats` and the dashboard, net of what upwell itself
costs: memories, descriptions of its tools, originals that were read after all, and
the models that judge memories and write lessons."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from upwell.config import Config
from upwell.ground.text.format import counted
from upwell.surface.learning import Learning
from upwell.usage.breakdown import Dimension, UsageMetric, UsageRow, rows_by, whole
from upwell.usage.counts import Count, CountedEvent
from upwell.usage.prices import Price, price_of

_MODELS = {CountedEvent.JUDGE: "judge_tokens", CountedEvent.LESSON: "lesson_tokens"}
_MILLIONTHS = "millionths"
Models = Mapping[str, Counter[tuple[CountedEvent, str]]]
"""For each day, the tokens of each kind of question to a model, and their price."""


async def gain(learning: Learning, config: Config, days: int) -> dict[str, Any]:
    """The totals of the last `days` days, including today: `upwell stats gain --json`.

    Raises:
        StoreError: `ledger.db` cannot be read.
    """
    counts = await learning.counts.since(days)
    price = price_now(config)
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
    return _described(whole(counts), price, asked)


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
    return [_described(row, price, models.get(row.name, Counter())) for row in found]


def _models(counts: Iterable[Count]) -> Models:
    models: defaultdict[str, Counter[tuple[CountedEvent, str]]] = defaultdict(Counter)
    for entry in counts:
        if entry.event in _MODELS and entry.kind in ("tokens_in", "tokens_out", _MILLIONTHS):
            kind = _MILLIONTHS if entry.kind == _MILLIONTHS else "tokens"
            models[entry.day][entry.event, kind] += entry.number
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


def _described(
    row: UsageRow, price: Price | None, models: Counter[tuple[CountedEvent, str]]
) -> dict[str, Any]:
    events = row[UsageMetric.EVENTS]
    tokens = {name: models[event, "tokens"] for event, name in _MODELS.items()}
    return {
        **row.described(),
        **tokens,
        "net": row.net - sum(tokens.values()),
        "per_100": round(100 * row[UsageMetric.MEMORIES] / events, 2) if events else 0.0,
        "money": None if price is None else round(price.of(row.net) - _cost(models, price), 4),
    }


def _cost(models: Counter[tuple[CountedEvent, str]], price: Price) -> float:
    """What the models cost. Tokens of an unknown price are counted at the price of the agent."""
    return sum(
        models[event, _MILLIONTHS] / 1_000_000 or price.of(models[event, "tokens"])
        for event in _MODELS
    )
