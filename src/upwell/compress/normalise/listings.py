"""Fold lists of paths and search results without loss, so that each folder or file appears once.

    src/harbor/crane.py            src/harbor/
    src/harbor/quay.py      →       crane.py
                                    quay.py

    src/crane.py:12:import os      src/crane.py:
    src/crane.py:40:os.nice()  →   12:import os
                                   40:os.nice()

A line that ends with `/` is a folder, and the lines below it that begin with a space are its
entries. A line that ends with `:` is a file, and the numbered lines below it are its matches.
"""

import os.path
import re
from collections import Counter

_MATCH = re.compile(
    r"((?:[A-Za-z]:)?[^\s:]++):(?=\d++:)|((?:[A-Za-z]:)?[^\s:]+?\.[A-Za-z]\w{0,8})-(?=\d++-)"
)
_ENTRY = re.compile(r"(\.{0,2}/(?:[^\s:/]++/)*+|(?:[^\s:/]++/)++)(?=[^\s/])")
_LIKE_MEMBER = re.compile(r"\d+[:-]|[ \t]+\S")
"""Matches a line that looks like an entry in a folder or a match in a file."""
_ABSOLUTE = re.compile(r"/|[A-Za-z]:[\\/]")
_MOST = 0.6
_NUMBER = re.compile(r"\d++")
_MAX_PATH = 1_000
_SAMPLE_ROWS, _LIKELY = 100, 0.4
FOLDER, FILE = "/", ":"


def fold(text: str, *, matches: bool = True) -> str:
    """Fold a list of paths or, with `matches`, search results.

    Returns the same text if it is neither, or if folding does not shorten it. If there is a
    question, callers leave search results unfolded, so that the agent can quote each match with its
    file and line.
    """
    rows = text.split("\n")
    forms = [form for form in _FORMS if _is_likely(rows, form[0])]
    filled = sum(1 for row in rows if row.strip()) if forms else 0
    for pattern, render in forms:
        heads = [pattern.match(row) for row in rows]
        if sum(1 for head in heads if head) <= _MOST * filled:
            continue
        if pattern is _MATCH and not matches:
            return text
        others = [row for row, head in zip(rows, heads, strict=True) if head is None]
        if not any(_LIKE_MEMBER.match(row) or row.endswith((FOLDER, FILE)) for row in others):
            folded = "\n".join(render(rows, heads))
            return folded if len(folded) < len(text) else text
    return text


def count_lines(text: str) -> int:
    """Count how many lines of the original a folded list represents. An entry or match represents
    one line, and a folder or file represents none.
    """
    rows = text.removesuffix("\n").split("\n")
    heads = [row for row in rows if row.endswith((FOLDER, FILE)) and not _LIKE_MEMBER.match(row)]
    return len(rows) - len(heads)


def parts(text: str) -> str:
    """Count the folders or files that begin in this part of a folded list, as in `2 folders`.
    Returns "" if none begins there."""
    rows = dict.fromkeys(row for row in text.split("\n") if row.endswith((FOLDER, FILE)))
    heads = [row for row in rows if not _LIKE_MEMBER.match(row)]
    noun = "folder" if heads and heads[0].endswith(FOLDER) else "file"
    return f"{len(heads)} {noun}{'s' * (len(heads) > 1)}" if heads else ""


def _is_likely(rows: list[str], pattern: re.Pattern[str]) -> bool:
    sample = [row for row in rows[:: 1 + len(rows) // _SAMPLE_ROWS] if row.strip()]
    return sum(1 for row in sample if pattern.match(row)) >= _LIKELY * len(sample)


def _matches(rows: list[str], heads: list[re.Match[str] | None]) -> list[str]:
    folded: list[str] = []
    current = ""
    full_names = _full_names(rows, heads)
    for row, head in zip(rows, heads, strict=True):
        if head is None:
            folded.append(row)
            current = "" if row.strip("- ") else current
            continue
        file = full_names[head[1] or head[2]]
        if file != current:
            current = file
            folded.append(current + FILE)
        folded.append(row[head.end() :])
    return folded


def _full_names(rows: list[str], heads: list[re.Match[str] | None]) -> dict[str, str]:
    """Map the names of files to their full names.

    A search may show a file under its absolute path and also under its path from the working
    directory. This is recognised only if all absolute paths are below that directory. A search
    reports each line of a file only once. If two names that would be merged share a line number,
    they must be different files; then no names are merged.
    """
    names = {name: name for head in heads if head for name in (head[1] or head[2],)}
    absolute = [name for name in names if _ABSOLUTE.match(name)]
    others = [name for name in names if not _ABSOLUTE.match(name)]
    relative = {name.removeprefix("./").removeprefix(".\\"): name for name in others}
    common = os.path.commonprefix(absolute) if relative else ""  # noqa: RUF071
    slashes = [place for place, char in enumerate(common[:_MAX_PATH], 1) if char in "/\\"]
    counts = Counter(
        common[:place] for place in slashes for name in absolute if name[place:] in relative
    )
    if not counts:
        return names
    folder = counts.most_common(1)[0][0]
    full_names = names | {
        name: folder + end for end, name in relative.items() if folder + end in names
    }
    numbers = [
        (full_names[head[1] or head[2]], _NUMBER.match(row, head.end()))
        for row, head in zip(rows, heads, strict=True)
        if head
    ]
    lines = Counter((name, number[0]) for name, number in numbers if number)
    return full_names if max(lines.values()) == 1 else names


def _entries(rows: list[str], heads: list[re.Match[str] | None]) -> list[str]:
    folded: list[str] = []
    current = ""
    for row, head in zip(rows, heads, strict=True):
        if head is None:
            folded.append(row)
            current = ""
            continue
        if head[1] != current:
            current = head[1]
            folded.append(current)
        folded.append(" " + row[head.end() :])
    return folded


_FORMS = ((_MATCH, _matches), (_ENTRY, _entries))
