"""The entry point of compression.

A `Compressor` detects the kind of a passage and removes noise. It then tries lossless forms, the
strategy, and the fallback ladder, in this order. The result is within the budget, whose soft limits
the retention floor may raise. There are three exceptions: `none`, tables of contents (`selective`),
and JSON that stays valid only over budget (a long number, or `{}` in a tiny budget).
"""

import math

from msgspec.structs import replace

from upwell.compress.base import NO_TOOLS, Fitted, RemainingBudget, Tools, outcome, whole
from upwell.compress.clean import clean
from upwell.compress.normalise.lossless import Choice, normalise
from upwell.compress.normalise.numbered import plain_start, without_numbers
from upwell.compress.options import CompressOptions
from upwell.compress.registry import check, load
from upwell.ground.errors import CompressionError
from upwell.ground.text.kind import detect
from upwell.ground.text.tokens import count
from upwell.ground.types.compression import Attempt, Budget, Compressed, Omission, Passage, TextKind

LADDER = ("progressive", "hybrid", "truncate")
"""The strategies to try, in this order, when the chosen strategy fails, or when its result is over
budget or below the retention floor. (The floor is the share of a text that must be delivered if its
original is not stored.) The order comes from seed 002 (tests/NAMES.md)."""
_FALLBACK_KINDS = {"hybrid": frozenset((TextKind.MARKDOWN, TextKind.API_DOCS, TextKind.CODE))}
"""The kinds of text for which a strategy is a fallback. A strategy that is not listed is a fallback
for every kind."""
_READ_ON = frozenset({"selective", "progressive"})
"""Strategies whose results are useless without the key of the original."""
_AS_RECEIVED = frozenset({"selective", "progressive", "llm_summary", "none"})
"""Strategies that work on the text as received, without cleaning or lossless rewriting."""
_NUMBERED = frozenset(
    (
        TextKind.CODE,
        TextKind.MARKDOWN,
        TextKind.API_DOCS,
        TextKind.CSV,
        TextKind.LOG,
        TextKind.TEST_OUTPUT,
        TextKind.TEXT,
    )
)
"""Kinds of text whose omission marks give line numbers. Search results, diffs and stack traces
contain line numbers of their own.
"""
_ROOM_ABOVE_FLOOR = 1.05
"""The soft budget is raised to at least this multiple of the retention floor. Selecting whole units
leaves up to 3 % of a budget unused, and the result must still reach the floor.
"""
_PAGE_FILES = (".html", ".htm", ".xhtml", ".vue", ".svelte")
MAY_EXCEED = frozenset({"selective", "progressive"})
"""Strategies whose results are not checked against the budget. A table of contents (`selective`)
must list all sections. `progressive` fits its chunk to the budget itself.
"""


class Compressor:
    """Fits passages to budgets. Stateless; safe to call from any thread."""

    def __init__(self, options: CompressOptions | None = None, tools: Tools = NO_TOOLS) -> None:
        self._options = options or CompressOptions()
        self._tools = replace(tools, llm_timeout_seconds=self._options.llm_timeout_seconds)

    def compress(self, passage: Passage, budget: Budget, strategy: str | None = None) -> Compressed:
        """Fit `passage` into `budget`.

        If `passage.kind` is TEXT, the kind is detected here. If `passage.key` is set, the agent can
        read the original, so the retention floor of the budget does not apply.

        Raises:
            UsageError: no strategy has this name.
        """
        name = strategy or self._options.strategy
        check(name)
        budget = _with_floor(passage, budget)
        remaining = RemainingBudget.of(budget)
        if name == "none" or (remaining.holds(passage.text) and name not in _READ_ON):
            return whole(passage)
        if name in _AS_RECEIVED:
            return self._try_ladder(_with_kind(passage), budget, name)
        cleaned = clean(_with_kind(without_numbers(passage)))
        numbered = _with_line_numbers(cleaned.passage, passage.text)
        result = self._fitted(numbered, budget, name)
        return _against_input(passage, _with_omissions(result, cleaned.omitted))

    def _fitted(self, passage: Passage, budget: Budget, name: str) -> Compressed:
        remaining = RemainingBudget.of(budget)
        if remaining.holds(passage.text):
            strategy = "truncate" if name == "auto" else name
            return outcome(passage, Fitted(passage.text), strategy, lossless=True)
        normal = normalise(passage, remaining, name, _choice_for(name))
        if normal.whole is None:
            result = self._try_ladder(normal.passage, budget, name)
            return _with_omissions(result, normal.omitted)
        share = normal.whole.after / max(1, len(passage.text))
        if not normal.whole.omitted or share >= _floor(passage, budget):
            return normal.whole
        return self._try_ladder(passage, budget, name)

    def _try_ladder(self, passage: Passage, budget: Budget, name: str) -> Compressed:
        """Climb the ladder. If the result is below the retention floor, climb again with larger
        soft limits. The floor counts characters, so a result that fills a token budget may be below
        it.
        """
        result = self._climb(passage, budget, name)
        floor, share = _floor(passage, budget), result.after / max(1, result.before)
        if result.lossless or not 0.0 < share < floor:
            return result
        larger = _raised(budget, floor * _ROOM_ABOVE_FLOOR / share)
        if RemainingBudget.of(larger) == RemainingBudget.of(budget):
            return result
        return self._climb(passage, larger, name)

    def _climb(self, passage: Passage, budget: Budget, name: str) -> Compressed:
        remaining = RemainingBudget.of(budget)
        tried: list[Attempt] = []
        best: Compressed | None = None
        # A failed summary falls back to `truncate`, which covers more of the text than the first
        # chunk of `progressive` (as in seed 002, tests/NAMES.md).
        ladder = ("truncate",) if name == "llm_summary" else LADDER
        for rung in dict.fromkeys((name, *ladder)):
            reason = _skip_reason(passage, rung, asked=rung == name)
            if reason:
                tried.append(Attempt(strategy=rung, outcome=reason))
                continue
            try:
                result = load(rung)(passage, budget, self._tools)
            except CompressionError as error:
                tried.append(Attempt(strategy=rung, outcome=error.message))
                continue
            if rung not in (*MAY_EXCEED, "truncate") and not remaining.holds(result.text):
                tried.append(Attempt(strategy=rung, outcome="its result is over budget"))
                continue
            share = result.after / max(1, result.before)
            if best is None or result.after > best.after:
                best = result
            if result.lossless or share >= _floor(passage, budget) or rung == "truncate":
                tried.append(Attempt(strategy=rung, outcome="kept"))
                break
            tried.append(Attempt(strategy=rung, outcome=f"delivers {share:.0%}, below the floor"))
        assert best is not None
        return replace(best, tried=tuple(tried))


def _with_kind(passage: Passage) -> Passage:
    """Detect the kind of a passage. A file with line numbers and no recognised kind is treated as
    code. So is an HTML page read from a file, because the agent may edit its lines.
    """
    if passage.kind != TextKind.TEXT:
        return passage
    kind = detect(plain_start(passage), passage.name)
    is_file = passage.first_line is not None
    if kind == TextKind.HTML and "://" not in passage.name:
        is_file = is_file or passage.name.lower().endswith(_PAGE_FILES)
    is_code = is_file and kind in (TextKind.TEXT, TextKind.HTML)
    return replace(passage, kind=TextKind.CODE if is_code else kind)


def _with_line_numbers(passage: Passage, original: str) -> Passage:
    """Let omission marks give the numbers of the missing lines, so that the agent can ask for them.

    This applies to the kinds in `_NUMBERED`, if cleaning did not change the number of lines.
    """
    is_same = passage.text.count("\n") == original.count("\n")
    if passage.first_line is None and is_same and passage.kind in _NUMBERED:
        return replace(passage, first_line=1)
    return passage


def _with_omissions(result: Compressed, omitted: tuple[Omission, ...]) -> Compressed:
    if not omitted:
        return result
    return replace(result, omitted=(*result.omitted, *omitted), lossless=False)


def _floor(passage: Passage, budget: Budget) -> float:
    return 0.0 if passage.key else budget.floor


def _with_floor(passage: Passage, budget: Budget) -> Budget:
    floor = min(1.0, _floor(passage, budget) * _ROOM_ABOVE_FLOOR)
    if floor <= 0.0:
        return budget
    chars, tokens = budget.max_chars, budget.max_tokens
    if chars is not None:
        chars = max(chars, math.ceil(len(passage.text) * floor))
    if tokens is not None:
        tokens = max(tokens, math.ceil(count(passage.text) * floor))
    return replace(budget, max_chars=chars, max_tokens=tokens)


def _raised(budget: Budget, factor: float) -> Budget:
    chars, tokens = budget.max_chars, budget.max_tokens
    return replace(
        budget,
        max_chars=None if chars is None else math.ceil(chars * factor),
        max_tokens=None if tokens is None else math.ceil(tokens * factor),
    )


def _skip_reason(passage: Passage, rung: str, *, asked: bool) -> str:
    """Return the reason to skip a rung of the ladder, or "".

    A strategy that the caller `asked` for is tried on every kind of text. It is skipped only if the
    agent would need a key to read the rest and there is none.
    """
    if rung in _READ_ON and not passage.key:
        return "no key to read the rest"
    if not asked and passage.kind not in _FALLBACK_KINDS.get(rung, TextKind):
        return f"not suited to {passage.kind}"
    return ""


def _against_input(passage: Passage, result: Compressed) -> Compressed:
    """Compare `result` with the passage as received. Return the passage unchanged if the result has
    neither fewer characters nor fewer tokens."""
    before = len(passage.text)
    if result.after >= before and result.tokens >= count(passage.text):
        return replace(whole(passage), tried=result.tried)
    return replace(result, before=before, lossless=result.lossless and not result.omitted)


def _choice_for(name: str) -> Choice:
    if name != "auto":
        return lambda passage, root: name
    from upwell.compress.strategies import choose

    return choose
