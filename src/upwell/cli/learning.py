"""feedback · tune · explain: what was said of surfacings, what was learned of it, and why."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from upwell.cli.output import Json, note, say, say_json, table
from upwell.cli.session import with_app
from upwell.ground.errors import StoreError, UsageError
from upwell.ground.names import memory_id as id_in
from upwell.ground.text.times import iso
from upwell.ground.types import Feedback, Rating

if TYPE_CHECKING:
    from upwell.app import App


def register(app: typer.Typer) -> None:
    for verb in (feedback, tune, explain):
        app.command()(verb)


def feedback(
    surfacing: Annotated[str, typer.Argument(metavar="SURFACING", help="Its id, s_….")],
    rating: Annotated[str, typer.Argument(metavar="RATING", help=" · ".join(Rating))],
    memory: Annotated[
        str | None, typer.Option(help="One memory of it; all of them without.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say whether what was said was worth it. What is shown follows."""
    from upwell.tools.feedback import noted

    if rating not in list(Rating):
        raise UsageError(f"{rating!r} is not a rating", hint=f"one of {', '.join(Rating)}")
    said = Feedback(
        surfacing_id=surfacing,
        rating=Rating(rating),
        memory_id=id_in(memory) if memory else None,
    )
    rated = with_app(lambda app: app.surfacer.rate(said))
    if as_json:
        say_json(
            {
                "surfacing_id": surfacing,
                "rating": rating,
                "memories": [one.memory for one in rated],
                "tool": rated[0].tool if rated else None,
            }
        )
    else:
        say(noted(rated, said.rating))


def tune(
    apply: Annotated[
        bool, typer.Option("--apply", help="Use it at once, in the sessions that run now, too.")
    ] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Forget what was learned.")] = False,
    memory: Annotated[
        str | None, typer.Option(help="With --reset: only what stands against this memory.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what was learned of each tool. How sure surfacing must be beside it, how much of its
    results is kept, what agents say was missing; and which memories are not offered any more."""
    from upwell.surface.frame import harmless_line

    if memory and not reset:
        raise UsageError("--memory goes with --reset", hint="upwell tune --reset --memory ID")
    if reset:
        named = id_in(memory) if memory else None
        gone = with_app(lambda app: _reset(app, named))
        say(f"forgot {gone} ratings, observations and counts")
        return
    learned = with_app(lambda app: _learned(app, apply=apply))
    if apply:
        note("upwell: running sessions take budgets up within a minute, thresholds at their calls")
    if as_json:
        say_json(learned)
        return
    rows = [
        {
            "tool": one["tool"],
            "min_score": _number(one["min_score"]),
            "suggested": _number(one["suggested"]),
            "samples": one["samples"],
            "why": one["why"],
            "budget": f"x {one['budget_ratio']:.2f}",
        }
        for one in learned["tools"]
    ]
    columns = ("tool", "min_score", "suggested", "samples", "why", "budget")
    table(columns, rows, "Nothing was learned yet.")
    for one in learned["tools"]:
        for missed in one["missing"]:
            note(
                f"upwell: {one['tool']} lacked ({missed['kind']}): {harmless_line(missed['text'])}"
            )
    for one in learned["demoted"]:
        note(f"upwell: {one['id']} is not offered any more: {one['negatives']:g} against it")


async def _reset(app: "App", memory: str | None) -> int:
    gone = await app.lessons.learned.reset(memory)
    if memory and not gone and await app.memory.get(memory) is None:
        raise StoreError(f"no memory {memory!r}", hint="`upwell tune` and `upwell recall` show ids")
    return gone if memory else gone + await app.budgets.forget()


async def _learned(app: "App", *, apply: bool) -> dict[str, Any]:
    """What is in use and what the evidence suggests, by tool."""
    from upwell.app.overview import demoted

    if apply:
        await app.budgets.ask()
        await app.lessons.learned.apply()
    if not app.config.learn.auto_tune:
        note("upwell: learn.auto_tune is off: nothing of this is in use")
    thresholds = {one.tool: one for one in await app.lessons.learned.thresholds()}
    budgets = {one.tool: one for one in await app.budgets.learned()}
    missed = await app.budgets.missed()
    tools: list[dict[str, Any]] = []
    for tool in sorted({*thresholds, *budgets, *missed}):
        known, budget = thresholds.get(tool), budgets.get(tool)
        base = app.lessons.learned.min_score(tool)
        tools.append(
            {
                "tool": tool,
                "min_score": round(known.min_score if known else base, 4),
                "suggested": round(known.suggested if known else base, 4),
                "samples": known.samples if known else 0,
                "why": known.why if known else "no surfacing was rated",
                "budget_ratio": budget.ratio if budget else 1.0,
                "budget_samples": budget.samples if budget else 0,
                "missing": [
                    {"at": iso(one.at), "kind": one.kind, "text": one.text}
                    for one in missed.get(tool, ())
                ],
            }
        )
    return {"tools": tools, "demoted": await demoted(app)}


def explain(
    number: Annotated[int, typer.Option("-n", min=1, help="How many of the latest.")] = 20,
    session: Annotated[str | None, typer.Option(help="Only this session.")] = None,
    as_json: Json = False,
) -> None:
    """Tell why upwell spoke or kept silent lately. Call by call, the newest last."""
    from upwell.app.overview import accounts, decisions

    async def work(app: "App") -> "list[tuple[Mapping[str, Any], list[str]]]":
        return await accounts(app, await decisions(app, number, session))

    kept = with_app(work)
    if as_json:
        say_json({"decisions": [one for one, _ in kept]})
        return
    if not kept:
        note("Nothing was decided yet.")
    for one, (head, *rest) in kept:
        say(f"{iso(one['at'])} {head}")
        for line in rest:
            say(line)


def _number(value: float) -> str:
    return f"{value:.2f}"
