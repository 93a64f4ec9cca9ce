"""Wires the parts of a home that learn, and runs their chores."""

import asyncio
from collections.abc import Callable, Sequence

from upwell.app.memory import mark_viewed
from upwell.app.store import Files
from upwell.config import Config
from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError
from upwell.ground.trace import LOG
from upwell.ground.ttl_store import EntryKind, TtlStore
from upwell.learn.feedback import LearningStore
from upwell.learn.implicit import Uses
from upwell.learn.learned import Learned, LearnedLimits
from upwell.memory.notes.stm import ShortTerm
from upwell.memory.topics import Rarity
from upwell.surface.journal import Journal
from upwell.surface.learning import Learning
from upwell.surface.options import SurfaceOptions

OfCue = Callable[[str | None, int | None], SurfaceOptions]
_DAY_SECONDS, _HOUR_SECONDS = 86_400.0, 3_600.0


def open_learning(
    config: Config,
    of_cue: OfCue,
    ttl_store: TtlStore,
    files: Files,
    ratings: LearningStore | None,
    notes: ShortTerm,
    clock: Clock = SYSTEM_CLOCK,
) -> Learning:
    """The part of a home that learns from ratings and from the use of memories. `of_cue` returns
    the surfacing options that apply to a tool."""
    surface = config.surface
    limits = LearnedLimits(
        min_score=surface.min_score,
        negatives=surface.feedback_demotion_negative_threshold,
        of_tool=lambda tool: of_cue(tool, None).min_score,
    )
    learned = Learned(ratings, Uses(ttl_store), config.learn, limits, clock)
    rarity = Rarity(files.indexed)

    async def used(ids: Sequence[str]) -> None:
        await asyncio.to_thread(mark_viewed, notes, ids)

    return Learning(learned, ttl_store, config.learn, rare=rarity.rare, mark_used=used, clock=clock)


async def load_learned(learned: Learned, *, tolerant: bool) -> None:
    """Load the learned values. If this fails, the app starts without them and loads them later."""
    try:
        await learned.load_learned()
    except StoreError as error:
        if not tolerant:
            raise
        LOG.warning("learned values are not known yet: %s", error)


async def tidy(config: Config, ttl_store: TtlStore, journal: Journal, learned: Learned) -> None:
    """Once a day, clear query texts that are too old to keep. Once an hour, adjust thresholds."""
    surface = config.surface
    chore = f"queries {surface.query_retention_days} {surface.persist_query_text}"
    if await _is_due(ttl_store, chore, _DAY_SECONDS):
        await journal.clear_queries()
    if await _is_due(ttl_store, "tune", _HOUR_SECONDS):
        await learned.tune()


async def forget_notes(notes: ShortTerm) -> None:
    """Move notes that nobody has read for `stm.retention_days` to the trash."""
    try:
        if removed := await asyncio.to_thread(notes.clear):
            LOG.info("%d notes expired", removed)
    except StoreError as error:
        LOG.warning("expired notes cannot be cleared: %s", error)


async def _is_due(ttl_store: TtlStore, chore: str, seconds: float) -> bool:
    """True if no process has done this chore within the last `seconds`. The chore then counts as
    done, so the caller must do it."""
    if await ttl_store.get(EntryKind.CHORE, [chore]):
        return False
    await ttl_store.put(EntryKind.CHORE, {chore: b""}, ttl_seconds=seconds)
    return True
