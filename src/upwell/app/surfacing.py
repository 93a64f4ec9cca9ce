"""The memory of a home, what is said of it, and what is learned from that. For commands that say
something, or report on it."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from upwell.app.carried_commands import commands_in
from upwell.app.cited_texts import CitedTexts
from upwell.app.cuts import Cuts
from upwell.app.files import open_originals, private_ttl_store
from upwell.app.follow_up import FollowUp
from upwell.app.learning import load_learned, open_learning, tidy
from upwell.app.memory import MemoryApp
from upwell.app.store import Chore, Settings
from upwell.ground.llm import OpenAIChat
from upwell.ground.pause import Pause
from upwell.ground.project import project_of
from upwell.learn.budgets import Budgets
from upwell.surface.options import SurfaceOptions
from upwell.surface.pipeline import Surfacer
from upwell.usage.events import MAX_EVENTS, Events

if TYPE_CHECKING:
    from upwell.app.capture import Accepts, SessionCapture
    from upwell.app.lesson_models import Models
    from upwell.app.lessons import LessonReader
    from upwell.app.past_sessions import SeenSessions
    from upwell.app.review import Review


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
        """Learns from sessions. By default, the configuration decides which proposals become
        memories without asking."""
        # Imported here, because the transcript readers load slowly.
        from upwell.app.capture import SessionCapture, measured_episodes, no_proposal
        from upwell.app.savings import Savings

        asks = self.config.capture.accept == "nothing"
        return SessionCapture(
            self.memory,
            self._places,
            self.inbox(),
            self._ttl_store,
            accepts=accepts or (no_proposal if asks else measured_episodes),
            is_excluded=self.config.projects.excludes,
            savings=partial(Savings, self.config),
        )

    def lessons(self, models: "Models | None" = None) -> "LessonReader":
        """The lessons of sessions. Without `models`, no session can be read."""
        from upwell.app.lesson_models import lessons_by

        parts = (self.memory, self._ttl_store, self.learning.counts)
        return lessons_by(models, self.config, *parts, self._clock)

    def _seen_sessions(self, cwd: str | None) -> "SeenSessions":
        from upwell.app.past_sessions import SeenSessions

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
