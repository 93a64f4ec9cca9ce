"""The one way in: finds out what a passage is, takes out noise, tries what loses nothing, then the
strategy, then the ladder; and sees to it that the result is within budget and never larger than the
input."""

import math
from dataclasses import replace

from upwell.compress import STRATEGIES, load
from upwell.compress.base import NO_TOOLS, Options, Tools
from upwell.compress.clean import Cleaned, clean
from upwell.compress.fitted import Fitted, Room, outcome, whole
from upwell.compress.normalise.shortest import normalise
from upwell.ground.errors import CompressionError
from upwell.ground.text.kind import detect
from upwell.ground.text.tokens import count
from upwell.ground.types import Attempt, Budget, Compressed, Kind, Passage

LADDER = ("progressive", "hybrid", "truncate")
"""Seed 002: what is tried, in this order, when an output drops below the retention floor."""
_OPT_IN = frozenset({"selective", "progressive", "llm_summary", "none"})
"""Strategies that take the text as it is: nothing is rewritten before them."""


class Compressor:
    """Fits passages to budgets. Stateless; safe to call from any thread."""

    def __init__(self, options: Options | None = None, tools: Tools = NO_TOOLS) -> None:
        self._options = options or Options()
        self._tools = replace(tools, llm_timeout_seconds=self._options.llm_timeout_seconds)

    def compress(self, passage: Passage, budget: Budget, strategy: str | None = None) -> Compressed:
        """Fit `passage` into `budget`.

        A `passage.kind` of TEXT means: find out. Where `passage.key` is given, the original can
        be read on and the floor of the budget does nothing (DESIGN 4.2).

        Raises:
            UsageError: no strategy has this name.
        """
        name = strategy or self._options.strategy
        if name not in STRATEGIES:
            load(name)
        budget = _raised(passage, budget)
        room = Room.of(budget)
        if name == "none" or (
            room.holds(passage.text) and name not in ("selective", "progressive")
        ):
            return whole(passage)
        if passage.kind == Kind.TEXT:
            passage = replace(passage, kind=detect(passage.text, passage.name))
        if name in _OPT_IN:
            return self._down_the_ladder(passage, budget, name)
        cleaned = clean(passage)
        result = self._fitted(cleaned.passage, budget, name)
        return _as_given(passage, _with(result, cleaned))

    def _fitted(self, passage: Passage, budget: Budget, name: str) -> Compressed:
        """What loses nothing, then the strategy."""
        room = Room.of(budget)
        if room.holds(passage.text):
            strategy = "truncate" if name == "auto" else name
            return outcome(passage, Fitted(passage.text), strategy, lossless=True)
        normal = normalise(passage, room, name)
        if normal.whole is not None:
            return normal.whole
        return self._down_the_ladder(normal.passage, budget, name)

    def _down_the_ladder(self, passage: Passage, budget: Budget, name: str) -> Compressed:
        """The strategy, then the rungs of the ladder until one satisfies the floor."""
        tried: list[Attempt] = []
        best: Compressed | None = None
        for rung in dict.fromkeys((name, *LADDER)):
            reason = _unfit(passage, rung) if rung != name else ""
            if reason:
                tried.append(Attempt(strategy=rung, outcome=reason))
                continue
            try:
                result = load(rung, self._tools).compress(passage, budget)
            except CompressionError as error:
                tried.append(Attempt(strategy=rung, outcome=error.message))
                continue
            share = result.after / max(1, result.before)
            if best is None or result.after > best.after:
                best = result
            if result.lossless or share >= _floor(passage, budget) * 0.9 or rung == "truncate":
                tried.append(Attempt(strategy=rung, outcome="kept"))
                break
            tried.append(Attempt(strategy=rung, outcome=f"delivers {share:.0%}, below the floor"))
        assert best is not None
        return replace(best, tried=tuple(tried))


def _with(result: Compressed, cleaned: Cleaned) -> Compressed:
    """The result with what cleaning left out."""
    if not cleaned.omitted:
        return result
    return replace(result, omitted=(*result.omitted, *cleaned.omitted), lossless=False)


def _floor(passage: Passage, budget: Budget) -> float:
    return 0.0 if passage.key else budget.floor


def _raised(passage: Passage, budget: Budget) -> Budget:
    """The soft limits raised to the floor (seed 002), never beyond the hard ones."""
    floor = _floor(passage, budget)
    if floor <= 0.0:
        return budget
    chars, tokens = budget.max_chars, budget.max_tokens
    if chars is not None:
        chars = max(chars, math.ceil(len(passage.text) * floor))
    if tokens is not None:
        tokens = max(tokens, math.ceil(count(passage.text) * floor))
    return replace(budget, max_chars=chars, max_tokens=tokens)


def _unfit(passage: Passage, rung: str) -> str:
    """Why a rung of the ladder cannot be tried; "" where it can."""
    if rung == "progressive":
        return "" if passage.key else "no key to read on with"
    return "" if load(rung).fits(passage) else f"not made for {passage.kind}"


def _as_given(passage: Passage, result: Compressed) -> Compressed:
    """`result` measured against the passage as it came, and never larger than that."""
    before = len(passage.text)
    if result.after >= before and result.tokens >= count(passage.text):
        return replace(whole(passage), tried=result.tried)
    return replace(result, before=before, lossless=result.lossless and not result.omitted)
