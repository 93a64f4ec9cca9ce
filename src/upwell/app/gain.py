"""The savings in tokens and money for `upwell gain`, `upwell stats --by` and the dashboard. The
tokens of memories, and of originals that were read after all, are subtracted."""

from collections.abc import Mapping
from typing import Any

from upwell.app.wiring import App
from upwell.ground.text.format import counted
from upwell.usage.breakdown import Dimension, Metric, Row, rows_by, whole
from upwell.usage.prices import Price, price_of


async def gain(app: App, days: int) -> dict[str, Any]:
    """The totals of the last `days` days, including today: `upwell gain --json`.

    Raises:
        StoreError: `ledger.db` cannot be read.
    """
    await app.learning.breakdown.flush()
    totals = await app.learning.breakdown.since(days)
    price = price_now(app)
    total = whole(totals)
    return {
        "days": days,
        "price": price
        and {"per_million": price.per_million, "model": price.model, "as_of": price.as_of},
        "total": _described(total, price),
        **{
            f"by_{dimension}": [_described(row, price) for row in rows_by(totals, dimension)]
            for dimension in Dimension
        },
    }


async def rows(app: App, days: int, dimension: Dimension) -> list[dict[str, Any]]:
    """The totals of each host, project, tool or day: `upwell stats --by --json`.

    Raises:
        StoreError: `ledger.db` cannot be read.
    """
    await app.learning.breakdown.flush()
    totals = await app.learning.breakdown.since(days)
    price = price_now(app)
    return [_described(row, price) for row in rows_by(totals, dimension)]


def price_now(app: App) -> Price | None:
    """The price of the user's model; None if it is unknown."""
    return price_of(app.config.agent.model, app.config.agent.input_price)


def sentence(figures: Mapping[str, Any]) -> str:
    """The gain in one sentence, to share."""
    total = figures["total"]
    if not total["results"]:
        return "Nothing was shortened yet."
    share = f"{100 * total['saved'] / total['before']:.0f} %" if total["before"] else "0 %"
    money = f", about ${total['money']:,.2f}" if total["money"] is not None else ""
    return (
        f"upwell kept {total['net']:,} tokens out of the context in {figures['days']} days{money}: "
        f"{counted(total['results'], 'long result')} became {share} shorter."
    )


def _described(row: Row, price: Price | None) -> dict[str, Any]:
    events = row[Metric.EVENTS]
    return {
        **row.described(),
        "per_100": round(100 * row[Metric.MEMORIES] / events, 2) if events else 0.0,
        "money": None if price is None else round(price.of(row.net), 4),
    }
