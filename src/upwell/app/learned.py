"""Thresholds and budgets in use, and those that the evidence suggests, for `upwell tune --json` and
the dashboard."""

from typing import Any

from upwell.app.overview import demoted
from upwell.app.wiring import App
from upwell.ground.text.format import iso


async def learned(app: App) -> dict[str, Any]:
    """Thresholds and budgets by tool, and the memories that no longer surface by themselves.

    Raises:
        StoreError: a store cannot be read.
    """
    thresholds = {
        threshold.tool: threshold for threshold in await app.learning.learned.thresholds()
    }
    budgets = {budget.tool: budget for budget in await app.budgets.learned()}
    missed = await app.budgets.missed()
    tools: list[dict[str, Any]] = []
    for tool in sorted({*thresholds, *budgets, *missed}):
        known, budget = thresholds.get(tool), budgets.get(tool)
        base = app.learning.learned.min_score(tool)
        tools.append(
            {
                "tool": tool,
                "min_score": round(known.min_score if known else base, 4),
                "suggested": round(known.suggested if known else base, 4),
                "samples": known.samples if known else 0,
                "why": known.why if known else "no ratings yet",
                "budget_ratio": budget.ratio if budget else 1.0,
                "budget_samples": budget.samples if budget else 0,
                "missing": [
                    {"at": iso(remark.at), "kind": remark.kind, "text": remark.text}
                    for remark in missed.get(tool, ())
                ],
            }
        )
    return {"tools": tools, "demoted": await demoted(app)}
