"""A text of units fitted to a budget: the units that matter, in order, gaps marked in place."""

import math
from bisect import bisect_right
from collections.abc import Sequence

from upwell.compress.fitted import Fitted, Room
from upwell.compress.meaning import Meaning
from upwell.compress.relevance import Question, lowered, places, rarity
from upwell.compress.spend import order
from upwell.compress.units.base import LINES, Units
from upwell.ground.text.safe import safe_cut
from upwell.ground.text.tokens import weigh
from upwell.ground.types import Omission

_GAP_CHARS, _CUT_CHARS, _GAP_TOKENS = 8, 17, 7.0
"""What a mark costs between lines, and inside of one."""
_ROUNDS = 3
"""Gaps are estimated from above; what is left over is spent in further rounds."""
_NEIGHBOUR = 0.45
_UNDER = 0.35
"""What a match in a heading is worth to what stands under it."""


def assemble(
    text: str,
    units: Units,
    question: Question,
    room: Room,
    key: str = "",
    meaning: Meaning | None = None,
) -> Fitted:
    """Keep the units that matter most, within `room`, with a mark at every gap and the count
    (and the key under which all of it can be read) at the end."""
    asked, coverage = relevance(units, text, question) if question else ({}, 0.0)
    if meaning is not None:
        starts, ends = units.starts, units.ends
        meaning.add_to(asked, units.salience, lambda unit: text[starts[unit] : ends[unit]])
    costs = [end - start + _GAP_CHARS for start, end in zip(units.starts, units.ends, strict=True)]
    limit = min(room.chars, room.tokens * 8.0) * 1.5
    wanted = order(asked, units.salience, costs, 0.5 + 0.4 * coverage, limit)
    note = _note(_whole(text, units), key)
    purse = room.without(note)
    bought = _buy(units, text, wanted, purse, [], 0.0, 0.0)
    result = _write(units, text, _all(bought), key)
    for _ in range(_ROUNDS - 1):
        if not room.holds(result.text):
            break
        chars = len(result.text) - len(note)
        tokens = weigh(result.text) - weigh(note) if room.tokens < math.inf else 0.0
        more = _buy(units, text, wanted, purse, bought, chars, tokens)
        if len(more) == len(bought):
            break
        bought = more
        result = _write(units, text, _all(bought), key)
    while bought and not room.holds(result.text):
        del bought[-max(1, len(bought) // 20) :]
        result = _write(units, text, _all(bought), key)
    return result if bought else _without_marks(units, text, wanted, room)


def _all(bought: list[list[int]]) -> set[int]:
    return {unit for batch in bought for unit in batch}


def relevance(units: Units, text: str, question: Question) -> tuple[dict[int, float], float]:
    """How well each unit answers `question`, for those that do at all, and in 0..1 how much of
    the question the best one covers (BM25 without a term for length, times coverage)."""
    hits = _hits(units, text, question)
    weights = {
        number: question.terms[number].weight * rarity(len(units), len(found))
        for number, found in hits.items()
    }
    totals: dict[int, float] = {}
    for number, found in hits.items():
        weight = weights[number]
        for unit in found:
            totals[unit] = totals.get(unit, 0.0) + weight
    whole = sum(
        weights.get(number, rarity(len(units), 0))
        for number, term in enumerate(question.terms)
        if term.weight >= 1.0
    )
    scores = {
        unit: total * (0.4 + 0.6 * min(1.0, total / whole if whole else 0.0))
        for unit, total in totals.items()
    }
    best = max(scores.values(), default=0.0)
    _lend(units, scores, dict(scores))
    return scores, min(1.0, best / whole) if whole else 0.0


def _hits(units: Units, text: str, question: Question) -> dict[int, list[int]]:
    """For each term, by number: the units it stands in."""
    low = lowered(text)
    starts = units.starts
    found: dict[int, list[int]] = {}
    for number, term in enumerate(question.terms):
        inside: dict[int, None] = {}
        for at in places(term, low, text):
            inside[bisect_right(starts, at) - 1] = None
        if inside:
            found[number] = list(inside)
    return found


def _lend(units: Units, scores: dict[int, float], own: dict[int, float]) -> None:
    """A match is worth something to its neighbours, and a heading's to what stands under it."""
    size = len(units)
    for unit, score in own.items():
        worth = score
        for step in range(1, units.reach + 1):
            worth *= _NEIGHBOUR
            before, behind = unit - step, unit + step
            if before >= 0 and worth > scores.get(before, 0.0):
                scores[before] = worth
            if behind < size and worth > scores.get(behind, 0.0):
                scores[behind] = worth
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
    wanted: list[int],
    room: Room,
    before: list[list[int]],
    chars: float,
    tokens: float,
) -> list[list[int]]:
    """Take units, each with what it needs, until one does not fit. `before` are those taken
    already, which cost `chars` and `tokens`."""
    bought = list(before)
    kept = _all(bought)
    counting = room.tokens < math.inf
    starts, ends = units.starts, units.ends
    for unit in wanted:
        if unit in kept:
            continue
        batch = [need for need in dict.fromkeys((*units.needs[unit], unit)) if need not in kept]
        for member in batch:
            start, end = starts[member], ends[member]
            alone = (member - 1 not in kept) + (member + 1 not in kept) - 1
            whole_lines = text[end - 1] == "\n" and (start == 0 or text[start - 1] == "\n")
            chars += end - start + alone * (_GAP_CHARS if whole_lines else _CUT_CHARS)
            if counting:
                tokens += weigh(text[start:end]) + alone * _GAP_TOKENS
            kept.add(member)
        if chars > room.chars or tokens > room.tokens:
            break
        bought.append(batch)
    return bought


def _write(units: Units, text: str, kept: set[int], key: str) -> Fitted:
    starts, ends = units.starts, units.ends
    parts: list[str] = []
    gaps: list[tuple[int, int]] = []
    following = 0
    for unit in sorted(kept):
        if unit > following:
            gaps.append((following, unit))
            parts.append(_gap(text, units, following, unit))
        parts.append(text[starts[unit] : ends[unit]])
        following = unit + 1
    if following < len(units):
        gaps.append((following, len(units)))
        parts.append(_gap(text, units, following, len(units)))
    body = "".join(parts)
    if not gaps:
        return Fitted(body, ())
    omission = _omission(text, units, gaps)
    end = "" if body.endswith("\n") or not body else "\n"
    return Fitted(body + end + _note(omission, key), (omission,))


def _whole(text: str, units: Units) -> Omission:
    """What is missing where nothing is kept: no note is longer than that of this."""
    characters = Omission(what="characters", count=len(text), total=len(text))
    return max(_omission(text, units, [(0, len(units))]), characters, key=lambda one: len(str(one)))


def _omission(text: str, units: Units, gaps: Sequence[tuple[int, int]]) -> Omission:
    """What is missing in these gaps, each from one unit to before another. Lines are counted as
    they stand in the text, those of which nothing is left; characters where every line has
    something left."""
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
    """How many lines stand in a stretch of `text` from their first character to their last."""
    if start and text[start - 1] != "\n":
        start = text.find("\n", start, end) + 1 or end
    unended = end == len(text) and start < end and text[end - 1] != "\n"
    return text.count("\n", start, end) + unended


def _gap(text: str, units: Units, first: int, after: int) -> str:
    """The mark where units `first` … `after - 1` are missing; nothing for mere blank lines."""
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
    where = f'; all of it: key="{key}"' if key else ""
    return f"[{omission.count:,} of {omission.total:,} {omission.what} left out{where}]"


def _without_marks(units: Units, text: str, wanted: list[int], room: Room) -> Fitted:
    """As much of the unit that matters most as fits, for a budget too small for it and its
    marks."""
    body, kept = "", 0
    if wanted:
        whole = text[units.starts[wanted[0]] : units.ends[wanted[0]]].strip("\r\n")
        body = _piece(whole, room)
        kept = int(body == whole)
    gaps = [(0, wanted[0]), (wanted[0] + 1, len(units))] if kept else [(0, len(units))]
    return Fitted(body, (_omission(text, units, [gap for gap in gaps if gap[0] < gap[1]]),))


def _piece(whole: str, room: Room) -> str:
    """The beginning of a text, as much as fits."""
    size = int(min(len(whole), room.chars))
    while size > 0:
        piece = whole if size == len(whole) else whole[: safe_cut(whole, size - 1)].rstrip() + "…"
        if room.holds(piece):
            return piece
        size = size * 3 // 4
    return ""
