"""Records that are kept whole: of many like objects that make no table, some of them as they are
tell a reader more than one key of each."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, MutableSequence
from math import log2
from statistics import fmean

from upwell.compress.json.outline import Outline
from upwell.compress.json.rows import Tables
from upwell.compress.json.tree import ARRAY, OBJECT, Node

MANY = 20
"""Objects from which some stand for all."""
_LONGEST = 60
"""Values of a record that may still be kept as one."""
_LATER, _ENDS, _ODD = 0.25, 1.0, 0.5
"""What a record loses with each doubling of those before it; what the first and the last gain; what
counts of by how much its oddest value stands out."""
_TIE = 1e-6


def together(doc: Outline, needed: MutableSequence[float], tables: Tables) -> None:
    """Give the values of a record one worth in `needed`, so that records are bought one after the
    other: the first, the last, those with a value unlike that of the others."""
    for array in _arrays(doc, tables):
        first, after = bisect_left(doc.starts, array.start), bisect_left(doc.starts, array.end)
        if after - first > _LONGEST * len(array.items):
            continue
        by_path: dict[int, list[float]] = defaultdict(list)
        for unit in range(first, after):
            by_path[doc.nodes[unit].path].append(needed[unit])
        usual = {path: fmean(worth) for path, worth in by_path.items()}
        common = fmean(needed[first:after])
        for place, record in enumerate(array.items):
            units = range(
                bisect_left(doc.starts, record.start), bisect_left(doc.starts, record.end)
            )
            odd = max((needed[unit] - usual[doc.nodes[unit].path] for unit in units), default=0.0)
            last = place == len(array.items) - 1
            stands = _ENDS if last or not place else -_LATER * log2(1 + place)
            worth = common + _ODD * odd + stands
            for rank, unit in enumerate(units):
                needed[unit] = worth - _TIE * (place + rank / 1e3)


def _arrays(doc: Outline, tables: Tables) -> Iterator[Node]:
    """Arrays of many objects that are no tables, outer ones first."""
    end = -1
    for box in doc.boxes:
        if box.kind != ARRAY or len(box.items) < MANY or box.start < end:
            continue
        if tables.of(box) is None and all(item.kind == OBJECT for item in box.items):
            yield box
            end = box.end
