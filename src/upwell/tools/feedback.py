"""Saying what a shortened result lacked: `compression_feedback` (seed 002)."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from upwell.learn.ratios import Report
from upwell.tools.base import Result, Tool, text_result

KINDS = tuple(str(report) for report in Report if report not in (Report.CAME_BACK, Report.SERVED))
Recording = Callable[[str, Report], Awaitable[None]]


def compression_feedback_tool(record: Recording) -> Tool:
    """`compression_feedback(server, tool, kind, missing?)`: changes the tool's budget from the
    next session on, within bounds."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        tool = f"{args['server']}__{args['tool']}"
        await record(tool, Report(args["kind"]))
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
        annotations={"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False},
        run=run,
    )
