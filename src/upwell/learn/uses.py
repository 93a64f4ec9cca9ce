"""What agents made use of, and what they ignored: evidence that nobody gave on purpose.

It stands on the shelf, where it may be lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from upwell.ground.shelf import Shelf
from upwell.learn.feedback import WINDOW_SECONDS
from upwell.learn.thresholds import Sample, Use

KIND = "use"
_BETWEEN = "\t"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What became of a memory surfaced beside `tool` (or at that door)."""

    tool: str
    sample: Sample


class Uses:
    """The verdicts on the shelf. Every method raises StoreError when it fails."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    async def add(self, seen: Sequence[Seen]) -> None:
        written = {
            _BETWEEN.join((one.sample.memory, one.sample.surfacing)): orjson.dumps(
                [one.tool, str(one.sample.verdict), one.sample.score, one.sample.at]
            )
            for one in seen
        }
        await self._shelf.put(KIND, written, ttl_seconds=WINDOW_SECONDS)

    async def all(self, memory: str = "") -> list[Seen]:
        """Every verdict, or those about one memory; oldest first."""
        found: list[Seen] = []
        for item in await self._shelf.scan(KIND, f"{memory}{_BETWEEN}" if memory else ""):
            name, _, surfacing = item.key.rpartition(_BETWEEN)
            tool, verdict, score, at = orjson.loads(item.value)
            sample = Sample(
                surfacing=surfacing, memory=name, verdict=Use(verdict), score=score, at=at
            )
            found.append(Seen(tool=tool, sample=sample))
        return found

    async def last(self, memory: str) -> Use | None:
        """What became of a memory when it was last surfaced, None while nobody knows."""
        seen = await self.all(memory)
        verdict = max(seen, key=lambda one: one.sample.at).sample.verdict if seen else None
        return verdict if isinstance(verdict, Use) else None

    async def forget(self, memory: str | None = None) -> int:
        """Forget the verdicts about one memory, or all. Gives how many there were."""
        return await self._shelf.drop(KIND, f"{memory}{_BETWEEN}" if memory else "")
