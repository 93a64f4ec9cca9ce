"""The learning side of a home, wired: what surfacing learns from, and its chores."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

from upwell.app.files import Files, Memories
from upwell.config import Config
from upwell.ground.errors import StoreError
from upwell.ground.shelf import Shelf
from upwell.ground.trace import LOG, span
from upwell.learn.learned import Learned, Limits
from upwell.learn.uses import Uses
from upwell.memory.rarity import Rarity
from upwell.memory.stm import ShortTerm
from upwell.surface.journal import Journal
from upwell.surface.lessons import Lessons
from upwell.surface.options import SurfaceOptions

OfCue = Callable[[str | None, int | None], SurfaceOptions]
CHORE = "chore"
_DAY_SECONDS, _HOUR_SECONDS = 86_400.0, 3_600.0
_TRACES_KEPT = 2_000


def open_lessons(
    config: Config, of_cue: OfCue, shelf: Shelf, files: Files, memory: Memories
) -> Lessons:
    """`of_cue` gives what a tool has of its own."""
    surface = config.surface
    limits = Limits(
        min_score=surface.min_score,
        negatives=surface.feedback_demotion_negative_threshold,
        of_tool=lambda tool: of_cue(tool, None).min_score,
    )
    learned = Learned(memory.ratings, Uses(shelf), config.learn, limits)
    rarity = Rarity(files.indexed)

    async def used(ids: Sequence[str]) -> None:
        await asyncio.to_thread(_viewed, memory.notes, ids)

    return Lessons(learned, shelf, config.learn, rare=rarity.rare, used=used)


async def tidy(config: Config, shelf: Shelf, journal: Journal, learned: Learned) -> None:
    """Clear query texts that may not be kept, once a day; move thresholds, once an hour."""
    surface = config.surface
    kept = f"queries {surface.query_retention_days} {surface.persist_query_text}"
    if await _is_due(shelf, kept, _DAY_SECONDS):
        await journal.clear_queries()
    if await _is_due(shelf, "tune", _HOUR_SECONDS):
        await learned.tune()


async def _is_due(shelf: Shelf, chore: str, seconds: float) -> bool:
    """Has nobody done it for so long? Whoever asks does it."""
    if await shelf.get(CHORE, [chore]):
        return False
    await shelf.put(CHORE, {chore: b""}, ttl_seconds=seconds)
    return True


def _viewed(notes: ShortTerm, ids: Sequence[str]) -> None:
    if not ids:
        return
    try:
        ours = {note.id for note in notes.entries()}.intersection(ids)
        if ours:
            notes.viewed(ours)
    except StoreError as error:
        LOG.warning("that notes were used was not noted: %s", error)


class Traces:
    """Which trace a shortened result belongs to, so that reading on is seen beside its call."""

    def __init__(self) -> None:
        self._by_key: OrderedDict[str, str] = OrderedDict()

    def note(self, keys: Sequence[str], trace_id: str) -> None:
        """These originals belong to a call of this trace."""
        for key in keys:
            self._by_key[key] = trace_id
            self._by_key.move_to_end(key)
        while len(self._by_key) > _TRACES_KEPT:
            self._by_key.popitem(last=False)

    def read_on(self, key: str) -> None:
        """Somebody reads on: a span with the trace id of the call that was shortened."""
        with span("upwell.read_on", key=key, trace_id=self._by_key.get(key, "")):
            LOG.debug("read on %s", key)
