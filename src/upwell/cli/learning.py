"""The commands `feedback`, `stats tune` and `explain`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from upwell.cli.command import Argument, Option
from upwell.cli.output import Json, note, say, say_json, table
from upwell.cli.parameters import Session
from upwell.cli.session import with_learning
from upwell.ground.errors import StoreError, UsageError
from upwell.ground.text.format import iso
from upwell.ground.types.surfacing import Feedback, Rating
from upwell.ground.uris import memory_id as id_in

if TYPE_CHECKING:
    from upwell.app.surfacing import LearningApp


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
    rated = with_learning(lambda app: app.surfacer.ratings.rate(rating_of_surfacing))
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
        removed = with_learning(lambda app: _reset(app, memory_id))
        say(f"forgot {removed} ratings, observations and counts")
        return
    learned = with_learning(lambda app: _learned(app, apply=apply))
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
            "min_score": _number(threshold["min_score"]),
            "suggested": _number(threshold["suggested"]),
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


async def _reset(app: "LearningApp", memory: str | None) -> int:
    removed = await app.learning.learned.reset(memory)
    if memory and not removed and await app.memory.get(memory) is None:
        raise StoreError(
            f"no memory {memory!r}", hint="`upwell stats tune` and `upwell recall` show ids"
        )
    return removed if memory else removed + await app.budgets.forget()


async def _learned(app: "LearningApp", *, apply: bool) -> dict[str, Any]:
    from upwell.app.overview import learned

    if apply:
        await app.budgets.ask()
        await app.learning.learned.apply()
    if not app.config.learn.auto_tune:
        note("upwell: learn.auto_tune is off: none of this is in use")
    return await learned(app)


def explain(
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
        from upwell.cli.following import follow as watch

        if session:
            filters["session"] = session
        watch(filters, once=once, as_json=as_json)
        return
    if filters or once:
        raise UsageError("--host, --tool, --file, --spoke and --once need --follow")
    from upwell.app.overview import accounts, decisions

    async def work(app: "LearningApp") -> "list[tuple[Mapping[str, Any], list[str]]]":
        return await accounts(app, await decisions(app, number, session))

    explained = with_learning(work)
    if as_json:
        say_json({"decisions": [decision for decision, _ in explained]})
        return
    if not explained:
        note("No decisions yet.")
    for decision, (head, *rest) in explained:
        say(f"{iso(decision['at'])} {head}")
        for line in rest:
            say(line)


def _number(value: float) -> str:
    return f"{value:.2f}"
