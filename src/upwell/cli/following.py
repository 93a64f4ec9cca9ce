"""`upwell explain --follow`: calls, prompts and decisions as they happen."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from upwell.cli.output import note, say
from upwell.cli.session import with_learning

if TYPE_CHECKING:
    from upwell.app.surfacing import LearningApp

SHOWN_EVENTS = 20


def follow(filters: Mapping[str, str], *, once: bool, as_json: bool) -> None:
    """Print the latest events that pass the filters and, unless `once`, new ones as they happen."""
    with_learning(
        lambda app: _watch(app, filters, follows=not once, as_json=as_json), tolerant=True
    )


async def _watch(
    app: "LearningApp", filters: Mapping[str, str], *, follows: bool, as_json: bool
) -> None:
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
