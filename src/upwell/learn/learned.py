"""The learned values that surfacing reads: each tool's threshold, and the demoted memories.

Surfacing reads only the copy in this process, never the database. After a call, the copy is
refreshed if any process has written to the database.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence

from msgspec import Struct

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError, StoreUnwritable
from upwell.ground.trace import LOG, contained
from upwell.ground.types.cue import Door, Rating
from upwell.learn.feedback import (
    WINDOW_SECONDS,
    LearningStore,
    Rated,
    ScoreSample,
    Threshold,
    count,
    counted,
    negatives,
    of_rater,
    shifted,
    stepped,
    target_shift,
    without_rater,
)
from upwell.learn.implicit import Uses
from upwell.learn.options import LearnOptions

BETWEEN_STEPS_SECONDS = 3600.0
"""`tune()` moves a threshold at most one step in this many seconds."""

CASE_SIGN = " / "
"""Separates the moment and the kind in the name of a case. No tool name contains spaces."""
EXACT_MARGIN = 0.4
"""How much lower, in log-odds, the threshold is for a memory that was learned in exactly the
current situation, such as the same error. Measurements showed that such memories help. Observed use
moves a threshold by at most 0.3, so it alone cannot cancel this margin."""
_UNKNOWN = (-1, -1)


class LearnedLimits(Struct, frozen=True, kw_only=True):
    """The configured limits. `min_score` is `surface.min_score`. `negatives` is
    `surface.feedback_demotion_negative_threshold` (0: demote nothing). `of_tool` returns the
    `min_score` that is configured for a tool. `asked` is the threshold for explicit requests. It is
    low, because they should return every relevant memory."""

    min_score: float = 0.5
    negatives: int = 3
    asked: float = 0.02
    of_tool: Callable[[str], float] | None = None

    def base(self, tool: str) -> float:
        """The threshold of a tool or a door before learning."""
        tool = without_rater(tool)
        if tool == Door.ASK:
            return self.asked
        if self.of_tool is None or tool in Door or CASE_SIGN in tool:
            return self.min_score
        return self.of_tool(tool)


class Learned:
    """Thresholds and demotions. `ratings` is None if the database cannot be used, in which case
    nothing is learned."""

    def __init__(
        self,
        ratings: LearningStore | None,
        uses: Uses,
        options: LearnOptions,
        limits: LearnedLimits,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._ratings = ratings
        self._uses = uses
        self._options = options
        self._limits = limits
        self._clock = clock
        self._shifts: Mapping[str, float] = {}
        self._demoted: Mapping[str, float] = {}
        self._version: Hashable = _UNKNOWN
        self._given: dict[tuple[str, str], Rating] = {}
        self._given_version: Hashable = _UNKNOWN

    def min_score(
        self, tool: str, principal: str = "", case: str = "", *, exact: bool = False
    ) -> float:
        """A principal's current threshold for `tool`, which may also be the name of a door.

        A `case` combines a moment and a kind of memory (`Watched.case`). With it, the threshold
        takes into account how agents used such memories at such moments. With `exact`, it is the
        threshold for a memory that was learned in exactly the current situation; the tool's ratings
        do not affect it.
        """
        tool = of_rater(tool, principal)
        shift = self._shifts.get(case, 0.0)
        if not exact:
            shift += self._shifts.get(tool, 0.0)
        if not self._options.auto_tune:
            shift = 0.0
        return shifted(self._limits.base(tool), shift - EXACT_MARGIN * exact)

    def is_demoted(self, memory: str, principal: str = "") -> bool:
        return of_rater(memory, principal) in self._demoted

    @property
    def demoted(self) -> Mapping[str, float]:
        """The owner's demoted memories, which no longer surface unasked, with the evidence against
        each."""
        return {key: value for key, value in self._demoted.items() if without_rater(key) == key}

    async def version(self) -> Hashable:
        """A value that changes when any process changes ratings or thresholds. It is constant while
        the database cannot be read."""
        try:
            return await self._ratings.version() if self._ratings else _UNKNOWN
        except StoreError as error:
            LOG.warning("the memory cannot be read: %s", error)
            return _UNKNOWN

    async def ratings_given(self) -> dict[tuple[str, str], Rating]:
        """The valid ratings, keyed by surfacing and memory. If the database cannot be read, there
        are none, or those of an earlier call. They are read again only after the database has
        changed."""
        version = await self.version()
        if self._ratings is None or version is _UNKNOWN:
            return {}
        if version != self._given_version:
            with contained("reading the ratings"):
                given = await self._ratings.valid()
                self._given_version = version
                self._given = {
                    (one.surfacing, without_rater(one.memory)): one.rating for one in given
                }
        return self._given

    async def load_learned(self) -> None:
        """Refresh thresholds and demotions if the database has changed. Values that cannot be read
        stay as they were."""
        if self._ratings is None:
            return
        try:
            version = await self._ratings.version()
            if version == self._version:
                return
            shifts = await self._ratings.shifts()
            self._shifts = {tool: shift for tool, (shift, _) in shifts.items()}
            self._demoted = await self._demotions(self._ratings)
            self._version = version
        except StoreError as error:
            LOG.warning("thresholds and demotions cannot be read: %s", error)

    async def rate(self, rated: Sequence[Rated]) -> None:
        """Store ratings and, with `auto_tune`, move the thresholds of their tools one step towards
        the evidence."""
        ratings = self._usable()
        await ratings.add(rated)
        if self._options.auto_tune:
            tools = {rating.tool for rating in rated}
            await self._step(ratings, tools, between_seconds=0.0)
        await self.load_learned()

    async def tune(self) -> None:
        """Remove old ratings. With `auto_tune`, also move each threshold that did not move within
        the last hour one step towards its evidence."""
        if self._ratings is None:
            return
        await self._ratings.purge(self._clock.now())
        if self._options.auto_tune:
            await self._step(self._ratings, None, between_seconds=BETWEEN_STEPS_SECONDS)

    async def apply(self) -> None:
        """Move every threshold all the way to its evidence."""
        ratings, now = self._usable(), self._clock.now()
        evidence = await self._evidence(ratings)
        moved = {tool: target_shift(samples, now) for tool, samples in evidence.items()}
        moved |= {tool: 0.0 for tool in await ratings.shifts() if tool not in moved}
        await ratings.shift(moved, now)
        await self.load_learned()

    async def reset(self, memory: str | None = None) -> int:
        """Discard everything that was learned, or the evidence about one memory. Returns how many
        ratings and observations were discarded.
        """
        discarded = await self._usable().forget(memory)
        discarded += await self._uses.forget(memory)
        await self.load_learned()
        return discarded

    async def thresholds(self) -> list[Threshold]:
        """The thresholds of the tools that have evidence or a shift, sorted by name."""
        if self._ratings is None:
            return []
        now, evidence = self._clock.now(), await self._evidence(self._ratings)
        shifts = await self._ratings.shifts()
        return [
            Threshold(
                tool=tool,
                min_score=self.min_score(tool),
                suggested=shifted(
                    self._limits.base(tool), target_shift(evidence.get(tool, ()), now)
                ),
                samples=count(evidence.get(tool, ())),
                evidence=counted(evidence.get(tool, ())),
            )
            for tool in sorted({*evidence, *shifts})
        ]

    async def _step(
        self, ratings: LearningStore, tools: set[str] | None, *, between_seconds: float
    ) -> None:
        now, evidence = self._clock.now(), await self._evidence(ratings)
        shifts = await ratings.shifts()
        moved: dict[str, float] = {}
        for tool in {*evidence, *shifts} if tools is None else tools:
            shift, at = shifts.get(tool, (0.0, 0.0))
            target = target_shift(evidence.get(tool, ()), now)
            if abs(target - shift) > 1e-3 and now - at >= between_seconds:
                moved[tool] = stepped(shift, target)
        if moved:
            await ratings.shift(moved, now)

    async def _evidence(self, ratings: LearningStore) -> dict[str, list[ScoreSample]]:
        """The samples of each tool: its ratings, and the observed use of unrated memories. Session
        starts have no threshold, so their samples are left out."""
        since = self._clock.now() - WINDOW_SECONDS
        samples_by_tool = await ratings.by_tool(since)
        samples_by_tool.pop(Door.SESSION, None)
        if not self._options.auto_tune:
            return samples_by_tool
        rated = {
            (sample.surfacing, sample.memory)
            for samples in samples_by_tool.values()
            for sample in samples
        }
        for sighting in await self._uses.all():
            sample = sighting.sample
            if sighting.tool == Door.SESSION or (sample.surfacing, sample.memory) in rated:
                continue
            if sample.at >= since:
                samples_by_tool.setdefault(sighting.tool, []).append(sample)
        return samples_by_tool

    async def _demotions(self, ratings: LearningStore) -> dict[str, float]:
        limit = self._limits.negatives
        if limit <= 0:
            return {}
        demoted: dict[str, float] = {}
        for memory, samples in (await ratings.against()).items():
            evidence = negatives(samples)
            # Ignored surfacings add at most 1, so they matter only if the evidence is at most 1
            # below the limit.
            if limit - 1 <= evidence < limit and self._options.auto_tune:
                observed = [sighting.sample for sighting in await self._uses.all(memory)]
                evidence = negatives([*samples, *observed])
            if evidence >= limit:
                demoted[memory] = evidence
        return demoted

    def _usable(self) -> LearningStore:
        if self._ratings is None:
            raise StoreUnwritable(
                "feedback cannot be stored: the memory is not available",
                hint="run `upwell doctor`",
            )
        return self._ratings
