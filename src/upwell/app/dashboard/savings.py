"""Savings: tokens and money by host, project, tool and day, and a card to share."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from upwell.app import overview
from upwell.app.gain import gain, sentence
from upwell.app.wiring import App
from upwell.usage.breakdown import COSTS
from upwell.web.dashboard.desk import Fields

SPANS = (1, 7, 30, 90)
MAX_ROWS = 12


def days_in(fields: Fields) -> int:
    """The number of days that the fields ask for; 30 by default."""
    text = fields.get("days", "")
    return int(text) if text.isdigit() and int(text) in SPANS else 30


def _every_day(rows: Sequence[Mapping[str, Any]], days: int) -> list[Mapping[str, Any]]:
    today = datetime.now(UTC).date()
    known = {row["name"]: row for row in rows}
    names = [(today - timedelta(days=back)).isoformat() for back in reversed(range(days))]
    nothing = {"saved": 0, **dict.fromkeys(COSTS, 0)}
    return [known.get(name, {"name": name, **nothing}) for name in names]


def _largest(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    counted = [row for row in rows if row["net"]]
    return sorted(counted, key=lambda row: -abs(row["net"]))[:MAX_ROWS]


async def savings(app: App, fields: Fields) -> Mapping[str, Any]:
    """The gain over a number of days, with the points for a plot, and what shortening would have
    saved in past sessions, until it has saved something."""
    if "detail" in fields:
        return {}
    days = days_in(fields)
    figures = await gain(app.learning, app.config, days)
    shortens = app.config.hook.compress
    is_known = shortens and figures["total"]["results"]
    before = None if is_known else await app.session_capture().past()
    by_day = _every_day(figures["by_day"], days)
    return {
        **figures,
        "before": before if before and before.saved else None,
        "shortens": shortens,
        "stats": await overview.stats(app, days),
        "spans": SPANS,
        "sentence": sentence(figures),
        "tables": [
            (title, _largest(figures[f"by_{name}"]))
            for name, title in (("host", "Agent"), ("project", "Project"), ("tool", "Tool"))
        ],
        "plot": {
            "days": [row["name"] for row in by_day],
            "series": [
                {"label": "saved", "values": [row["saved"] for row in by_day]},
                {
                    "label": "upwell's own cost",
                    "values": [sum(row[cost] for cost in COSTS) for row in by_day],
                },
            ],
        },
    }
