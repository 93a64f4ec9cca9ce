"""Runs of lines in a log that are equal or alike, said once and counted.

    test a::one ... ok                  [2 lines like: test {} ... ok]
    test b::two ... ok          →       a::one
                                        b::two

Both say the same, so nothing is lost. What differs keeps its words whole: lines are compared word
by word.
"""

import re
from itertools import groupby

MIN_RUN = 4
HEAD = re.compile(r"\[(\d+) lines like: (.*)\]$")
_SLOT = "{}"
_ALIKE = 0.4
"""The share of a line that must be the same in all lines of a run, and half of its words."""


def fold(text: str) -> str:
    """`text` with every run of four equal or similar lines or more in short. A text that has
    lines like ours keeps its similar lines, so that a fold is always ours."""
    return _fold_alike(_fold_equal(text)) if not _HEADS.search(text) else _fold_equal(text)


_HEADS = re.compile(HEAD.pattern, re.M)


def _fold_equal(text: str) -> str:
    parts: list[str] = []
    for line, run in groupby(text.splitlines(keepends=True)):
        times = sum(1 for _ in run)
        if times < MIN_RUN or not line.strip():
            parts.append(line * times)
        else:
            end = line[len(line.rstrip("\r\n")) :] or "\n"
            parts.append(
                f"{line.rstrip(chr(10) + chr(13))}{end}[the line above {times:,} times]{end}"
            )
    return "".join(parts)


def _fold_alike(text: str) -> str:
    rows = text.split("\n")
    words = [row.split(" ") for row in rows]
    sizes = [len(row) for row in words]
    folded: list[str] = []
    at = 0
    while at < len(rows):
        if sizes[at : at + MIN_RUN].count(sizes[at]) < MIN_RUN:
            folded.append(rows[at])
            at += 1
            continue
        after, same = _run(words, at)
        if after - at < MIN_RUN or any(_SLOT in words[at][place] for place in same):
            folded.append(rows[at])
            at += 1
            continue
        shape = [word if place in same else _SLOT for place, word in enumerate(words[at])]
        folded.append(f"[{after - at} lines like: {' '.join(shape)}]")
        for row in words[at:after]:
            folded.append(" ".join([word for place, word in enumerate(row) if place not in same]))
        at = after
    return "\n".join(folded)


def _run(words: list[list[str]], first: int) -> tuple[int, set[int]]:
    """Where the lines that are like line `first` end, and which words they have in common."""
    model = words[first]
    enough = _ALIKE * sum(map(len, model))
    same = set(range(len(model)))
    after = first + 1
    while after < len(words) and len(words[after]) == len(model):
        row = words[after]
        still = {place for place in same if row[place] == model[place]}
        if len(still) == len(model) or 2 * len(still) < len(model):
            break
        if sum([len(model[place]) for place in still]) < enough:
            break
        same = still
        after += 1
    return after, same
