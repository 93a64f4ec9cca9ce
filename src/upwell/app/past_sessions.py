"""Past sessions, for the command line and for our MCP tools."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import UsageError
from upwell.ground.home import Home
from upwell.ground.project import is_seen
from upwell.replay.transcripts import Transcript, transcripts_of_user
from upwell.sessions.answer import Told, told
from upwell.sessions.index import Found, Progress, Scope, SessionIndex
from upwell.sessions.render import lines_of, page_of

INCOMPLETE = "[upwell] older sessions are not indexed yet; the next search reads on"
REFRESH_SECONDS = 2.0
"""How long a search by an agent reads new transcripts first. The next one goes on from there."""


class PastSessions:
    """Searches the sessions of every agent of this user. `cwd` is the folder whose SpecStory
    histories count, too."""

    def __init__(
        self,
        home: Home,
        environment: Mapping[str, str],
        cwd: str | None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        transcripts: Callable[[], Sequence[Transcript]] | None = None,
    ) -> None:
        folder = Path(cwd) if cwd else Path.home()
        own = partial(transcripts_of_user, Path.home(), folder, None)
        self._environment = environment
        self._index = SessionIndex(home.sessions_db, transcripts or own, clock=clock)

    async def refresh(
        self, show: Progress = lambda done, total: None, seconds: float | None = None
    ) -> bool:
        """Read what is new in the transcripts. Returns whether everything was read.

        Raises:
            StoreError: the index cannot be written.
        """
        return await self._index.refresh(show, seconds)

    async def counts(self) -> tuple[int, int]:
        """The number of sessions and of turns in the index."""
        return await self._index.counts()

    async def search(self, question: str, scope: Scope, limit: int) -> list[Told]:
        """The sessions that bear most on the question, best first.

        Raises:
            StoreError: the index cannot be read.
        """
        return await self._told(await self._index.search(question, scope, limit), question)

    async def changes(self, path: str, cwd: str, scope: Scope, limit: int) -> list[Told]:
        """The turns that changed a file, newest first. A file that no turn changed under its
        absolute path is looked up as it was given: in transcripts of another machine it has another
        folder.

        Raises:
            StoreError: the index cannot be read.
        """
        name = os.path.normpath(path)
        absolute = os.path.normpath(os.path.join(cwd, path))
        found = await self._index.changes(absolute, scope, limit)
        if not found:
            found = await self._index.changes(name, scope, limit)
        return await self._told(found, os.path.basename(name), file=name.lstrip("/"))

    async def turn(self, locator: str) -> Told:
        """The turn with this locator.

        Raises:
            UsageError: there is none, or several.
            StoreError: the index cannot be read.
        """
        found = await self._index.located(locator)
        return await asyncio.to_thread(partial(told, found, "", self._environment, whole=True))

    async def aclose(self) -> None:
        """Close the index."""
        await self._index.aclose()

    async def _told(self, found: Sequence[Found], question: str, file: str = "") -> list[Told]:
        def read() -> list[Told]:
            return [told(each, question, self._environment, file=file) for each in found]

        return await asyncio.to_thread(read)


class SeenSessions:
    """The past sessions that work in `project` may see, as text for an agent."""

    def __init__(self, past: PastSessions, project: str | None) -> None:
        self._past = past
        self._project = project

    async def search(self, question: str, limit: int) -> Sequence[str]:
        """The sessions that bear most on the question, each as a few lines, and a remark if some
        transcripts have not been read yet."""
        is_complete = await self._past.refresh(seconds=REFRESH_SECONDS)
        found = await self._past.search(question, Scope(project=self._project), limit)
        texts = ["\n".join(lines_of(each, question)) for each in found]
        return texts if is_complete else [*texts, INCOMPLETE]

    async def page(self, locator: str) -> str:
        """A whole turn.

        Raises:
            UsageError: this project has none with that locator.
        """
        turn = await self._past.turn(locator)
        if not is_seen(turn.found.session.project, self._project):
            raise UsageError(f"{locator} belongs to another project")
        return page_of(turn)
