"""Fold runs of equal or similar log lines.

    test a::one ... ok                  [4 lines like: test {} ... ok]
    test a::two ... ok          →       a::one
    test b::one ... ok                  a::two
    test b::two ... ok                  b::one
                                        b::two

Nothing is lost: the head line contains the common words and the number of lines, and each line
below it contains the words that differ.
"""

import re
from itertools import groupby

MIN_RUN = 4
HEAD = re.compile(r"\[(\d+) lines like: (.*)\]$")
_REPEATS = re.compile(r"^\[the line above ([\d,]+) times\]\r?$", re.M)
_SLOT = "{}"
_ALIKE = 0.4
"""In a run, all lines share at least this proportion of their characters, and half of their words.
"""


def fold(text: str) -> str:
    """Fold runs of at least four equal or similar lines.

    If the text already contains lines that look like heads, only equal lines are folded, because
    readers could not tell these lines from heads written here.
    """
    return _fold_alike(_fold_equal(text)) if not _HEADS.search(text) else _fold_equal(text)


_HEADS = re.compile(rf"^{HEAD.pattern}", re.M)


def count_lines(text: str) -> int:
    """Count the lines of the original that the lines of a folded log represent."""
    rows = text.removesuffix("\n").split("\n")
    heads = [row for row in rows if row.startswith("[") and HEAD.match(row)]
    repeats = [int(match[1].replace(",", "")) - 1 for match in _REPEATS.finditer(text)]
    return len(rows) - len(heads) + sum(repeats) - len(repeats)


def _fold_equal(text: str) -> str:
    parts: list[str] = []
    for line, run in groupby(text.splitlines(keepends=True)):
        count = sum(1 for _ in run)
        if count < MIN_RUN or not line.strip():
            parts.append(line * count)
        else:
            end = line[len(line.rstrip("\r\n")) :] or "\n"
            parts.append(
                f"{line.rstrip(chr(10) + chr(13))}{end}[the line above {count:,} times]{end}"
            )
    return "".join(parts)


def _fold_alike(text: str) -> str:
    rows = text.split("\n")
    words = [row.split(" ") for row in rows]
    sizes = [len(row) for row in words]
    folded: list[str] = []
    number = 0
    while number < len(rows):
        if sizes[number : number + MIN_RUN].count(sizes[number]) < MIN_RUN:
            folded.append(rows[number])
            number += 1
            continue
        after, same = _run(words, number)
        if after - number < MIN_RUN or any(_SLOT in words[number][column] for column in same):
            folded.append(rows[number])
            number += 1
            continue
        shape = [word if column in same else _SLOT for column, word in enumerate(words[number])]
        folded.append(f"[{after - number} lines like: {' '.join(shape)}]")
        for row in words[number:after]:
            folded.append(" ".join([word for column, word in enumerate(row) if column not in same]))
        number = after
    return "\n".join(folded)


def _run(words: list[list[str]], first: int) -> tuple[int, set[int]]:
    """Return the end of the run of similar lines that begins at line `first`, and the positions of
    the words that they share."""
    first_words = words[first]
    enough = _ALIKE * sum(map(len, first_words))
    same = set(range(len(first_words)))
    after = first + 1
    while after < len(words) and len(words[after]) == len(first_words):
        row = words[after]
        common = {column for column in same if row[column] == first_words[column]}
        if len(common) == len(first_words) or 2 * len(common) < len(first_words):
            break
        if sum([len(first_words[column]) for column in common]) < enough:
            break
        same = common
        after += 1
    return after, same
