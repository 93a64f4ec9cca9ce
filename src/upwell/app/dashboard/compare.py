"""Compares the original of a shortened result with the text that the agent saw.

JSON is compared value by value, because shortening changes its line breaks and the order of its
fields. In other texts, the marks tell what was left out: each counts the lines or characters that
are missing at its place, so no line is looked up by its content, and of many equal lines, exactly
those that were left out count as left out. A text without such marks is compared line by line, or
word by word if its lines are long.
"""

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby, islice
from typing import Any

from msgspec import Struct

from upwell.compress import folding
from upwell.compress.folding import without_numbers
from upwell.compress.json.rows import NONE, SIGN
from upwell.ground.text.safe import clip
from upwell.ground.types.compression import Passage

_LINES = re.compile(r"\[…(\d{1,9})(?:→(\d{1,9})| lines?, \d{1,9} \w{1,20})?\]")
_CHARS = re.compile(r" \[…(\d{1,9}) chars\] ")
_NOTE = re.compile(r"\[[\d,]{1,20} of [\d,]{1,20} ")


class OriginalGap(Struct, frozen=True):
    """A part of the original that was left out: the lines `first` … `last - 1`, or the characters
    `start` … `end - 1` of the line `first`."""

    first: int
    last: int
    start: int = 0
    end: int = 0


def gaps_of(original: str, seen: str) -> list[OriginalGap] | None:
    """The gaps in a shortened text, in order. Lines and characters are counted from 0. Returns None
    if the marks do not add up to the original, as in a summary."""
    rows = original.removesuffix("\n").split("\n")
    *shown, last = seen.removesuffix("\n").split("\n")
    if not (_NOTE.match(last) and " left out" in last and last.endswith("]")):
        return None
    first_line = without_numbers(Passage(text=original)).first_line
    for lines_in in (lambda line: 1, folding.count_log_lines, folding.count_listing_lines):
        gaps = _walked_rows(rows, shown, lines_in, 1 if first_line is None else first_line)
        if gaps is not None:
            return gaps
    return None


def _walked_rows(
    rows: Sequence[str], shown: Sequence[str], lines_in: Callable[[str], int], first_line: int
) -> list[OriginalGap] | None:
    """Go through both texts at the same pace. `lines_in()` tells how many lines of the original a
    shown line stands for."""
    gaps: list[OriginalGap] = []
    at = 0
    for line in shown:
        if mark := _LINES.fullmatch(line):
            gaps.append(OriginalGap(at, at + int(mark[1])))
            at += int(mark[1])
            if mark[2] and at + first_line != int(mark[2]):
                return None
            continue
        if line.strip():
            at = _after_blanks(rows, at)
        elif at < len(rows) and rows[at].strip():
            continue
        if at < len(rows):
            gaps += _within(at, rows[at], line)
        at += lines_in(line)
    return gaps if _after_blanks(rows, at) == len(rows) else None


def _after_blanks(rows: Sequence[str], at: int) -> int:
    """Skip empty lines: a text shows only one of several."""
    while at < len(rows) and not rows[at].strip():
        at += 1
    return at


def _within(number: int, row: str, line: str) -> Iterator[OriginalGap]:
    pieces = _CHARS.split(line)
    at = 0
    for piece, missing in zip(pieces[::2], pieces[1::2], strict=False):
        if not row.startswith(piece, at):
            return
        start = at + len(piece)
        at = start + int(missing)
        yield OriginalGap(number, number + 1, start, at)


ROW_CHARS = 100
"""Objects and lists longer than this are laid out with line breaks."""
MAX_DEPTH = 40
"""The deepest indentation, in levels."""
_TOKEN = re.compile(
    r'("(?:[^"\\]|\\.)*+"?)(\s*+:)?|([\[{])|([\]}])|(,)|([^\s\[\]{},"]++)', re.DOTALL
)
_START = re.compile(r"\s*+[\[{]")
_LINES_TRIED = 20
_LAST_CHARS = 50_000
"""If the end of valid JSON was cut off, the first syntax error is assumed to be at most this many
characters before the cut."""

Value = tuple[str, str]
"""A value's key ("" if it has none), and the value. Strings begin with a quotation mark, which
distinguishes them from numbers."""


class Piece(Struct):
    """A bracket, or a value with its name, and the white space (`gap`) before the next piece. A
    bracket has a `value` only if it opens an empty object or list. `until` is the index of the
    piece that closes this bracket, -1 for a closing bracket, and 0 for a value. If no piece closes
    the bracket, `until` is large."""

    text: str
    value: Value | None = None
    until: int = 0
    gap: str = ""


class _Number(str):
    """A number as it is written in the text."""


def is_json(text: str, *, is_cut: bool) -> bool:
    """True for an object, a list, or lines that each contain one of these. Of many lines, only the
    first are checked. If `is_cut`, `text` is the beginning of a longer text."""
    if not _START.match(text):
        return False
    try:
        json.loads(text)
    except RecursionError:
        return False
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            lines = [line for line in text.splitlines()[:_LINES_TRIED] if line.strip()]
            return all(map(_is_document, lines[:-1] if is_cut and len(lines) > 1 else lines))
        return is_cut and error.pos > len(text) - _LAST_CHARS
    return True


def _is_document(line: str) -> bool:
    try:
        return bool(_START.match(line)) and json.loads(line) is not None
    except (json.JSONDecodeError, RecursionError):
        return False


def values_of(text: str) -> list[Value]:
    """The values of shortened JSON. The key of a value in a table is the name of its column. If the
    text is not JSON, the values of its JSON parts are returned."""
    values: list[Value] = []
    try:
        try:
            documents = [_loaded(text)]
        except json.JSONDecodeError:
            documents = [_loaded(line) for line in text.splitlines() if line.strip()]
        for document in documents:
            values += _walked(document, "")
    except (json.JSONDecodeError, RecursionError):
        return [piece.value for piece in pieces_of(text, len(text)) if piece.value]
    return values


def _loaded(text: str) -> Any:
    return json.loads(text, parse_int=_Number, parse_float=_Number)


def _walked(node: Any, key: str) -> Iterator[Value]:
    if isinstance(node, dict):
        for name, child in node.items():
            if name not in (SIGN, NONE):
                yield from _walked(child, name)
        if not node:
            yield key, "{}"
    elif isinstance(node, list):
        if node and isinstance(node[0], dict) and node[0].get(SIGN) == "table":
            yield from _table_rows(node[0], node[1:], key)
            return
        for child in node:
            yield from _walked(child, key)
        if not node:
            yield key, "[]"
    else:
        yield key, _value(node)


def _table_rows(head: Mapping[str, Any], rows: Sequence[Any], key: str) -> Iterator[Value]:
    columns = [str(name).rpartition(".")[2] for name in head.get("columns", ())]
    same = {name.rpartition(".")[2]: value for name, value in head.get("same", {}).items()}
    for row in rows:
        if not isinstance(row, list):
            yield from _walked(row, key)
            continue
        for index, cell in enumerate(row):
            if cell != NONE:
                yield from _walked(cell, columns[index] if index < len(columns) else key)
        for name, value in same.items():
            yield from _walked(value, name)


def _value(node: Any) -> str:
    if isinstance(node, _Number):
        return str(node)
    return f'"{node}' if isinstance(node, str) else json.dumps(node)


def pieces_of(text: str, limit: int) -> list[Piece]:
    """The first `limit` pieces of a JSON text. Objects and lists that do not fit in a row have line
    breaks. The text may be incomplete, or not be JSON at all."""
    pieces = _pieces(text, limit)
    _add_gaps(pieces)
    return pieces


def _pieces(text: str, limit: int) -> list[Piece]:
    pieces: list[Piece] = []
    brackets: list[tuple[int, str]] = []
    name, key = "", ""
    for match in _TOKEN.finditer(text):
        if len(pieces) == limit:
            break
        string, colon, opening, closing, comma, word = match.groups()
        if colon:
            name, key = f"{string}: ", _unquoted(string)
            continue
        if comma:
            if pieces:
                pieces[-1].text += ","
            continue
        own_key = key if name else (brackets[-1][1] if brackets else "")
        if opening:
            brackets.append((len(pieces), own_key))
            pieces.append(Piece(name + opening, until=len(text)))
        elif closing:
            if brackets:
                start, own_key = brackets.pop()
                pieces[start].until = len(pieces)
                if start == len(pieces) - 1:
                    pieces[start].value = own_key, pieces[start].text[-1] + closing
            pieces.append(Piece(closing, until=-1))
        else:
            value = f'"{_unquoted(string)}' if string else word
            pieces.append(Piece(name + (string or word), (own_key, value)))
        name = key = ""
    return pieces


def _unquoted(string: str) -> str:
    if "\\" not in string:
        return string.strip('"')
    try:
        return str(json.loads(string))
    except json.JSONDecodeError:
        return string.strip('"')


def _add_gaps(pieces: Sequence[Piece]) -> None:
    sizes = [0, *accumulate(len(piece.text) for piece in pieces)]
    is_long: list[bool] = []
    for number, piece in enumerate(pieces):
        if piece.until > 0:
            end = min(piece.until, len(pieces) - 1)
            is_long.append(sizes[end + 1] - sizes[number] > ROW_CHARS)
        elif piece.until < 0 and is_long:
            is_long.pop()
        ends_list = number + 1 < len(pieces) and pieces[number + 1].until < 0
        if not is_long or is_long[-1]:
            piece.gap = "\n" + "  " * min(MAX_DEPTH, len(is_long) - ends_list)
        elif piece.until <= 0 and not ends_list:
            piece.gap = " "


MAX_LINES = 4_000
MAX_LINE_CHARS, MAX_CHARS = 4_000, 1_000_000
"""The maximum number of characters shown in a line (or in an unseen word or value) and in a whole
text. More would slow the browser down."""
MAX_PIECES = 50_000
"""At most this many values or words are compared, which takes a second or two."""
LONG_LINE_CHARS = 200
"""If the lines of a text are longer than this on average, it is compared word by word."""
MIN_WORDS = 3
"""A shorter run of seen words counts as a coincidence, unless it begins or ends the text."""
MIN_BEGINNING_CHARS, MAX_SIMILAR = 20, 20
"""Clipped values are looked up by their first `MIN_BEGINNING_CHARS` characters. At most
`MAX_SIMILAR` values that share these characters are remembered."""
_WORD = re.compile(r"\S++\s*+")
_CLIPPED = re.compile(r"(.+)…(?:\(\+[\d,]+\))?", re.DOTALL)

Part = tuple[str, bool]
"""A part of the original, and whether the agent saw it."""


def compared(original: str, seen: str, left_out: str) -> Mapping[str, Any]:
    """The original as `blocks`, each of which the agent either saw or did not see. A block of whole
    lines has the numbers of the `first` and the `last`. `left_out` is the count in the notice, and
    the only one. If `is_cut`, the blocks do not show the whole original. If `is_rewritten`, an
    unseen block may be in the text in other words. Tens of megabytes take a second, so call this
    function in a thread."""
    beginning = original[:MAX_CHARS]
    is_partial = len(original) > MAX_CHARS
    page = {"left_out": left_out, "seen": seen, "is_json": False, "is_rewritten": False}
    if is_json(beginning, is_cut=is_partial):
        return {**page, **_by_value(beginning, seen, is_partial), "is_json": True}
    gaps = gaps_of(original, seen)
    if gaps is not None:
        return {**page, **_by_gap(original, gaps)}
    if len(original) > LONG_LINE_CHARS * (1 + original.count("\n")):
        return {**page, **_by_word(beginning, seen, is_partial)}
    return {**page, **_by_gap(original, _by_line(original, seen)), "is_rewritten": True}


def _by_line(original: str, seen: str) -> list[OriginalGap]:
    rows = [line.strip() for line in original.removesuffix("\n").split("\n")[:MAX_PIECES]]
    marks = found(rows, [line.strip() for line in seen.split("\n")])
    runs = (
        list(run) for is_seen, run in groupby(range(len(rows)), marks.__getitem__) if not is_seen
    )
    return [OriginalGap(run[0], run[-1] + 1) for run in runs]


def _by_gap(original: str, gaps: Sequence[OriginalGap]) -> Mapping[str, Any]:
    rows = original.split("\n")
    blocks: list[dict[str, Any]] = []
    row = column = 0

    def show(until: int, at: int = 0, **block: Any) -> None:
        """Add a block that extends to character `at` of the line `until`."""
        nonlocal row, column
        lines = [*rows[row:until], *(rest[:at] for rest in rows[until : until + 1])] or [""]
        lines[0] = lines[0][column:]
        blocks.append({"text": "\n".join(clip(line, MAX_LINE_CHARS) for line in lines), **block})
        row, column = until, at

    for gap in gaps:
        show(gap.first, gap.start, seen=True)
        whole = {} if gap.end else {"first": gap.first + 1, "last": gap.last}
        show(gap.first if gap.end else gap.last, gap.end, seen=False, **whole)
    show(len(rows), seen=True)
    shown = _within_limits([block for block in blocks if block["text"]])
    is_cut = sum(len(block["text"]) for block in shown) < len(original)
    return {"blocks": shown, "is_cut": is_cut}


def _within_limits(blocks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    shown = []
    lines, chars = MAX_LINES, MAX_CHARS
    for block in blocks:
        text = "\n".join(block["text"].split("\n")[:lines])[:chars]
        shown.append({**block, "text": text})
        if text != block["text"]:
            break
        lines -= text.count("\n")
        chars -= len(text)
    return shown


def _by_word(original: str, seen: str, is_partial: bool) -> Mapping[str, Any]:
    found_words = (match.group() for match in _WORD.finditer(original))
    words = list(islice(found_words, MAX_PIECES))
    is_partial |= next(found_words, None) is not None
    marks = _without_coincidences(found([word.strip() for word in words], seen.split()))
    parts = [
        (word if is_seen else clip(word, MAX_LINE_CHARS), is_seen)
        for word, is_seen in zip(words, marks, strict=True)
    ]
    is_cut = is_partial or any(len(word) > MAX_LINE_CHARS for word in words)
    return {"blocks": _joined(parts), "is_cut": is_cut}


def _without_coincidences(marks: Sequence[bool]) -> list[bool]:
    kept: list[bool] = []
    for is_seen, group in groupby(marks):
        size = len(list(group))
        is_between = 0 < len(kept) < len(marks) - size
        kept += [is_seen and not (is_between and size < MIN_WORDS)] * size
    return kept


def _by_value(original: str, seen: str, is_partial: bool) -> Mapping[str, Any]:
    pieces = pieces_of(original, MAX_PIECES)
    is_partial |= len(pieces) == MAX_PIECES
    shown = values_of(seen)
    marks = found([piece.value for piece in pieces if piece.value], shown)
    parts = _parts(pieces, marks, _beginnings(shown))
    lines = list(accumulate(piece.gap.count("\n") for piece in pieces))
    in_view = bisect_left(lines, MAX_LINES)
    return {
        "blocks": _joined(_spaced(pieces[:in_view], parts)),
        "is_cut": is_partial or in_view < len(pieces),
    }


def _parts(
    pieces: Sequence[Piece], marks: Sequence[bool], beginnings: Mapping[str, Sequence[str]]
) -> list[list[Part]]:
    """A bracket counts as seen if anything between it and its counterpart was seen."""
    upcoming = iter(marks)
    parts: list[list[Part]] = []
    seen_so_far = [0]
    for piece in pieces:
        is_seen = piece.value is not None and next(upcoming)
        part = _split(piece, is_seen, beginnings)
        parts.append(part)
        seen_so_far.append(seen_so_far[-1] + any(is_seen for _, is_seen in part))
    for number, piece in enumerate(pieces):
        if piece.until > 0:
            end = min(piece.until, len(pieces) - 1)
            is_seen = seen_so_far[end + 1] > seen_so_far[number]
            for bracket in {number, end}:
                if bracket == number or pieces[bracket].until < 0:
                    parts[bracket] = [(text, is_seen) for text, _ in parts[bracket]]
    return parts


def _split(piece: Piece, is_seen: bool, beginnings: Mapping[str, Sequence[str]]) -> list[Part]:
    """Split a value if the agent saw only its beginning."""
    text = piece.text
    if not is_seen and piece.value and piece.value[1].startswith('"'):
        value = piece.value[1][1:]
        for beginning in beginnings.get(value[:MIN_BEGINNING_CHARS], ()):
            written = json.dumps(beginning, ensure_ascii=False)[1:-1]
            start = text.find(written)
            if value.startswith(beginning) and start >= 0:
                end = start + len(written)
                rest = clip(text[end:], MAX_LINE_CHARS)
                return [(text[:end], True), (rest, False)]
    return [(text if is_seen else clip(text, MAX_LINE_CHARS), is_seen)]


def _spaced(pieces: Sequence[Piece], parts: Sequence[Sequence[Part]]) -> list[Part]:
    """Insert the gaps between the parts. A gap between two unseen parts counts as unseen."""
    spaced: list[Part] = []
    for number, piece in enumerate(pieces):
        spaced += parts[number]
        is_seen = parts[number][-1][1] or (number + 1 < len(parts) and parts[number + 1][0][1])
        spaced.append((piece.gap, is_seen))
    return spaced


def _beginnings(shown: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    beginnings: dict[str, list[str]] = {}
    for _, value in shown:
        if (match := _CLIPPED.fullmatch(value)) and len(match[1]) > MIN_BEGINNING_CHARS:
            beginning = match[1].removeprefix('"')
            similar = beginnings.setdefault(beginning[:MIN_BEGINNING_CHARS], [])
            if len(similar) < MAX_SIMILAR:
                similar.append(beginning)
    return beginnings


def _joined(parts: Sequence[Part]) -> list[dict[str, Any]]:
    return [
        {"seen": is_seen, "text": "".join(text for text, _ in group)}
        for is_seen, group in groupby(parts, lambda part: part[1])
    ]


def found(original: Sequence[Hashable], seen: Sequence[Hashable]) -> list[bool]:
    """Tell for each item of `original` whether it is found in `seen`. An item that occurs exactly
    once in `original` and once in `seen` counts as found. The joints are the longest sequence of
    such items that is in the same order in both. From each joint, equal items are matched in both
    directions, up to the first difference. Any other item is found if `seen` has an equal,
    unmatched item between the same two joints or in a neighbouring interval. Takes O(n log n)
    time."""
    joints = [(-1, -1), *_joints(original, seen), (len(original), len(seen))]
    unique = _places(original).keys() & _places(seen).keys()
    marks = [item in unique for item in original]
    taken = [item in unique for item in seen]
    for step in (1, -1):
        for joint in joints:
            place, other = (at + step for at in joint)
            while 0 <= place < len(original) and 0 <= other < len(seen):
                if marks[place] or taken[other] or original[place] != seen[other]:
                    break
                marks[place] = taken[other] = True
                place, other = place + step, other + step
    _find_between(joints, (original, marks), (seen, taken))
    return marks


def _find_between(
    joints: Sequence[tuple[int, int]],
    original: tuple[Sequence[Hashable], list[bool]],
    seen: tuple[Sequence[Hashable], Sequence[bool]],
) -> None:
    ends = [other for _, other in joints]
    stretches: list[Counter[Hashable]] = [Counter() for _ in joints]
    for other, (item, is_taken) in enumerate(zip(*seen, strict=True)):
        if not is_taken:
            stretches[bisect_left(ends, other)][item] += 1
    starts = [place for place, _ in joints]
    items, marks = original
    for distance in (0, -1, 1):
        for place, item in enumerate(items):
            stretch = bisect_left(starts, place) + distance
            if not marks[place] and 0 <= stretch < len(stretches) and stretches[stretch][item]:
                stretches[stretch][item] -= 1
                marks[place] = True


def _places(items: Sequence[Hashable]) -> dict[Hashable, int]:
    counts = Counter(items)
    return {item: place for place, item in enumerate(items) if counts[item] == 1}


def _joints(original: Sequence[Hashable], seen: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Find the joints for `found()` by patience sorting. Returns each joint's position in both
    texts."""
    places = _places(seen)
    pairs = [(place, places[item]) for item, place in _places(original).items() if item in places]
    tops: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for number, (_, place) in enumerate(pairs):
        pile = bisect_left(tops, place)
        tops[pile : pile + 1] = [place]
        ends[pile : pile + 1] = [number]
        before.append(ends[pile - 1] if pile else -1)
    joints = []
    number = ends[-1] if ends else -1
    while number >= 0:
        joints.append(pairs[number])
        number = before[number]
    return joints[::-1]
