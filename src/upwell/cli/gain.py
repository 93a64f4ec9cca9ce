"""The commands `gain` and `top`."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import click

from upwell.cli.command import Option
from upwell.cli.output import Json, note, say, say_json
from upwell.cli.parameters import Days, Session, Since
from upwell.cli.session import with_app
from upwell.cli.times import days_since
from upwell.ground.text.format import bar

if TYPE_CHECKING:
    from upwell.app import App

MAX_ROWS = 5
SHOWN_EVENTS = 20


def gain(days: Days = 30, since: Since = None, as_json: Json = False) -> None:
    """Show the tokens and the money that upwell saved, net of its cost."""
    from upwell.app.gain import gain as figures_of
    from upwell.app.gain import sentence

    days = days if since is None else days_since(since)
    figures = with_app(lambda app: figures_of(app.learning, app.config, days))
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


def top(
    host: Annotated[str | None, Option(help="Only this agent.")] = None,
    session: Session = None,
    tool: Annotated[str | None, Option(help="Only this tool.")] = None,
    file: Annotated[str | None, Option(help="Only files whose path contains this text.")] = None,
    spoke: Annotated[
        bool, Option("--spoke", help="Only events with a memory or a shortened result.")
    ] = False,
    once: Annotated[bool, Option("--once", help="Print the latest events and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Watch calls, prompts and decisions as they happen. Ctrl-C stops it."""
    given = {"host": host, "session": session, "tool": tool, "file": file}
    filters = {name: value for name, value in given.items() if value}
    if spoke:
        filters["spoke"] = "1"
    with_app(lambda app: _watch(app, filters, follows=not once, as_json=as_json), tolerant=True)


async def _watch(app: "App", filters: Mapping[str, str], *, follows: bool, as_json: bool) -> None:
    import time

    from upwell.app.events import events, following

    latest = await events(app, filters, SHOWN_EVENTS)
    _show(reversed(latest), as_json=as_json)
    if not follows:
        if not latest and not as_json:
            note("No events yet.")
        return
    after = max((event["written"] for event in latest), default=time.time())
    async for fresh in following(app, filters, after):
        _show(fresh, as_json=as_json)


def _show(rows: Any, *, as_json: bool) -> None:
    import json

    for event in rows:
        if as_json:
            click.echo(json.dumps(event))
        else:
            for line in _lines(event):
                say(line)
    sys.stdout.flush()


def _lines(event: Mapping[str, Any]) -> list[str]:
    import os
    import time

    clock = time.strftime("%H:%M:%S", time.localtime(event["at"]))
    about = " ".join(filter(None, (event["file"], event.get("step"))))
    where = " ".join(filter(None, (event["host"], os.path.basename(event["project"]))))
    head = f"{clock}  {where:<20.20}  {event['tool']}  {about}".rstrip()
    if event["kind"] == "shortened":
        return [f"{head}  {event['before']:,} → {event['after']:,} tokens"]
    if not event["memories"]:
        return [f"{head}  · silent: {event['reason']}"]
    return [
        head,
        *(f"          ▸ {memory['text'] or memory['id']}" for memory in event["memories"]),
    ]
