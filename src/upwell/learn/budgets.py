"""Budgets that follow what agents say and do: whoever comes back for the rest was shown too little.

What is learned is taken into use between sessions, so that within one the same response gives the
same bytes; `upwell tune --apply` has running sessions take it up early.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence

from upwell.ground.errors import StoreError
from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.shelf import Shelf
from upwell.ground.trace import LOG
from upwell.learn import missing
from upwell.learn.ratios import KEPT_SECONDS, SHELF_KIND, Ratio, Report, forget, ratios, record

_TUNE, _APPLY = "tune", "apply"
_ASKED_SECONDS = 3600.0
_KEYS_KEPT = 2000


class Budgets:
    """What was learned of each tool's budget, and what is being learned. `ratios` are those in
    use, by `server__tool`. Nothing is counted or used when learning is switched off."""

    def __init__(self, shelf: Shelf, *, enabled: bool, clock: Clock = SYSTEM_CLOCK) -> None:
        self._shelf = shelf
        self._enabled = enabled
        self._clock = clock
        self._in_use: dict[str, float] = {}
        self._taken_at = 0.0
        self._tools: OrderedDict[str, str] = OrderedDict()
        self._counts: Counter[str] = Counter()

    @property
    def ratios(self) -> Mapping[str, float]:
        return self._in_use

    async def take_up(self) -> None:
        """Use what was learned so far."""
        if self._enabled:
            self._in_use.clear()
            self._in_use.update({one.tool: one.ratio for one in await ratios(self._shelf)})
            self._taken_at = self._clock.now()

    async def take_up_if_asked(self) -> None:
        """The same, if `ask` was called since the last time, by whichever process."""
        asked = (await self._shelf.get(_TUNE, [_APPLY])).get(_APPLY)
        if asked is not None and asked.created_at > self._taken_at:
            await self.take_up()

    async def ask(self) -> None:
        """Have running sessions take up what was learned."""
        await self._shelf.put(_TUNE, {_APPLY: b""}, ttl_seconds=_ASKED_SECONDS)

    async def learned(self) -> list[Ratio]:
        return await ratios(self._shelf)

    async def forget(self) -> int:
        """Forget everything. Gives how many counts and remarks there were."""
        return await forget(self._shelf) + await missing.forget(self._shelf)

    async def report(self, tool: str, report: Report, lacked: str = "") -> None:
        """Somebody said something about a shortened result of `tool`, and what it `lacked`."""
        await record(self._shelf, tool, report)
        await missing.note(self._shelf, tool, report, lacked)

    async def missed(self) -> Mapping[str, Sequence[missing.Missed]]:
        """What was missing lately from results of each tool, in agents' words."""
        return await missing.lately(self._shelf)

    def served(self, tool: str, keys: Sequence[str]) -> None:
        """A shortened result of `tool` was delivered; its originals stand under `keys`."""
        if not self._enabled:
            return
        self._counts[f"{tool}|{Report.SERVED}"] += 1
        for key in keys:
            self._tools[key] = tool
        while len(self._tools) > _KEYS_KEPT:
            self._tools.popitem(last=False)

    def came_back(self, key: str) -> None:
        """The original under `key` was read on. Counts once a delivery."""
        tool = self._tools.pop(key, "")
        if tool:
            self._counts[f"{tool}|{Report.CAME_BACK}"] += 1

    async def flush(self) -> None:
        """Bring what was counted to the shelf; one that fails costs the counts, no more."""
        counts, self._counts = self._counts, Counter()
        if not counts:
            return
        try:
            await self._shelf.incr(SHELF_KIND, counts, ttl_seconds=KEPT_SECONDS)
        except StoreError as error:
            LOG.warning("what was learned could not be kept: %s", error)
