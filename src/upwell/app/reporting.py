"""The report of `upwell stats`, and the facts that it shares with the JSON from `overview`."""

from collections.abc import Sequence
from typing import Any

from upwell.app.gain import total
from upwell.ground.types.surfacing import SkipReason
from upwell.learn.budgets import Budgets
from upwell.memory.library import Library
from upwell.surface.explain import REASONS
from upwell.surface.learning import Learning
from upwell.usage.report import report
from upwell.usage.stats import stats_of


async def report_of(learning: Learning, budgets: Budgets, memory: Library, days: int) -> list[str]:
    """The lines of `upwell stats` for the last `days` days, with each tool's learned values."""
    counts = await learning.counts.since(days)
    totals = stats_of(counts)
    demoted = await demoted_memories(learning, memory)
    lines = report(totals, demoted, days, in_words, total(counts))
    lines += [
        f"  {row.tool}: threshold {row.min_score:.2f}, suggested {row.suggested:.2f} ({row.why})"
        for row in await learning.learned.thresholds()
        if row.samples
    ]
    lines += [
        f"  {ratio.tool}: budget × {ratio.ratio:.2f} from {ratio.samples} reports"
        for ratio in await budgets.learned()
        if ratio.samples
    ]
    return lines


def in_words(code: str) -> str:
    """A reason for silence, in words."""
    return REASONS[SkipReason(code)] if code in list(SkipReason) else code.replace("_", " ")


async def demoted_memories(learning: Learning, memory: Library) -> list[dict[str, Any]]:
    """The memories that no longer surface by themselves, worst rated first."""
    demotions = sorted(learning.learned.demoted.items(), key=lambda pair: (-pair[1], pair[0]))
    texts = await texts_by_id(memory, [memory_id for memory_id, _ in demotions])
    return [
        {"id": memory_id, "negatives": negatives, "text": texts.get(memory_id, "")}
        for memory_id, negatives in demotions
    ]


async def texts_by_id(memory: Library, ids: Sequence[str]) -> dict[str, str]:
    """The texts of these memories, keyed by id, excluding deleted ones."""
    found = {memory_id: await memory.get(memory_id) for memory_id in dict.fromkeys(ids)}
    return {memory_id: entry.text for memory_id, entry in found.items() if entry}
