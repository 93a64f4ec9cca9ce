"""Saying what upwell's work was worth: `feedback` of memories (seed 000), `compression_feedback` of
shortened results (seed 002)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from upwell.ground.names import memory_id as id_in
from upwell.ground.text.counts import counted
from upwell.ground.types import Feedback, Rating
from upwell.learn.feedback import Rated
from upwell.learn.ratios import Report
from upwell.tools.base import WRITES, Result, Tool, text_result

KINDS = tuple(str(report) for report in Report if report not in (Report.CAME_BACK, Report.SERVED))
Recording = Callable[[str, Report, str], Awaitable[None]]
Rate = Callable[[Feedback], Awaitable[Sequence[Rated]]]


def feedback_tool(rate: Rate) -> Tool:
    """`feedback(surfacing_id, rating, memory_id?)`: thresholds and demotions follow."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        named = args.get("memory_id")
        said = await rate(
            Feedback(
                surfacing_id=args["surfacing_id"],
                rating=Rating(args["rating"]),
                memory_id=id_in(named) if named else None,
            )
        )
        return text_result(noted(said, Rating(args["rating"])))

    return Tool(
        name="feedback",
        description=(
            "Say whether surfaced memories were worth it: all of a surfacing (its id stands in the "
            "block of memories), or one of them by its id. What is not relevant or already known "
            "is shown less, what is helpful stays."
        ),
        properties={
            "surfacing_id": {"type": "string"},
            "rating": {"type": "string", "enum": [str(rating) for rating in Rating]},
            "memory_id": {"type": "string", "description": "One memory; all without it."},
        },
        required=("surfacing_id", "rating"),
        annotations=WRITES,
        run=run,
    )


def noted(said: Sequence[Rated], rating: Rating) -> str:
    """One line: what was noted, and beside what."""
    if not said:
        return "nothing to note: that surfacing holds standing rules only"
    count = counted(len(said), "memory", "memories")
    return f"noted {rating} for {count}, surfaced at {said[0].tool}"


def compression_feedback_tool(record: Recording) -> Tool:
    """`compression_feedback(server, tool, kind, missing?)`: changes the tool's budget from the
    next session on, within bounds; what was missing is kept for `upwell tune`."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        tool = f"{args['server']}__{args['tool']}"
        await record(tool, Report(args["kind"]), args.get("missing", ""))
        return text_result(f"noted {args['kind']} for {tool}; it counts from the next session on")

    return Tool(
        name="compression_feedback",
        description=(
            "Say that a shortened result lacked something, or was too long. `server` and `tool` "
            "are the two parts of the tool's name."
        ),
        properties={
            "server": {"type": "string"},
            "tool": {"type": "string"},
            "kind": {"type": "string", "enum": list(KINDS)},
            "missing": {"type": "string", "description": "What was missing, in a few words."},
        },
        required=("server", "tool", "kind"),
        annotations=WRITES,
        run=run,
    )
