"""The tools for feedback. Agents use `feedback` to rate memories, and `compression_feedback` to
report on shortened results. `stats` shows what upwell surfaced, saved and learned.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from upwell.ground.errors import UsageError
from upwell.ground.names import memory_id as id_in
from upwell.ground.text.words import counted
from upwell.ground.types.cue import Feedback, Rating
from upwell.learn.budgets import FEW, MOVING, ResultReport
from upwell.learn.feedback import Rated
from upwell.tools.base import READ_ONLY, WRITES, Result, Tool, text_result

KINDS = tuple(
    str(report)
    for report in ResultReport
    if report not in (ResultReport.CAME_BACK, ResultReport.SERVED)
)
Recording = Callable[[str, ResultReport, str], Awaitable[None]]
Rate = Callable[[str, Sequence[Feedback]], Awaitable[Sequence[Rated]]]
Served = Callable[[str, str], str]
"""Returns a tool's full name, `server__tool`, from the two parts of its public name.

Raises:
    UsageError: there is no such tool.
"""
RATINGS = tuple(str(rating) for rating in Rating)
MAX_AT_ONCE = 50
Statistics = Callable[[int], Awaitable[Sequence[str]]]
"""Returns the lines of a report on the given number of days."""
DEFAULT_DAYS, MAX_DAYS = 7, 90


def feedback_tool(rate: Rate) -> Tool:
    """`feedback(surfacing_id, rating?, memory_id?, ratings?)`"""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        surfacing_id = args["surfacing_id"]
        if "ratings" in args:
            if "rating" in args or "memory_id" in args:
                raise UsageError("feedback takes either rating or ratings, not both")
            if len(args["ratings"]) > MAX_AT_ONCE:
                raise UsageError(f"feedback takes at most {MAX_AT_ONCE} ratings at once")
            feedback = [_single(surfacing_id, item) for item in args["ratings"]]
        elif "rating" in args:
            feedback = [_single(surfacing_id, args)]
        else:
            raise UsageError("feedback needs a rating, or ratings of single memories")
        return text_result(noted(await rate(surfacing_id, feedback)))

    return Tool(
        name="feedback",
        description=(
            "Rate surfaced memories. surfacing_id is the id in their block. With rating, rate "
            "all of them, or only memory_id; with ratings, rate several one by one. Memories "
            "rated not relevant or already known appear less often; helpful ones stay."
        ),
        properties={
            "surfacing_id": {"type": "string"},
            "rating": {"type": "string", "enum": list(RATINGS)},
            "memory_id": {"type": "string", "description": "A single memory; omit to rate all."},
            "ratings": {
                "type": "array",
                "description": "Instead of `rating`: a rating for each memory.",
                "items": {
                    "type": "object",
                    "properties": {
                        "memory_id": {"type": "string"},
                        "rating": {"type": "string", "enum": list(RATINGS)},
                    },
                    "required": ["memory_id", "rating"],
                },
            },
        },
        required=("surfacing_id",),
        annotations=WRITES,
        run=run,
    )


def _single(surfacing_id: str, args: object) -> Feedback:
    if not isinstance(args, Mapping) or args.get("rating") not in RATINGS:
        raise UsageError(f"a rating is one of {', '.join(RATINGS)}")
    memory_id = args.get("memory_id")
    if not isinstance(memory_id, str | None) or (memory_id is None and "surfacing_id" not in args):
        raise UsageError("each entry of ratings needs a memory_id")
    return Feedback(
        surfacing_id=surfacing_id,
        rating=Rating(args["rating"]),
        memory_id=id_in(memory_id) if memory_id else None,
    )


def noted(ratings: Sequence[Rated]) -> str:
    if not ratings:
        return "nothing to rate: that surfacing has only standing rules"
    counts = Counter(str(rating.rating) for rating in ratings)
    if len(counts) == 1:
        (rating,) = counts
        count = counted(len(ratings), "memory", "memories")
        return f"noted {rating} for {count}, surfaced at {ratings[0].tool}"
    each = ", ".join(f"{number} {rating}" for rating, number in counts.items())
    return f"noted {each}, surfaced at {ratings[0].tool}"


def compression_feedback_tool(record: Recording, served: Served) -> Tool:
    """`compression_feedback(server, tool, kind?, missing?)`. Once a tool has `FEW` reports of a
    kind in `MOVING`, its budget changes, within bounds, from the next session on. `upwell stats
    tune` shows the remarks in `missing`."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        tool = served(args["server"], args["tool"])
        kind = ResultReport(args.get("kind", ResultReport.OTHER))
        await record(tool, kind, args.get("missing", ""))
        moves = (
            f"after {FEW} such reports, the tool's budget changes from the next session on"
            if kind in MOVING
            else "`upwell stats tune` shows it"
        )
        return text_result(f"noted {kind} for {tool}; {moves}")

    return Tool(
        name="compression_feedback",
        description=(
            "Report that a shortened result lacked something or was too long. `server` and `tool` "
            "are the two parts of the tool's name."
        ),
        properties={
            "server": {"type": "string"},
            "tool": {"type": "string"},
            "kind": {"type": "string", "enum": list(KINDS), "description": "Default other."},
            "missing": {"type": "string", "description": "The missing content, in a few words."},
        },
        required=("server", "tool"),
        annotations=WRITES,
        run=run,
    )


def stats_tool(statistics: Statistics) -> Tool:
    """`stats(days?)`: the report of `upwell stats`, and what `upwell stats tune` shows."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        days = args.get("days", DEFAULT_DAYS)
        if not 1 <= days <= MAX_DAYS:
            raise UsageError(f"days is {days}", hint=f"pass 1 to {MAX_DAYS}")
        return text_result("\n".join(await statistics(days)))

    return Tool(
        name="stats",
        description=(
            "Statistics of upwell, for the user: memories surfaced and used, reasons for silence, "
            "tokens saved, what was learned about each tool."
        ),
        properties={"days": {"type": "integer", "description": f"Default {DEFAULT_DAYS}."}},
        annotations=READ_ONLY,
        run=run,
    )
