"""Learning from what agents do: whoever comes back for the rest was shown too little."""

from collections import Counter, OrderedDict
from collections.abc import Sequence

from upwell.ground.errors import StoreError
from upwell.ground.shelf import Shelf
from upwell.ground.trace import LOG
from upwell.learn.ratios import KEPT_SECONDS, SHELF_KIND, Report

_KEYS_KEPT = 2000


class Behaviour:
    """Counts shortened results and returns to them, per `server__tool`. Nothing is counted when
    learning is switched off."""

    def __init__(self, shelf: Shelf, *, enabled: bool) -> None:
        self._shelf = shelf
        self._enabled = enabled
        self._tools: OrderedDict[str, str] = OrderedDict()
        self._counts: Counter[str] = Counter()

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
