"""Adapts the size budget for each tool's results to agents' reports, and to how often agents fetch
what was left out.

A tool's budget is multiplied by its learned ratio. New ratios take effect between sessions, so that
within a session the same result is always shortened to the same bytes. `upwell stats tune --apply`
makes running sessions adopt them early.
"""

import hashlib
import json
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import asdict

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError
from upwell.ground.ledger import EntryKind, TtlStore
from upwell.ground.secrets.redact import redacted_start
from upwell.ground.text.safe import clip
from upwell.ground.trace import LOG

RETENTION_SECONDS = 30 * 86_400.0

MIN_RATIO, MAX_RATIO = 0.5, 3.0
_STEP = 0.15
FEW = 3
"""A budget changes only after this many reports and fetches of the rest, because a single one does
not show a trend."""


class ResultReport(StrEnum):
    """An agent's report on a shortened result, or another event that concerns the result."""

    TRUNCATED = "truncated"
    MISSING_EXAMPLE = "missing_example"
    MISSING_METADATA = "missing_metadata"
    WRONG_TOPIC = "wrong_topic"
    TOO_LONG = "too_long"
    OTHER = "other"
    CAME_BACK = "came_back"
    """The agent fetched the rest with `read_more`, `select_sections` or `search_original`."""
    SERVED = "served"
    """A shortened result was delivered."""


_SAYS_TOO_LITTLE = (
    ResultReport.TRUNCATED,
    ResultReport.MISSING_EXAMPLE,
    ResultReport.MISSING_METADATA,
)
MOVING = frozenset({*_SAYS_TOO_LITTLE, ResultReport.TOO_LONG})
"""These reports by agents change a budget. `WRONG_TOPIC` and `OTHER` are only for people to
read."""


class Ratio(Struct, frozen=True, kw_only=True):
    """The learned factor `ratio` for one tool's budget, based on `samples` reports."""

    tool: str
    ratio: float
    samples: int


def ratio_of(tool: str, counts: Mapping[str, int]) -> Ratio:
    """The ratio that follows from how often each `ResultReport` was made on `tool`.

    The ratio is 1.15 to the power of n, between `MIN_RATIO` and `MAX_RATIO`, or 1 if there are
    fewer than `FEW` reports and fetches. A report of "too little" adds 1 to n, and a report of "too
    much" subtracts 1. Each time an agent fetches the rest, 1/3 is added to n, but for every five
    deliveries one such fetch is ignored.
    """
    little = sum(counts.get(kind, 0) for kind in _SAYS_TOO_LITTLE)
    much = counts.get(ResultReport.TOO_LONG, 0)
    back = max(0.0, counts.get(ResultReport.CAME_BACK, 0) - counts.get(ResultReport.SERVED, 0) / 5)
    samples = little + much + counts.get(ResultReport.CAME_BACK, 0)
    if samples < FEW:
        return Ratio(tool=tool, ratio=1.0, samples=samples)
    net = little - much + back / 3
    return Ratio(
        tool=tool, ratio=min(MAX_RATIO, max(MIN_RATIO, (1.0 + _STEP) ** net)), samples=samples
    )


MAX_CHARS = 300
SHOWN = 5
"""How many of the newest remarks are shown for each tool."""
_READ_CHARS = 10_000


class Missed(Struct, frozen=True, kw_only=True):
    """An agent's remark on content missing from `tool`'s results. `at` is in epoch seconds."""

    tool: str
    kind: str
    text: str
    at: float = 0.0


_APPLY = "apply"
_APPLY_SECONDS = 3600.0
_MAX_KEYS = 2000


class Budgets:
    """The learned ratios of tools' budgets, and the counts from which later ratios follow.

    `ratios` maps `server__tool` to the ratio in use. The mapping is updated in place. If learning
    is off, no ratio is used and no delivery is counted.
    """

    def __init__(self, ttl_store: TtlStore, *, enabled: bool, clock: Clock = SYSTEM_CLOCK) -> None:
        self._ttl_store = ttl_store
        self._enabled = enabled
        self._clock = clock
        self._in_use: dict[str, float] = {}
        self._taken_at = 0.0
        self._tools: OrderedDict[str, str] = OrderedDict()
        self._counts: Counter[str] = Counter()

    @property
    def ratios(self) -> Mapping[str, float]:
        return self._in_use

    async def load_learned(self) -> None:
        """Apply the ratios that were learned so far."""
        if self._enabled:
            learned = await self.learned()
            self._in_use.clear()
            self._in_use.update({ratio.tool: ratio.ratio for ratio in learned})
            self._taken_at = self._clock.now()

    async def load_learned_if_requested(self) -> None:
        """Call `load_learned()` if it has not succeeded yet, or if any process has called `ask()`
        since it last succeeded."""
        if not self._taken_at:
            return await self.load_learned()
        request = (await self._ttl_store.get(EntryKind.TUNE, [_APPLY])).get(_APPLY)
        if request is not None and request.created_at > self._taken_at:
            await self.load_learned()

    async def ask(self) -> None:
        """Ask running sessions to apply the learned ratios."""
        await self._ttl_store.put(EntryKind.TUNE, {_APPLY: b""}, ttl_seconds=_APPLY_SECONDS)

    async def learned(self) -> list[Ratio]:
        """Return the ratios of all tools with reports, sorted by name."""
        counts: dict[str, dict[str, int]] = {}
        for item in await self._ttl_store.scan(EntryKind.COMPRESSION_REPORT):
            tool, _, report = item.key.rpartition("|")
            counts.setdefault(tool, {})[report] = item.number
        return [ratio_of(tool, counts[tool]) for tool in sorted(counts)]

    async def forget(self) -> int:
        """Discard all reports and remarks. Returns the number of discarded counters and remarks."""
        kinds = (EntryKind.COMPRESSION_REPORT, EntryKind.COMPRESSION_REMARK)
        return sum([await self._ttl_store.drop(kind) for kind in kinds])

    async def report(
        self, tool: str, report: ResultReport, missing: str = "", *, rater: str = ""
    ) -> None:
        """Count a report on a shortened result from `tool` (its name as `server__tool`). `missing`
        describes what the result lacked. It is stored for 30 days as a remark, which is one line
        without secrets. Equal remarks are stored once. `rater` names a principal other than the
        owner. Because all principals share the budgets, a rater's report is not counted."""
        if not rater:
            counter = {f"{tool}|{report}": 1}
            await self._ttl_store.incr(
                EntryKind.COMPRESSION_REPORT, counter, ttl_seconds=RETENTION_SECONDS
            )
        text = f"{rater}: {missing}" if rater and missing else missing
        line = clip(" ".join(redacted_start(text, _READ_CHARS).split()), MAX_CHARS)
        if line:
            value = json.dumps(asdict(Missed(tool=tool, kind=str(report), text=line))).encode()
            remark = {hashlib.sha256(value).hexdigest(): value}
            await self._ttl_store.put(
                EntryKind.COMPRESSION_REMARK, remark, ttl_seconds=RETENTION_SECONDS
            )

    async def missed(self) -> Mapping[str, Sequence[Missed]]:
        """Return agents' newest remarks on missing content, newest first, keyed by tool."""
        remarks: defaultdict[str, list[Missed]] = defaultdict(list)
        for item in reversed(await self._ttl_store.scan(EntryKind.COMPRESSION_REMARK)):
            remark = Missed(**{**json.loads(item.value), "at": item.created_at})
            if len(remarks[remark.tool]) < SHOWN:
                remarks[remark.tool].append(remark)
        return remarks

    def served(self, tool: str, keys: Sequence[str]) -> None:
        """Count the delivery of a shortened result from `tool`. `keys` are the keys of its
        originals."""
        if not self._enabled:
            return
        self._counts[f"{tool}|{ResultReport.SERVED}"] += 1
        for key in keys:
            self._tools[key] = tool
        while len(self._tools) > _MAX_KEYS:
            self._tools.popitem(last=False)

    def on_follow_up(self, key: str) -> None:
        """Count that an agent read the original under `key`, at most once for each time that the
        key was delivered."""
        tool = self._tools.pop(key, "")
        if tool:
            self._counts[f"{tool}|{ResultReport.CAME_BACK}"] += 1

    async def flush(self) -> None:
        """Write the counts to the TTL store. If the store fails, only these counts are lost."""
        counts, self._counts = self._counts, Counter()
        if not counts:
            return
        try:
            await self._ttl_store.incr(
                EntryKind.COMPRESSION_REPORT, counts, ttl_seconds=RETENTION_SECONDS
            )
        except StoreError as error:
            LOG.warning("reports on compression were not stored: %s", error)
