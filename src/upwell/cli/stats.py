"""The commands `stats`, `stats gain|tune`, `explain`, `feedback` and `dashboard`."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import click

from upwell.cli.command import Argument, Group, Option
from upwell.cli.output import Days, Json, Session, Since, days_since, note, say, say_json, table
from upwell.cli.session import run, with_memory
from upwell.ground.errors import StoreError, UsageError
from upwell.ground.names import memory_id as id_in
from upwell.ground.text.words import bar, iso
from upwell.ground.types.cue import Feedback, Rating

if TYPE_CHECKING:
    from upwell.app.memory import MemoryApp
    from upwell.usage.events import Count

SHOWN_EVENTS = 20


def feedback(
    surfacing: Annotated[str, Argument(metavar="SURFACING", help="A surfacing id, s_….")],
    rating: Annotated[str, Argument(metavar="RATING", help=" · ".join(Rating))],
    memory: Annotated[
        str | None, Option(help="Rate only this memory. Default: all of them.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Rate a surfacing. Ratings change what upwell says next."""
    from upwell.tools.feedback import noted

    if rating not in list(Rating):
        raise UsageError(f"{rating!r} is not a rating", hint=f"one of {', '.join(Rating)}")
    rating_of_surfacing = Feedback(
        surfacing_id=surfacing,
        rating=Rating(rating),
        memory_id=id_in(memory) if memory else None,
    )
    rated = with_memory(lambda app: app.surfacer.ratings.rate(rating_of_surfacing))
    if as_json:
        say_json(
            {
                "surfacing_id": surfacing,
                "rating": rating,
                "memories": [item.memory for item in rated],
                "tool": rated[0].tool if rated else None,
            }
        )
    else:
        say(noted(rated))


def tune(
    apply: Annotated[
        bool,
        Option("--apply", help="Apply the learned values now, even in running sessions."),
    ] = False,
    reset: Annotated[bool, Option("--reset", help="Forget everything learned.")] = False,
    memory: Annotated[
        str | None, Option(help="With --reset: forget only the ratings of this memory.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what upwell learned for each tool. Lists the score that a memory needs, the budget for
    results, content that agents missed, and memories that are no longer offered."""
    from upwell.surface.render import harmless_line

    if memory and not reset:
        raise UsageError("--memory needs --reset", hint="upwell stats tune --reset --memory ID")
    if reset:
        memory_id = id_in(memory) if memory else None
        removed = with_memory(lambda app: _reset(app, memory_id))
        say(f"forgot {removed} ratings, observations and counts")
        return

    learned = with_memory(lambda app: _learned(app, apply=apply))
    if apply:
        note(
            "upwell: running sessions pick up budgets within a minute, thresholds at the next call"
        )
    if as_json:
        say_json(learned)
        return
    rows = [
        {
            "tool": threshold["tool"],
            "min_score": f"{threshold['min_score']:.2f}",
            "suggested": f"{threshold['suggested']:.2f}",
            "samples": threshold["samples"],
            "why": threshold["why"],
            "budget": f"x {threshold['budget_ratio']:.2f}",
        }
        for threshold in learned["tools"]
    ]
    columns = ("tool", "min_score", "suggested", "samples", "why", "budget")
    table(columns, rows, "Nothing learned yet.")
    for row in learned["tools"]:
        for missed in row["missing"]:
            note(
                f"upwell: missed in results of {row['tool']} ({missed['kind']}): "
                f"{harmless_line(missed['text'])}"
            )
    for row in learned["demoted"]:
        note(f"upwell: {row['id']} is no longer offered: {row['negatives']:g} negative ratings")


async def _reset(app: "MemoryApp", memory: str | None) -> int:
    removed = await app.learning.learned.reset(memory)
    if memory and not removed and await app.memory.get(memory) is None:
        raise StoreError(
            f"no memory {memory!r}", hint="`upwell stats tune` and `upwell recall` show ids"
        )
    return removed if memory else removed + await app.budgets.forget()


async def _learned(app: "MemoryApp", *, apply: bool) -> dict[str, Any]:
    from upwell.app.reporting import learned

    if apply:
        await app.budgets.ask()
        await app.learning.learned.apply()
    if not app.config.learn.auto_tune:
        note("upwell: learn.auto_tune is off: none of this is in use")
    return await learned(app)


def explain(
    id: Annotated[
        str | None,
        Argument(metavar="ID", help="Only this decision, or those about this memory."),
    ] = None,
    number: Annotated[int, Option("-n", min=1, help="Number of decisions.")] = 20,
    session: Session = None,
    follow: Annotated[
        bool, Option("--follow", help="Watch calls, prompts and decisions. Ctrl-C stops it.")
    ] = False,
    host: Annotated[str | None, Option(help="With --follow: only this agent.")] = None,
    tool: Annotated[str | None, Option(help="With --follow: only this tool.")] = None,
    file: Annotated[
        str | None, Option(help="With --follow: only files whose path contains this text.")
    ] = None,
    spoke: Annotated[
        bool,
        Option("--spoke", help="With --follow: only events with a memory or a shortened result."),
    ] = False,
    once: Annotated[
        bool, Option("--once", help="With --follow: print the latest events and stop.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show why upwell spoke or stayed silent: one decision a line, newest last."""
    given = {"host": host, "tool": tool, "file": file, "spoke": "1" if spoke else None}
    filters = {name: value for name, value in given.items() if value}
    if follow:
        if id:
            raise UsageError("--follow takes no id")
        if session:
            filters["session"] = session
        follow_decisions(filters, once=once, as_json=as_json)
        return
    if filters or once:
        raise UsageError("--host, --tool, --file, --spoke and --once need --follow")
    from upwell.app.reporting import accounts
    from upwell.usage.events import MAX_EVENTS

    async def work(app: "MemoryApp") -> "list[tuple[Mapping[str, Any], list[str]]]":
        recent = await app.decisions(number if id is None else MAX_EVENTS, session)
        return await accounts(app, _about(id, recent)[-number:])

    explained = with_memory(work)
    if as_json:
        say_json({"decisions": [decision for decision, _ in explained]})
        return
    if not explained:
        note(f"No decision is about {id!r}." if id else "No decisions yet.")
    for decision, (head, *rest) in explained:
        say(f"{iso(decision['at'])} {head}")
        for line in rest:
            say(line)


def _about(id: str | None, decisions: "list[dict[str, Any]]") -> "list[dict[str, Any]]":
    """The decision with this id, or those that showed or held back this memory."""
    if id is None:
        return decisions
    return [
        decision
        for decision in decisions
        if id == decision["id"]
        or any(id == one[0] for one in (*decision["memories"], *decision["held_back"]))
    ]


def follow_decisions(filters: Mapping[str, str], *, once: bool, as_json: bool) -> None:
    """Print the latest events that pass the filters and, unless `once`, new ones as they happen."""
    import time

    from upwell.app.reporting import events, following

    async def work(app: "MemoryApp") -> None:
        latest = await events(app, filters, SHOWN_EVENTS)
        _show(reversed(latest), as_json=as_json)
        if once:
            if not latest and not as_json:
                note("No events yet.")
            return
        after = max((event["written"] for event in latest), default=time.time())
        async for fresh in following(app, filters, after):
            _show(fresh, as_json=as_json)

    with_memory(work, tolerant=True)


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


MAX_ROWS = 5


def gain(days: Days = 30, since: Since = None, as_json: Json = False) -> None:
    """Show the tokens and the money that upwell saved, net of its cost."""
    from upwell.app.reporting import gain as figures_of
    from upwell.app.reporting import sentence

    days = days if since is None else days_since(since)
    figures = with_memory(lambda app: figures_of(app, days))
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


def shown(
    days: Days = 7,
    since: Since = None,
    by: Annotated[
        str | None, Option(help="Show one row for each project, tool, host or day.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what upwell said and saved, and why it stayed silent."""
    from upwell.app.reporting import demoted, in_words, total
    from upwell.usage.report import described, report, stats_of

    days = days if since is None else days_since(since)
    if by is not None:
        _by(by, days, as_json=as_json)
        return

    async def work(app: "MemoryApp") -> "tuple[Sequence[Count], list[dict[str, Any]]]":
        return await app.learning.counts.since(days), await demoted(app)

    counts, no_longer_said = with_memory(work)
    totals, gained = stats_of(counts), total(counts)
    if as_json:
        say_json({**described(totals, days), "demoted": no_longer_said, "gain": gained})
        return
    for line in report(totals, no_longer_said, days, in_words, gained):
        say(line)


stats = Group("Show what upwell said and saved, and why it stayed silent.", shown)
stats.command("gain")(gain)
stats.command("tune")(tune)


def _by(dimension: str, days: int, *, as_json: bool) -> None:
    from upwell.app.reporting import price_now, rows
    from upwell.usage.report import Dimension

    if dimension not in list(Dimension):
        raise UsageError(f"--by {dimension!r} is unknown", hint=", ".join(Dimension))

    async def read(app: "MemoryApp") -> list[dict[str, Any]]:
        counts = await app.learning.counts.since(days)
        return rows(counts, price_now(app.config), Dimension(dimension))

    found = with_memory(read)
    if as_json:
        say_json({"days": days, "by": dimension, "rows": found})
        return
    columns = ("name", "events", "spoke", "memories", "results", "saved", "net")
    shown = [
        {name: f"{row[name]:,}" if name != "name" else row[name] or "unknown" for name in columns}
        for row in found
    ]
    table(columns, shown, "Nothing counted yet.", has_header=True)


def dashboard(
    port: Annotated[
        int, Option(min=0, max=65_535, help="Port to listen on; 0 takes any free one.")
    ] = 0,
    open_it: Annotated[
        bool, Option("--open/--no-open", help="Open the browser, or only print the address.")
    ] = True,
) -> None:
    """Show decisions, memories and savings in a browser. Ctrl-C stops the server."""
    from upwell.app.dashboard.desk import serve_dashboard

    def opened(address: str) -> None:
        say(address)
        note("upwell: the address contains your token; Ctrl-C stops the server")
        if open_it:
            import webbrowser

            webbrowser.open(address)

    run(serve_dashboard(port, opened))
