"""Feedback of agents: `feedback` on memories, `compression_feedback` on shortened results."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from upwell.ground.text.format import counted
from upwell.ground.types.surfacing import Feedback, Rating
from upwell.ground.uris import memory_id as id_in
from upwell.learn.budgets import Report
from upwell.learn.feedback import Rated
from upwell.tools.base import WRITES, Result, Tool, text_result

KINDS = tuple(str(report) for report in Report if report not in (Report.CAME_BACK, Report.SERVED))
Recording = Callable[[str, Report, str], Awaitable[None]]
Rate = Callable[[Feedback], Awaitable[Sequence[Rated]]]


def feedback_tool(rate: Rate) -> Tool:
    """`feedback(surfacing_id, rating, memory_id?)`: moves thresholds and demotes memories."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        memory_id = args.get("memory_id")
        ratings = await rate(
            Feedback(
                surfacing_id=args["surfacing_id"],
                rating=Rating(args["rating"]),
                memory_id=id_in(memory_id) if memory_id else None,
            )
        )
        return text_result(noted(ratings, Rating(args["rating"])))

    return Tool(
        name="feedback",
        description=(
            "Rate surfaced memories: all of one surfacing, by the id in its block, or a single "
            "memory by its own id. Memories rated not relevant or already known appear less "
            "often; helpful ones stay."
        ),
        properties={
            "surfacing_id": {"type": "string"},
            "rating": {"type": "string", "enum": [str(rating) for rating in Rating]},
            "memory_id": {"type": "string", "description": "A single memory; omit to rate all."},
        },
        required=("surfacing_id", "rating"),
        annotations=WRITES,
        run=run,
    )


def noted(ratings: Sequence[Rated], rating: Rating) -> str:
    """One line: the rating, how many memories it concerns, and where they surfaced."""
    if not ratings:
        return "nothing to rate: that surfacing has only standing rules"
    count = counted(len(ratings), "memory", "memories")
    return f"noted {rating} for {count}, surfaced at {ratings[0].tool}"


def compression_feedback_tool(record: Recording) -> Tool:
    """`compression_feedback(server, tool, kind, missing?)`: changes the tool's budget from the
    next session on, within bounds; `upwell tune` shows the remarks in `missing`."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        tool = f"{args['server']}__{args['tool']}"
        await record(tool, Report(args["kind"]), args.get("missing", ""))
        return text_result(f"noted {args['kind']} for {tool}; it takes effect in the next session")

    return Tool(
        name="compression_feedback",
        description=(
            "Report that a shortened result lacked something or was too long. `server` and `tool` "
            "are the two parts of the tool's name."
        ),
        properties={
            "server": {"type": "string"},
            "tool": {"type": "string"},
            "kind": {"type": "string", "enum": list(KINDS)},
            "missing": {"type": "string", "description": "The missing content, in a few words."},
        },
        required=("server", "tool", "kind"),
        annotations=WRITES,
        run=run,
    )
