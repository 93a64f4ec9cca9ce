"""The memory of a home, what is said of it, and what is learned from that. For commands that say
something, or report on it.

Wires the parts of a home that learn, and runs their chores.

The commands that a session needs again after a compaction, taken from its transcript.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from upwell.app.files import open_originals, private_ttl_store
from upwell.app.memory import CitedTexts, MemoryApp, mark_viewed
from upwell.app.shortening import Cuts, FollowUp
from upwell.app.store import Chore, Files, Settings
from upwell.config import Config
from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError
from upwell.ground.ledger import EntryKind, TtlStore
from upwell.ground.llm import OpenAIChat
from upwell.ground.pause import Pause
from upwell.ground.project import project_of
from upwell.ground.trace import LOG
from upwell.learn.budgets import Budgets
from upwell.learn.feedback import LearningStore
from upwell.learn.implicit import Uses
from upwell.learn.learned import Learned, LearnedLimits
from upwell.memory.notes.stm import ShortTerm
from upwell.memory.topics import Rarity
from upwell.surface.journal import Journal
from upwell.surface.learning import Learning
from upwell.surface.options import SurfaceOptions
from upwell.surface.pipeline import Surfacer
from upwell.usage.events import MAX_EVENTS, Events

if TYPE_CHECKING:
    from upwell.app.capture import Accepts, SessionCapture
    from upwell.app.lesson_queue import Models
    from upwell.app.lessons import LessonReader
    from upwell.app.memory import SeenSessions
    from upwell.app.review import Review

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
    rare = Rarity(files.indexed).rare if config.learn.auto_tune else None

    async def used(ids: Sequence[str]) -> None:
        await asyncio.to_thread(mark_viewed, notes, ids)

    return Learning(learned, ttl_store, rare=rare, mark_used=used, clock=clock)


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


MAX_BYTES = 20_000_000
"""How many bytes are read from the end of a transcript, where the latest compaction is recorded."""


def commands_in(path: str) -> Sequence[str]:
    """The commands that worked and are worth repeating; empty if the file is not a transcript that
    belongs to this user, or if its end cannot be read alone, as with Gemini CLI.
    """
    # Imported here, because few sessions are compacted.
    from upwell.episodes.failures import succeeded
    from upwell.episodes.signatures import command_of
    from upwell.replay.transcripts import events_at_end
    from upwell.sessions.turns import Run, carried

    commands = ((command_of(event), event) for event in events_at_end(path, MAX_BYTES))
    return carried(Run(command, succeeded(event)) for command, event in commands if command)


class LearningApp(MemoryApp):
    """The memory of a home, its surfacing and its learning. Close it with `aclose()`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        config, clock, options = self.config, settings.clock, self.config.surfacing()
        self.pause = Pause(config.home.pause_file)
        self.learning = open_learning(
            config, self._surface_of, self._ttl_store, self._files, self._ratings, self.notes, clock
        )
        self.surfacer = Surfacer(
            self.memory.reader,
            self._ttl_store,
            dataclasses.replace(
                options,
                of_cue=self._surface_of,
                is_paused=self.pause.holds,
                commands_in=commands_in,
                judge=dataclasses.replace(options.judge, waits=settings.waits_for_judge),
            ),
            chat=OpenAIChat(config.llm) if config.llm.base_url else None,
            learning=self.learning,
            clock=clock,
        )
        self._private = private_ttl_store()
        self._originals = open_originals(config, self._ttl_store, self._private)
        self.budgets = Budgets(self._ttl_store, enabled=config.learn.auto_tune, clock=clock)
        self.events = Events(self._ttl_store, clock)
        self.cuts = Cuts(self._ttl_store, self._originals, self.surfacer.journal, clock)
        self._follow_up = FollowUp(self.budgets, self.learning, self.cuts)
        self.texts = self._texts_of(self._cwd)

    def _texts_of(self, cwd: str | None) -> CitedTexts:
        return CitedTexts(
            self,
            self._originals,
            self._follow_up,
            self.learning.viewed,
            partial(self._seen_sessions, cwd),
            cwd,
        )

    def _surface_of(self, tool: str | None, window: int | None) -> SurfaceOptions:
        # `config` is read on each call, because a hot reload replaces it.
        return self.config.surface_of(tool, window)

    def session_capture(self, accepts: "Accepts | None" = None) -> "SessionCapture":
        """Learns from sessions. By default, no proposal becomes a memory without asking."""
        # Imported here, because the transcript readers load slowly.
        from upwell.app.capture import SessionCapture, no_proposal
        from upwell.app.shortening import Savings

        return SessionCapture(
            self.memory,
            self._places,
            self.inbox(),
            self._ttl_store,
            accepts=accepts or no_proposal,
            is_excluded=self.config.projects.excludes,
            savings=partial(Savings, self.config),
        )

    def lessons(self, models: "Models | None" = None) -> "LessonReader":
        """The lessons of sessions. Without `models`, no session can be read."""
        from upwell.app.lesson_queue import lessons_by

        parts = (self.memory, self._ttl_store, self.learning.counts)
        return lessons_by(models, self.config, *parts, self._clock)

    def _seen_sessions(self, cwd: str | None) -> "SeenSessions":
        from upwell.app.memory import SeenSessions

        return SeenSessions(self.past_sessions(), project_of(cwd), self.config.environment)

    def review(self) -> "Review":
        """Offers memories for removal."""
        from upwell.app.review import Review

        return Review(self.memory, self.learning, self._ttl_store, self.inbox(), self.notes)

    async def decisions(
        self, limit: int = MAX_EVENTS, session: str | None = None
    ) -> list[dict[str, Any]]:
        """The latest decisions of one session or of all sessions, oldest first."""
        matching = {} if session is None else {"session": session}
        return (await self.surfacer.journal.latest(limit, matching=matching))[::-1]

    @property
    def chores(self) -> Sequence[Chore]:
        journal, learned = self.surfacer.journal, self.learning.learned
        learning = partial(tidy, self.config, self._ttl_store, journal, learned)
        return [*super().chores, self.budgets.flush, learning]

    def is_housekeeping_due(self) -> bool:
        """True: each use of what writes to `ledger.db` also removes what has expired from it."""
        return True

    async def aclose(self) -> None:
        """Write pending data and close the files."""
        await self._follow_up.aclose()
        await self.budgets.flush()
        await self.cuts.aclose()
        await self.surfacer.aclose()
        await super().aclose()


async def opened[A: LearningApp](app: A, settings: Settings) -> A:
    """The app, with what it has learned.

    Raises:
        StoreError: the learned values cannot be read, and the app is not tolerant.
    """
    await load_learned(app.learning.learned, tolerant=settings.tolerant)
    return app
