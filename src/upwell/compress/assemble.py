"""Select the units of a text that matter most within a budget, and write them in their original
order.

The ranking does not depend on the budget, so a larger budget selects everything that a smaller one
does.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from upwell.compress.base import Fitted, RemainingBudget, note
from upwell.compress.folding import count_listing_lines, count_log_lines, listing_parts
from upwell.compress.order import by_names, in_parallel, order
from upwell.compress.relevance import Meaning, RelevanceQuestion, lowered, places, rarity
from upwell.compress.units import changes
from upwell.compress.units.base import FIRST, Units
from upwell.ground.text.safe import safe_cut
from upwell.ground.text.tokens import chars_per_token, weigh
from upwell.ground.types.compression import Omission, Passage, TextKind

_GAP_CHARS, _CUT_CHARS, _GAP_TOKENS = 8, 17, 7.0
"""The estimated size of an omission mark: the characters of a mark between lines, the characters of
a mark within a line, and the tokens of either."""
_MOST_SHARE, _SHARE_PER_COVERAGE = 0.9, 1.3
"""Units that answer the question get a share of the budget: `_SHARE_PER_COVERAGE` times the part of
the question that the best unit covers, but at most `_MOST_SHARE`. If the text does not answer the
question, the share is zero."""
_MARGIN = 1.5
"""Ordering stops once the ordered units cost this multiple of the budget. The margin is needed
because the cost of each unit includes a gap, and adjacent units have no gap between them.
"""
_CHARS_PER_TOKEN, _USUAL_SPREAD = 8.0, 1.6
"""Two upper bounds on the average number of characters per token. `_CHARS_PER_TOKEN` holds for
almost any text, but not for long runs of one character. The other bound is `_USUAL_SPREAD` times
the average at the beginning of the text.
"""
_ROUNDS = 3
"""The maximum number of rounds of selection. The first round overestimates the cost of gaps; the
later rounds spend what it left over."""
_NEIGHBOUR = 0.45
_UNDER = 0.35
"""The neighbours of a match get `_NEIGHBOUR` times its score. The units under a matching heading
get `_UNDER` times the heading's score.
"""


def assemble(
    passage: Passage,
    units: Units,
    question: RelevanceQuestion,
    remaining: RemainingBudget,
    meaning: Meaning | None = None,
) -> Fitted:
    """Select the units that matter most within `remaining`.

    Every gap that is not blank is marked. The last line counts the omissions and gives the key of
    the original. If the budget is too small for any mark, there are no marks and no such line.
    """
    text = passage.text
    relevances, coverage = relevance(units, text, question) if question else ({}, 0.0)
    if meaning is not None:
        starts, ends = units.starts, units.ends
        meaning.add_to(relevances, units.salience, lambda unit: text[starts[unit] : ends[unit]])
    costs = [end - start + _GAP_CHARS for start, end in zip(units.starts, units.ends, strict=True)]
    limit = remaining.chars
    if remaining.tokens < math.inf:
        chars = min(_CHARS_PER_TOKEN, _USUAL_SPREAD * chars_per_token(text, remaining.tokens))
        limit = min(limit, remaining.tokens * chars)
    limit *= _MARGIN
    notable = _notable(units, passage, costs, limit)
    share = min(_MOST_SHARE, _SHARE_PER_COVERAGE * coverage)
    ordered = order(relevances, notable, costs, share, limit)
    everything = _omissions(passage, _lines_of(passage)(text), len(text))
    full_note = note(everything, passage.key)
    allowance = remaining.without(full_note)
    weights = _Weights(units, text)
    batches = _buy(units, weights, ordered, allowance, [], 0.0, 0.0)
    written = _write(passage, units, _all(batches))
    for _ in range(_ROUNDS - 1):
        chars = len(written.fitted.text) - len(full_note)
        tokens = 0.0
        if remaining.tokens < math.inf:
            tokens = weights.sum(batches, written.marks) - weigh(full_note)
        if chars > allowance.chars or tokens > allowance.tokens:
            break
        more_batches = _buy(units, weights, ordered, allowance, batches, chars, tokens)
        if len(more_batches) == len(batches):
            break
        batches = more_batches
        written = _write(passage, units, _all(batches))
    excess = 1
    while batches and not remaining.holds(written.fitted.text):
        del batches[-excess:]
        excess = max(1, len(batches) // 20)
        written = _write(passage, units, _all(batches))
    return written.fitted if batches else _without_marks(units, text, ordered, remaining)


class _Weights:
    def __init__(self, units: Units, text: str) -> None:
        self.text = text
        self._starts, self._ends = units.starts, units.ends
        self._tokens: dict[int, float] = {}

    def of(self, unit: int) -> float:
        tokens = self._tokens.get(unit)
        if tokens is None:
            span = self.text[self._starts[unit] : self._ends[unit]]
            tokens = self._tokens[unit] = weigh(span)
        return tokens

    def sum(self, batches: list[list[int]], marks: str) -> float:
        text, starts, tokens = self.text, self._starts, self._tokens
        # An empty line shares a token with the end of the line before it.
        return weigh(marks) + sum(
            [tokens[unit] for batch in batches for unit in batch if text[starts[unit]] != "\n"]
        )


def _notable(units: Units, passage: Passage, costs: Sequence[float], limit: float) -> list[int]:
    """Order the units by how much they matter when there is no question: by salience, or by the
    names in them (`order.py`).

    When they are ordered by names, a part of the budget is reserved for raised units (headings,
    errors).
    """
    by_salience = sorted(range(len(units)), key=units.salience.__getitem__, reverse=True)
    if not units.by_names:
        return by_salience
    raised = list(takewhile(lambda unit: units.salience[unit] >= FIRST, by_salience))
    units_by_name = by_names(units, passage.text, limit / _MARGIN, passage.request)
    return in_parallel(raised, units_by_name, costs, units.raised_share, limit)


def _all(batches: list[list[int]]) -> set[int]:
    return {unit for batch in batches for unit in batch}


def relevance(
    units: Units, text: str, question: RelevanceQuestion
) -> tuple[dict[int, float], float]:
    """Score the units that answer `question`, and the units next to or under them.

    Returns the scores, and the share of the question that the best unit covers, 0..1. A score is
    BM25 without length normalisation, multiplied by a factor that grows with coverage.
    """
    hits = _hits(units, text, question)
    weights = {
        number: question.terms[number].weight * rarity(len(units), len(matching))
        for number, matching in hits.items()
    }
    totals: dict[int, float] = {}
    for number, matching in hits.items():
        weight = weights[number]
        for unit in matching:
            totals[unit] = totals.get(unit, 0.0) + weight
    possible = sum(
        weights.get(number, rarity(len(units), 0))
        for number, term in enumerate(question.terms)
        if term.weight >= 1.0
    )
    scores = {
        unit: total * (0.4 + 0.6 * min(1.0, total / possible if possible else 0.0))
        for unit, total in totals.items()
    }
    best = max(scores.values(), default=0.0)
    _lend(units, scores, dict(scores))
    return scores, min(1.0, best / possible) if possible else 0.0


def _hits(units: Units, text: str, question: RelevanceQuestion) -> dict[int, list[int]]:
    lowercase = lowered(text)
    starts = units.starts
    units_by_term: dict[int, list[int]] = {}
    for number, term in enumerate(question.terms):
        matching_units: dict[int, None] = {}
        for offset in places(term, lowercase, text):
            matching_units[bisect_right(starts, offset) - 1] = None
        if matching_units:
            units_by_term[number] = list(matching_units)
    return units_by_term


def _lend(units: Units, scores: dict[int, float], own: dict[int, float]) -> None:
    size = len(units)
    for unit, score in own.items():
        worth = score
        for step in range(1, units.reach + 1):
            worth *= _NEIGHBOUR
            before, after = unit - step, unit + step
            if before >= 0 and worth > scores.get(before, 0.0):
                scores[before] = worth
            if after < size and worth > scores.get(after, 0.0):
                scores[after] = worth
    last: tuple[int, ...] = ()
    worth = 0.0
    for unit, needs in enumerate(units.needs):
        if not needs:
            continue
        if needs is not last:
            last, worth = needs, _UNDER * max([own.get(need, 0.0) for need in needs])
        if worth > 0.0:
            scores[unit] = scores.get(unit, 0.0) + worth


def _buy(
    units: Units,
    weights: _Weights,
    ordered: list[int],
    remaining: RemainingBudget,
    before: list[list[int]],
    chars: float,
    tokens: float,
) -> list[list[int]]:
    """Add units, each with the units it needs, until one does not fit. Nothing is added after that,
    so a smaller budget selects a subset of what a larger one does.

    `before` contains the batches selected so far, which cost `chars` and `tokens`.
    """
    batches = list(before)
    selected = _all(batches)
    counts_tokens = remaining.tokens < math.inf
    starts, ends, text = units.starts, units.ends, weights.text
    for unit in ordered:
        if unit in selected:
            continue
        batch = [need for need in dict.fromkeys((*units.needs[unit], unit)) if need not in selected]
        for index, member in enumerate(batch):
            start, end = starts[member], ends[member]
            gap_change = (member - 1 not in selected) + (member + 1 not in selected) - 1
            whole_lines = text[end - 1] == "\n" and (start == 0 or text[start - 1] == "\n")
            chars += end - start + gap_change * (_GAP_CHARS if whole_lines else _CUT_CHARS)
            if counts_tokens:
                tokens += weights.of(member) + gap_change * _GAP_TOKENS
            if chars > remaining.chars or tokens > remaining.tokens:
                # Keep the members that fit, because a larger budget also selects them. Leave out
                # members that in turn need `unit`, such as the other half of a changed line.
                batch = [member for member in batch[:index] if unit not in units.needs[member]]
                return [*batches, batch] if batch else batches
            selected.add(member)
        batches.append(batch)
    return batches


class _Gap(NamedTuple):
    """The `mark` that is written for a gap. The gap consists of whole `lines`, or of `chars` within
    a line."""

    mark: str
    lines: int = 0
    chars: int = 0


class _Written(NamedTuple):
    """A shortened text. `marks` contains all its omission marks and its last line, joined."""

    fitted: Fitted
    marks: str


def _write(passage: Passage, units: Units, selected: set[int]) -> _Written:
    text, starts, ends = passage.text, units.starts, units.ends
    gaps = _Gaps(passage)
    parts: list[str] = []
    marks: list[str] = []
    run_start = at = 0
    for unit in sorted(selected):
        if starts[unit] > at:
            mark = gaps.mark(at, starts[unit])
            parts += text[run_start:at], mark
            marks.append(mark.strip(" \n"))
            run_start = starts[unit]
        at = ends[unit]
    parts.append(text[run_start:at])
    if at < len(text):
        marks.append(gaps.mark(at, len(text)))
        parts.append(marks[-1])
    body, marks_text = "".join(parts), "\n".join(marks)
    omitted = gaps.omissions()
    if not omitted:
        return _Written(Fitted(body, ()), marks_text)
    end = "" if body.endswith("\n") or not body else "\n"
    last_line = note(omitted, passage.key)
    return _Written(Fitted(body + end + last_line, omitted), f"{marks_text}\n{last_line}")


class _Gaps:
    def __init__(self, passage: Passage) -> None:
        self._passage = passage
        self._text = passage.text
        self._count_lines = _lines_of(passage)
        self._first_line = passage.first_line
        self._row = self._at = 0
        self._lines = self._chars = 0

    def omissions(self) -> tuple[Omission, ...]:
        """Return the totals of all marks."""
        return _omissions(self._passage, self._lines, self._chars)

    def mark(self, start: int, end: int) -> str:
        """Return what replaces `text[start:end]` in the result. This is usually a mark. Blank text
        becomes a line break, and text that would not be longer than its mark stays.
        """
        missing = self._text[start:end]
        if not missing.strip():
            return missing if len(missing) <= 4 else "\n"
        marks = list(self._marks(start, end))
        marks_text = "".join([gap.mark for gap in marks])
        if len(missing) <= len(marks_text):
            return missing
        self._lines += sum(gap.lines for gap in marks)
        self._chars += sum(gap.chars for gap in marks)
        return marks_text

    def _marks(self, start: int, end: int) -> Iterator[_Gap]:
        """Split a gap into the rest of its first line, whole lines, and the beginning of its last
        line."""
        text = self._text
        if start and text[start - 1] != "\n":
            line_end = text.find("\n", start, end) + 1 or end
            yield self._within_line(start, line_end)
            start = line_end
        last_start = end if end == len(text) or text[end - 1] == "\n" else (
            max(start, text.rfind("\n", start, end) + 1)
        )  # fmt: skip
        if start < last_start:
            yield self._whole_lines(start, last_start)
        if last_start < end:
            yield self._within_line(last_start, end)

    def _within_line(self, start: int, end: int) -> _Gap:
        broken = "\n" if self._text[end - 1] == "\n" else ""
        count = end - start - len(broken)
        return _Gap(f"{_cut_mark(count)} {broken}", chars=count) if count else _Gap(broken)

    def _whole_lines(self, start: int, end: int) -> _Gap:
        text = self._text
        count = self._count_lines(text[start:end])
        if self._first_line is None:
            parts = _parts(self._passage, text[start:end])
            lines = f"{count} line{'s' * (count > 1)}, {parts}" if parts else f"{count}"
            return _Gap(f"[…{lines}]\n", lines=count)
        self._row += text.count("\n", self._at, start)
        self._at = start
        following = f"→{self._first_line + self._row + count}" if end < len(text) else ""
        return _Gap(f"[…{count}{following}]\n", lines=count)


def _lines_of(passage: Passage) -> Callable[[str], int]:
    """Return a function that counts how many original lines a part of the text represents."""
    if passage.folded:
        listing = passage.kind == TextKind.GREP
        return count_listing_lines if listing else count_log_lines
    return lambda part: part.count("\n") + (not part.endswith("\n"))


def _parts(passage: Passage, missing: str) -> str:
    """Count the commits, files, hunks or folders that begin in a gap, as in `2 files`. The count
    shows that the lines before the gap and the lines after it do not belong together."""
    if passage.folded and passage.kind == TextKind.GREP:
        return listing_parts(missing)
    if passage.kind not in (TextKind.DIFF, TextKind.GIT_LOG):
        return ""
    return changes.parts(missing, passage.kind)


def _omissions(passage: Passage, lines: int, chars: int) -> tuple[Omission, ...]:
    text = passage.text
    omissions = [
        Omission(what="lines", count=lines, total=_lines_of(passage)(text)),
        Omission(what="characters", count=chars, total=len(text)),
    ]
    return tuple([omission for omission in omissions if omission.count])


def _without_marks(
    units: Units, text: str, ordered: list[int], remaining: RemainingBudget
) -> Fitted:
    """Return the beginning of the most important unit, for a budget too small for the usual marks.
    If a line is cut, its end has a mark with the number of missing characters or, if that would
    take more than half of the budget, `…`."""
    if not ordered:
        return _beginning("", text)
    start, end = units.starts[ordered[0]], units.ends[ordered[0]]
    original = text[start:end].strip("\r\n")
    body = _piece(original, remaining)
    if body == original and (end == len(text) or text[end - 1] == "\n"):
        return _beginning(body, text)
    shorter = _piece(original, remaining.without(_cut_mark(len(text)))).removesuffix("…")
    marked = f"{shorter}{_cut_mark(len(text) - len(shorter))}"
    if len(shorter) >= len(body) // 2 and shorter and remaining.holds(marked):
        return _beginning(marked, text, len(shorter))
    return _beginning(_piece(f"{original} ", remaining), text)


def _cut_mark(chars: int) -> str:
    return f" […{chars} chars]"


def _beginning(body: str, text: str, shown: int = -1) -> Fitted:
    shown = len(body.removesuffix("…")) if shown < 0 else shown
    return Fitted(body, (Omission(what="characters", count=len(text) - shown, total=len(text)),))


def _piece(text: str, remaining: RemainingBudget) -> str:
    size = int(min(len(text), remaining.chars))
    while size > 0:
        piece = text if size == len(text) else text[: safe_cut(text, size - 1)].rstrip() + "…"
        if remaining.holds(piece):
            return piece
        size = size * 3 // 4
    return ""
