"""The command `stats gain`."""

import sys
from collections.abc import Mapping
from typing import Any

from upwell.cli.output import Json, note, say, say_json
from upwell.cli.parameters import Days, Since
from upwell.cli.session import with_learning
from upwell.cli.times import days_since
from upwell.ground.text.format import bar

MAX_ROWS = 5


def gain(days: Days = 30, since: Since = None, as_json: Json = False) -> None:
    """Show the tokens and the money that upwell saved, net of its cost."""
    from upwell.app.gain import gain as figures_of
    from upwell.app.gain import sentence

    days = days if since is None else days_since(since)
    figures = with_learning(lambda app: figures_of(app.learning, app.config, days))
    if as_json:
        say_json(figures)
        return
    say(sentence(figures))
    if figures["total"]["results"] or figures["total"]["net"]:
        for line in _card(figures):
            say(line)
        if figures["price"] is None and sys.stdout.isatty():
            note("upwell: to see money, set agent.model or agent.input_price")


def _card(figures: Mapping[str, Any]) -> list[str]:
    from upwell.usage.report import balance

    total, price = figures["total"], figures["price"]
    lines = [
        "",
        f"  before       {total['before']:>12,} tokens",
        f"  after        {total['after']:>12,} tokens",
        *balance(total),
    ]
    if price:
        listed = f", listed {price['as_of']}" if price["as_of"] else ""
        model = price["model"] or "your model"
        lines.append(
            f"  worth        ${total['money']:>11,.2f}  (${price['per_million']:g} per million "
            f"input tokens of {model}{listed})"
        )
    for dimension in ("host", "project", "tool"):
        rows = [row for row in figures[f"by_{dimension}"] if row["saved"]][:MAX_ROWS]
        if rows:
            largest = max(row["saved"] for row in rows)
            width = max(len(row["name"] or "unknown") for row in rows)
            lines += ["", f"  By {dimension}"]
            lines += [
                f"  {row['name'] or 'unknown':<{width}}  {bar(row['saved'], largest)} "
                f"{row['saved']:,}"
                for row in rows
            ]
    return lines
