"""Wires the parts of a home that learn, and runs their chores. No answer to a hook event waits for
the chores at the end of a turn.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upwell.app.memory import mark_viewed
from upwell.app.store import Files
from upwell.capture.transcript import has_lost_marks, written_in
from upwell.config import Config
from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError
from upwell.ground.trace import LOG
from upwell.ground.ttl_store import EntryKind, TtlStore
from upwell.hook.door import TurnEnd
from upwell.hosts.events import EventKind, HostEvent
from upwell.learn.feedback import LearningStore
from upwell.learn.implicit import Uses
from upwell.learn.learned import Learned, LearnedLimits
from upwell.memory.notes.stm import ShortTerm
from upwell.memory.topics import Rarity
from upwell.surface.journal import Journal
from upwell.surface.learning import Learning
from upwell.surface.options import SurfaceOptions
from upwell.surface.pipeline import Surfacer
from upwell.surface.render import TAG
from upwell.surface.rules import HEADING

if TYPE_CHECKING:
    from upwell.app.capture import SessionCapture
    from upwell.sessions.index import SessionIndex

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


async def end_turn(
    surfacer: Surfacer,
    learning: Learning,
    capture: "SessionCapture | None",
    past: "SessionIndex | None",
    ended: TurnEnd,
    event: HostEvent,
) -> None:
    """Before a compaction, allow memories to surface again in the session. At the end of a turn,
    pass the agent's texts to learning. `capture`, which is None unless the user has turned it on,
    also stores the findings of the turn. `past` then keeps the session's record. `ended()` hears of
    the event, too.
    """
    if event.kind is EventKind.COMPACT:
        await surfacer.compacting(event.session)
        return
    await ended(event)
    written = partial(_written, event, time.time())
    await learning.wrote(event.session, written, ended=event.kind is EventKind.END)
    if not event.reports_compactions and await _has_lost_memories(event):
        await surfacer.compacting(event.session)
    if capture is not None:
        try:
            await capture.end_turn(event.transcript, event.session, event.cwd)
        except (StoreError, OSError) as error:
            LOG.warning("nothing was learned from a turn: %s", error)
    if past is not None:
        await _keep_record(past, event)


async def _keep_record(past: "SessionIndex", event: HostEvent) -> None:
    try:
        await past.read_one(event.transcript)
        if event.kind is EventKind.END:
            await past.close(event.session)
    except (StoreError, OSError) as error:
        LOG.warning("the record of a session is out of date: %s", error)


async def _has_lost_memories(event: HostEvent) -> bool:
    """True if the host compacted the history, so that the surfaced memories are no longer in it."""
    return await asyncio.to_thread(has_lost_marks, event.transcript, (HEADING, TAG))


def _written(event: HostEvent, now: float, since: float) -> list[tuple[float, str]]:
    last_message = [(now, event.text)] if event.text else []
    earlier = written_in(event.transcript, since) if event.transcript else []
    return [*last_message, *earlier]


def answered_elsewhere(hooks_file: Path, host: str, payload: Mapping[str, Any]) -> bool:
    """True if Cursor, which also runs Claude Code's hooks, answers the event with its own hook."""
    if host != "claude" or "cursor_version" not in payload:
        return False
    from upwell.hosts.installed import installed_entries

    return "cursor" in installed_entries(hooks_file)
