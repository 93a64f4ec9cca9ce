"""Statistics, learned values, decisions and memories as JSON, for the command line and the
dashboard."""

from collections.abc import Mapping, Sequence
from typing import Any

from upwell.app.reporting import demoted_memories, texts_by_id
from upwell.app.surfacing import LearningApp
from upwell.ground.text.format import iso
from upwell.ground.types.memory import Hit
from upwell.surface.explain import account_of_past
from upwell.tools.recall import entry
from upwell.usage.stats import described, stats_of


async def stats(app: LearningApp, days: int) -> dict[str, Any]:
    """The totals of the last `days` days, including today: `upwell stats --json`."""
    totals = stats_of(await app.learning.counts.since(days))
    return {**described(totals, days), "demoted": await demoted(app)}


async def demoted(app: LearningApp) -> list[dict[str, Any]]:
    """The memories that no longer surface by themselves, worst rated first."""
    return await demoted_memories(app.learning, app.memory)


async def learned(app: LearningApp) -> dict[str, Any]:
    """`upwell stats tune --json`: the threshold (in use and suggested) and the budget of each tool,
    and the memories that no longer surface by themselves.

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


async def decisions(
    app: LearningApp, number: int, session: str | None = None
) -> list[dict[str, Any]]:
    """The latest decisions of one session or of all sessions, oldest first: `upwell explain
    --json`."""
    return await app.decisions(number, session)


async def accounts(
    app: LearningApp, recent: Sequence[Mapping[str, Any]]
) -> list[tuple[Mapping[str, Any], list[str]]]:
    """Each decision with its explanation in words."""
    texts = await texts_of(
        app, [memory_id for decision in recent for memory_id, _ in decision["memories"]]
    )
    is_empty = await is_memory_empty(app)
    return [(decision, account_of_past(decision, texts, is_empty=is_empty)) for decision in recent]


async def memories(app: LearningApp, query: str, limit: int) -> list[dict[str, Any]]:
    """The memories that match `query`, or the newest, like the hits of `upwell recall --json`."""
    if query.strip():
        return [entry(hit) for hit in await app.memory.search(query, limit=limit)]
    return [entry(Hit(memory=memory, score=0.0)) for memory in await app.memory.list(limit=limit)]


async def is_memory_empty(app: LearningApp) -> bool:
    """True if there are no memories, notes or documents, and no memory server is configured.

    Raises:
        StoreError: the memory cannot be read.
    """
    if app.config.ltm.transport is not None or app.config.ltm.url or app.notes.memories():
        return False
    if await app.memory.list(limit=1):
        return False
    files, _ = await app.documents.catalog.counts()
    return files == 0


async def texts_of(app: LearningApp, ids: Sequence[str]) -> dict[str, str]:
    """The texts of these memories, keyed by id, excluding deleted ones."""
    return await texts_by_id(app.memory, ids)
