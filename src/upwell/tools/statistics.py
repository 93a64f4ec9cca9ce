"""`stats`: what upwell said, saved and learned, for an agent whose user asks."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from upwell.ground.errors import UsageError
from upwell.tools.base import READ_ONLY, Result, Tool, text_result

DEFAULT_DAYS, MAX_DAYS = 7, 90
Report = Callable[[int], Awaitable[Sequence[str]]]
"""The lines of a report on the last days."""


def stats_tool(report: Report) -> Tool:
    """`stats(days?)`: the report of `upwell stats` and the budgets and thresholds of `upwell
    tune`."""

    async def run(args: Mapping[str, Any], session: str) -> Result:
        days = args.get("days", DEFAULT_DAYS)
        if not 1 <= days <= MAX_DAYS:
            raise UsageError(f"days is {days}", hint=f"pass 1 to {MAX_DAYS}")
        return text_result("\n".join(await report(days)))

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
