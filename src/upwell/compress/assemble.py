"""Select the units of a text that matter most within a budget, and write them in their order.

Ranking does not depend on the budget, so a larger budget selects a superset of a smaller one.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from upwell.compress.base import Fitted, RemainingBudget
from upwell.compress.relevance import Meaning, Question, lowered, places, rarity
from upwell.compress.units.base import LINES, Units
from upwell.ground.text.safe import safe_cut
from upwell.ground.text.tokens import weigh
from upwell.ground.types.compression import Omission


def order(
    relevances: Mapping[int, float],
    saliences: Sequence[float],
    costs: Sequence[float],
    share: float,
    limit: float,
) -> list[int]:
    """Order unit numbers by when to select them.

    `relevances` maps units to how well they answer the question; `saliences` and `costs` (in
    characters) hold a number for every unit. Two lists are merged as if each were spent on in
    parallel: the relevant units get `share` (0..1) of the budget, the salient ones the rest. Units
    whose turn comes after `limit` characters are left out.
    """
    turns: dict[int, float] = {}
    if relevances and share > 0.0:
        ordered = sorted(relevances, key=lambda unit: (-relevances[unit], unit))
        _schedule(turns, ordered, costs, share, limit)
    else:
        share = 0.0
    rest = sorted(range(len(saliences)), key=saliences.__getitem__, reverse=True)
    _schedule(turns, rest, costs, 1.0 - share, limit)
    return sorted(turns, key=lambda unit: (turns[unit], unit))


def _schedule(
    turns: dict[int, float],
    units: Sequence[int],
    costs: Sequence[float],
    share: float,
    limit: float,
) -> None:
    """Record in `turns` how much has been spent in all when each unit is reached, given that this
    list gets `share` of the budget."""
    if share <= 0.0:
        return
    spent = 0.0
    for unit in units:
        spent += costs[unit]
        moment = spent / share
        if moment > limit and turns:
            return
        if moment < turns.get(unit, moment + 1.0):
            turns[unit] = moment


_GAP_CHARS, _CUT_CHARS, _GAP_TOKENS = 8, 17, 7.0
"""The size of a mark between lines and inside a line, in characters, and its tokens."""
_ROUNDS = 3
"""The cost of gaps is overestimated; further rounds spend the remainder."""
_NEIGHBOUR = 0.45
_UNDER = 0.35
"""The share of a match's score that its neighbours get, and a heading's match gives its section."""


def assemble(
    text: str,
    units: Units,
    question: Question,
    remaining: RemainingBudget,
    key: str = "",
    meaning: Meaning | None = None,
) -> Fitted:
    """Select the units that matter most within `remaining`.

    Every gap is marked. The last line counts the omissions and names `key`, under which the
    original can be read.
    """
    relevances, coverage = relevance(units, text, question) if question else ({}, 0.0)
    if meaning is not None:
        starts, ends = units.starts, units.ends
        meaning.add_to(relevances, units.salience, lambda unit: text[starts[unit] : ends[unit]])
    costs = [end - start + _GAP_CHARS for start, end in zip(units.starts, units.ends, strict=True)]
    limit = min(remaining.chars, remaining.tokens * 8.0) * 1.5
    ordered = order(relevances, units.salience, costs, 0.5 + 0.4 * coverage, limit)
    note = _note(_whole(text, units), key)
    allowance = remaining.without(note)
    bought = _buy(units, text, ordered, allowance, [], 0.0, 0.0)
    result = _write(units, text, _all(bought), key)
    for _ in range(_ROUNDS - 1):
        if not remaining.holds(result.text):
            break
        chars = len(result.text) - len(note)
        tokens = weigh(result.text) - weigh(note) if remaining.tokens < math.inf else 0.0
        more = _buy(units, text, ordered, allowance, bought, chars, tokens)
        if len(more) == len(bought):
            break
        bought = more
        result = _write(units, text, _all(bought), key)
    while bought and not remaining.holds(result.text):
        del bought[-max(1, len(bought) // 20) :]
        result = _write(units, text, _all(bought), key)
    return result if bought else _without_marks(units, text, ordered, remaining)


def _all(bought: list[list[int]]) -> set[int]:
    return {unit for batch in bought for unit in batch}


def relevance(units: Units, text: str, question: Question) -> tuple[dict[int, float], float]:
    """Score the units that answer `question`.

    Returns the score of each such unit (BM25 without length normalisation, times coverage), and
    the share of the question that the best unit covers, 0..1.
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


def _hits(units: Units, text: str, question: Question) -> dict[int, list[int]]:
    """Map the number of each term that occurs to the units that contain it."""
    lowercase = lowered(text)
    starts = units.starts
    units_by_term: dict[int, list[int]] = {}
    for number, term in enumerate(question.terms):
        inside: dict[int, None] = {}
        for offset in places(term, lowercase, text):
            inside[bisect_right(starts, offset) - 1] = None
        if inside:
            units_by_term[number] = list(inside)
    return units_by_term


def _lend(units: Units, scores: dict[int, float], own: dict[int, float]) -> None:
    """Pass a part of each match's score on to its neighbours, and of a heading's to its section."""
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
    text: str,
    ordered: list[int],
    remaining: RemainingBudget,
    before: list[list[int]],
    chars: float,
    tokens: float,
) -> list[list[int]]:
    """Add units, each with the units it needs, until one does not fit.

    `before` are the batches selected so far, which cost `chars` and `tokens`. Stopping at the
    first unit that does not fit keeps the selection of a smaller budget a subset.
    """
    bought = list(before)
    selected = _all(bought)
    counts_tokens = remaining.tokens < math.inf
    starts, ends = units.starts, units.ends
    for unit in ordered:
        if unit in selected:
            continue
        batch = [need for need in dict.fromkeys((*units.needs[unit], unit)) if need not in selected]
        for member in batch:
            start, end = starts[member], ends[member]
            gap_change = (member - 1 not in selected) + (member + 1 not in selected) - 1
            whole_lines = text[end - 1] == "\n" and (start == 0 or text[start - 1] == "\n")
            chars += end - start + gap_change * (_GAP_CHARS if whole_lines else _CUT_CHARS)
            if counts_tokens:
                tokens += weigh(text[start:end]) + gap_change * _GAP_TOKENS
            selected.add(member)
        if chars > remaining.chars or tokens > remaining.tokens:
            break
        bought.append(batch)
    return bought


def _write(units: Units, text: str, selected: set[int], key: str) -> Fitted:
    starts, ends = units.starts, units.ends
    parts: list[str] = []
    gaps: list[tuple[int, int]] = []
    next_unit = 0
    for unit in sorted(selected):
        if unit > next_unit:
            gaps.append((next_unit, unit))
            parts.append(_gap(text, units, next_unit, unit))
        parts.append(text[starts[unit] : ends[unit]])
        next_unit = unit + 1
    if next_unit < len(units):
        gaps.append((next_unit, len(units)))
        parts.append(_gap(text, units, next_unit, len(units)))
    body = "".join(parts)
    if not gaps:
        return Fitted(body, ())
    omission = _omission(text, units, gaps)
    end = "" if body.endswith("\n") or not body else "\n"
    return Fitted(body + end + _note(omission, key), (omission,))


def _whole(text: str, units: Units) -> Omission:
    """Return the omission of everything. No other omission has a longer note."""
    characters = Omission(what="characters", count=len(text), total=len(text))
    return max(
        _omission(text, units, [(0, len(units))]),
        characters,
        key=lambda omission: len(str(omission)),
    )


def _omission(text: str, units: Units, gaps: Sequence[tuple[int, int]]) -> Omission:
    """Count what is missing in `gaps`, which are ranges of units.

    Counts units that have a name of their own (rows, matches), else lines that are missing as a
    whole, else characters.
    """
    if units.noun != LINES:
        missing = sum(after - first for first, after in gaps)
        return Omission(what=units.noun, count=missing, total=len(units))
    spans = [(units.starts[first], units.ends[after - 1]) for first, after in gaps]
    lines = sum(_whole_lines(text, start, end) for start, end in spans)
    if lines:
        return Omission(what=LINES, count=lines, total=_whole_lines(text, 0, len(text)))
    missing = sum(end - start for start, end in spans)
    return Omission(what="characters", count=missing, total=len(text))


def _whole_lines(text: str, start: int, end: int) -> int:
    """Count the lines that lie entirely within a range of `text`."""
    if start and text[start - 1] != "\n":
        start = text.find("\n", start, end) + 1 or end
    unended = end == len(text) and start < end and text[end - 1] != "\n"
    return text.count("\n", start, end) + unended


def _gap(text: str, units: Units, first: int, after: int) -> str:
    """Return the mark for the missing units `first` … `after - 1`; blank lines need none."""
    start, end = units.starts[first], units.ends[after - 1]
    missing = text[start:end]
    if not missing.strip():
        return missing if len(missing) <= 4 else "\n"
    breaks = missing.count("\n")
    begins_line = start == 0 or text[start - 1] == "\n"
    if breaks and (begins_line or after == len(units)):
        lead = "" if begins_line else "\n"
        return f"{lead}[…{breaks}]\n"
    return f" […{len(missing)} chars] " + ("\n" if missing.endswith("\n") else "")


def _note(omission: Omission, key: str) -> str:
    source = f'; all of it: key="{key}"' if key else ""
    return f"[{omission.count:,} of {omission.total:,} {omission.what} left out{source}]"


def _without_marks(
    units: Units, text: str, ordered: list[int], remaining: RemainingBudget
) -> Fitted:
    """Write the beginning of the most important unit, for a budget too small for any mark."""
    body, is_whole = "", 0
    if ordered:
        original = text[units.starts[ordered[0]] : units.ends[ordered[0]]].strip("\r\n")
        body = _piece(original, remaining)
        is_whole = int(body == original)
    gaps = [(0, ordered[0]), (ordered[0] + 1, len(units))] if is_whole else [(0, len(units))]
    return Fitted(body, (_omission(text, units, [gap for gap in gaps if gap[0] < gap[1]]),))


def _piece(text: str, remaining: RemainingBudget) -> str:
    """Return the beginning of a text, as much as fits."""
    size = int(min(len(text), remaining.chars))
    while size > 0:
        piece = text if size == len(text) else text[: safe_cut(text, size - 1)].rstrip() + "…"
        if remaining.holds(piece):
            return piece
        size = size * 3 // 4
    return ""
