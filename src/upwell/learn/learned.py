"""What was learned from feedback, as surfacing uses it: thresholds of tools, memories demoted.

Surfacing only looks at what is in memory here. It is brought up to date behind the calls, when
somebody has written to the database, in this process or another.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from upwell.ground.errors import StoreError, StoreUnwritable
from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.trace import LOG
from upwell.ground.types import Door
from upwell.learn.demotion import negatives
from upwell.learn.feedback import WINDOW_SECONDS, Rated, Ratings
from upwell.learn.ratios import LearnOptions
from upwell.learn.thresholds import (
    Sample,
    Threshold,
    count,
    counted,
    shifted,
    stepped,
    wanted_shift,
)
from upwell.learn.uses import Uses

BETWEEN_STEPS_SECONDS = 3600.0
"""Without a rating a threshold moves one step an hour at most."""

_UNKNOWN = (-1, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Where learning begins: `surface.min_score`, and
    `surface.feedback_demotion_negative_threshold` (0 demotes nothing). `of_tool` gives the
    `min_score` of a tool that may have one of its own."""

    min_score: float = 0.5
    negatives: int = 3
    of_tool: Callable[[str], float] | None = None

    def base(self, tool: str) -> float:
        """The threshold of a tool, or of a door, before anything was learned."""
        if self.of_tool is None or tool in Door:
            return self.min_score
        return self.of_tool(tool)


class Learned:
    """Thresholds and demotions. `ratings` None: the memory cannot be used, nothing is learned."""

    def __init__(
        self,
        ratings: Ratings | None,
        uses: Uses,
        options: LearnOptions,
        limits: Limits,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._ratings = ratings
        self._uses = uses
        self._options = options
        self._limits = limits
        self._clock = clock
        self._shifts: Mapping[str, float] = {}
        self._demoted: Mapping[str, float] = {}
        self._version = _UNKNOWN

    def min_score(self, tool: str) -> float:
        """The threshold beside `tool` (or at that door)."""
        shift = self._shifts.get(tool, 0.0) if self._options.auto_tune else 0.0
        return shifted(self._limits.base(tool), shift)

    def is_demoted(self, memory: str) -> bool:
        return memory in self._demoted

    @property
    def demoted(self) -> Mapping[str, float]:
        """The memories that are not offered unasked, and what stands against each."""
        return self._demoted

    async def version(self) -> tuple[int, int]:
        """Differs when somebody has written to the memory; always the same when it cannot be
        read."""
        try:
            return await self._ratings.version() if self._ratings else _UNKNOWN
        except StoreError as error:
            LOG.warning("the memory cannot be looked at: %s", error)
            return _UNKNOWN

    async def take_up(self) -> None:
        """Bring what is in use up to date, if anything was written. A database that fails costs
        the news."""
        if self._ratings is None:
            return
        try:
            version = await self._ratings.version()
            if version == self._version:
                return
            shifts = await self._ratings.shifts()
            self._shifts = {tool: shift for tool, (shift, _) in shifts.items()}
            self._demoted = await self._standing_against(self._ratings)
            self._version = version
        except StoreError as error:
            LOG.warning("what was learned cannot be read: %s", error)

    async def rate(self, rated: Sequence[Rated]) -> None:
        """Keep ratings, and move the thresholds of their tools one step to where they point.

        Raises:
            StoreError: they could not be kept.
        """
        ratings = self._usable()
        await ratings.add(rated)
        if self._options.auto_tune:
            await self._step(ratings, {one.tool for one in rated}, between_seconds=0.0)
        await self.take_up()

    async def tune(self) -> None:
        """Move every threshold one step to where its evidence points, and forget what is old."""
        if self._ratings is None:
            return
        await self._ratings.purge(self._clock.now())
        if self._options.auto_tune:
            await self._step(self._ratings, None, between_seconds=BETWEEN_STEPS_SECONDS)

    async def apply(self) -> None:
        """Move every threshold to where its evidence points, at once."""
        ratings, now = self._usable(), self._clock.now()
        evidence = await self._evidence(ratings)
        moved = {tool: wanted_shift(samples, now) for tool, samples in evidence.items()}
        moved |= {tool: 0.0 for tool in await ratings.shifts() if tool not in moved}
        await ratings.shift(moved, now)
        await self.take_up()

    async def reset(self, memory: str | None = None) -> int:
        """Let everything that was learned count no more; or what stands against one memory. Gives
        how many ratings and observations it was."""
        gone = await self._usable().forget(memory)
        gone += await self._uses.forget(memory)
        await self.take_up()
        return gone

    async def thresholds(self) -> list[Threshold]:
        """Every tool that there is evidence about, or whose threshold was moved; by name."""
        if self._ratings is None:
            return []
        now, evidence = self._clock.now(), await self._evidence(self._ratings)
        shifts = await self._ratings.shifts()
        return [
            Threshold(
                tool=tool,
                min_score=self.min_score(tool),
                suggested=shifted(
                    self._limits.base(tool), wanted_shift(evidence.get(tool, ()), now)
                ),
                samples=count(evidence.get(tool, ())),
                verdicts=counted(evidence.get(tool, ())),
            )
            for tool in sorted({*evidence, *shifts})
        ]

    async def _step(
        self, ratings: Ratings, tools: set[str] | None, *, between_seconds: float
    ) -> None:
        now, evidence = self._clock.now(), await self._evidence(ratings)
        shifts = await ratings.shifts()
        moved: dict[str, float] = {}
        for tool in {*evidence, *shifts} if tools is None else tools:
            shift, at = shifts.get(tool, (0.0, 0.0))
            wanted = wanted_shift(evidence.get(tool, ()), now)
            if abs(wanted - shift) > 1e-3 and now - at >= between_seconds:
                moved[tool] = stepped(shift, wanted)
        if moved:
            await ratings.shift(moved, now)

    async def _evidence(self, ratings: Ratings) -> dict[str, list[Sample]]:
        """What was said of each tool's surfacings; where nothing was, what was seen of them. What a
        session begins with has no threshold."""
        since = self._clock.now() - WINDOW_SECONDS
        found = await ratings.by_tool(since)
        found.pop(Door.SESSION, None)
        if not self._options.implicit_signals:
            return found
        rated = {(one.surfacing, one.memory) for samples in found.values() for one in samples}
        for seen in await self._uses.all():
            sample = seen.sample
            if seen.tool == Door.SESSION or (sample.surfacing, sample.memory) in rated:
                continue
            if sample.at >= since:
                found.setdefault(seen.tool, []).append(sample)
        return found

    async def _standing_against(self, ratings: Ratings) -> dict[str, float]:
        """The memories with enough negatives. Only where one is missing, being ignored is asked
        about: it can be no more than that."""
        most = self._limits.negatives
        if most <= 0:
            return {}
        found: dict[str, float] = {}
        for memory, samples in (await ratings.against()).items():
            stands = negatives(samples)
            if most - 1 <= stands < most and self._options.implicit_signals:
                seen = [one.sample for one in await self._uses.all(memory)]
                stands = negatives([*samples, *seen])
            if stands >= most:
                found[memory] = stands
        return found

    def _usable(self) -> Ratings:
        if self._ratings is None:
            raise StoreUnwritable(
                "feedback cannot be kept: the memory is not available", hint="upwell doctor"
            )
        return self._ratings
