"""Records decisions: writes a journal entry for each, and passes each on to learning. During a
call, decisions are only queued. They are written within about half a second."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from upwell.ground.text.tokens import count
from upwell.ground.trace import contained
from upwell.ground.types.cue import Cue
from upwell.ground.types.memory import Hit
from upwell.ground.types.surfacing import Skip, Surfacing
from upwell.surface.journal import Journal, undelivered
from upwell.surface.learning import Learning
from upwell.surface.options import PipelineOptions
from upwell.surface.render import ENTRY_MARK

WRITE_SECONDS = 0.5

Job = Callable[[], Awaitable[object]]


class DecisionRecord:
    """Records decisions, and corrects the record if memories did not reach the agent. A cue that
    must not be recorded (`PipelineOptions.records`) leaves no trace."""

    def __init__(self, journal: Journal, learning: Learning, options: PipelineOptions) -> None:
        self.journal = journal
        self.learning = learning
        self._options = options
        self._background = BackgroundWork([journal.flush, *learning.jobs()])

    def covers(self, cue: Cue) -> bool:
        """True if decisions about this cue are recorded."""
        return self._options.records(cue)

    def note(self, cue: Cue, outcome: Surfacing | Skip, took_ms: float) -> None:
        """Record a decision."""
        if not self.covers(cue):
            return
        key = outcome.id if isinstance(outcome, Surfacing) else f"k_{secrets.token_hex(6)}"
        with contained("noting a decision"):
            self.journal.note(cue, outcome, key, took_ms)
            self.learning.notice(cue, outcome)
            self.write_soon()

    def undo(self, surfacing: Surfacing, cue: Cue, *, late: bool) -> None:
        """Record that `surfacing` did not reach the agent. With `late`, it was ready too late for
        its call."""
        if not self.covers(cue):
            return
        self.learning.undo(surfacing)
        skip = undelivered(surfacing, late=late)
        self.journal.note(cue, skip, surfacing.id, surfacing.took_ms, late=late)
        self.write_soon()

    def shorten(self, shorter: Surfacing, omitted: Sequence[Hit], cue: Cue) -> None:
        """Record that the hits in `omitted` were dropped from a surfacing, which became
        `shorter`."""
        if not self.covers(cue):
            return
        self.learning.undo(replace(shorter, hits=tuple(omitted)))
        self.journal.note(
            cue,
            shorter,
            shorter.id,
            shorter.took_ms,
            omitted_tokens=_tokens_of(omitted, shorter.text),
        )
        self.write_soon()

    async def write(self, *jobs: Job) -> None:
        """Write the queued decisions and counts, and run these jobs alongside."""
        await together(*jobs, self.journal.flush, self.learning.counts.flush)

    def write_soon(self) -> None:
        """Write what is queued, half a second from now."""
        self._background.request()

    async def aclose(self) -> None:
        """Write what is queued, and stop."""
        await self._background.aclose()


def _tokens_of(omitted: Sequence[Hit], text: str) -> int:
    """The tokens of the last lines of `text`, which belong to the omitted hits."""
    lines = [line for line in text.split("\n") if line.startswith(ENTRY_MARK)]
    if len(lines) <= len(omitted):
        return count(text)
    return sum(map(count, lines[-len(omitted) :])) if omitted else 0


class BackgroundWork:
    """Runs all of its jobs half a second after a request, so that one run serves every request made
    in the meantime."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._is_due = False
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def request(self) -> None:
        """Schedule a run of the jobs."""
        self._is_due = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def aclose(self) -> None:
        """Run every job once more, and stop."""
        self._closing.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await self._run_jobs()

    async def _run(self) -> None:
        while self._is_due:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), WRITE_SECONDS)
            await self._run_jobs()

    async def _run_jobs(self) -> None:
        self._is_due = False
        await together(*self._jobs)


async def together(*jobs: Job) -> None:
    """Run the jobs at the same time, so that their writes share a transaction. A job that fails
    does not stop the others."""

    async def run(job: Job) -> None:
        with contained("background work of surfacing"):
            await job()

    await asyncio.gather(*map(run, jobs))
