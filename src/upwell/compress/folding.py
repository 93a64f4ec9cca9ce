"""Forms of a text with the same content in fewer or better lines.

Numbered lines: the numbers that a tool put before the lines of a file are removed, and the first is
remembered. Without the numbers, the code can be recognised, quoted and edited. Omission marks give
the numbers of the missing lines.

Lists of paths and search results, folded so that each folder or file appears once:

    src/harbor/crane.py            src/harbor/
    src/harbor/quay.py      →       crane.py
                                    quay.py

    src/crane.py:12:import os      src/crane.py:
    src/crane.py:40:os.nice()  →   12:import os
                                   40:os.nice()

A line that ends with `/` is a folder, and the lines below it that begin with a space are its
entries. A line that ends with `:` is a file, and the numbered lines below it are its matches.

Runs of equal or similar log lines. The head line has the common words and the number of lines, and
each line below it the words that differ:

    test a::one ... ok                  [4 lines like: test {} ... ok]
    test a::two ... ok          →       a::one
    test b::one ... ok                  a::two
    test b::two ... ok                  b::one
                                        b::two

Arrays of objects that fill a whole line, as web search tools return them: each object gets a line
of its own, which can be selected or left out by itself.

    Links: [{"title":"Cranes","url":"https://example.org/c"},{"title":"Quays","url":"https://…"}]
    →
    Links:
    - Cranes <https://example.org/c>
    - Quays <https://example.org/q>
"""

import json
import os.path
import re
from collections import Counter
from itertools import groupby

from msgspec.structs import replace

from upwell.ground.errors import UsageError
from upwell.ground.text.kind import detect
from upwell.ground.types.compression import Passage, TextKind

_MATCH = re.compile(
    r"((?:[A-Za-z]:)?[^\s:]++):(?=\d++:)|((?:[A-Za-z]:)?[^\s:]+?\.[A-Za-z]\w{0,8})-(?=\d++-)"
)
_ENTRY = re.compile(r"(\.{0,2}/(?:[^\s:/]++/)*+|(?:[^\s:/]++/)++)(?=[^\s/])")
_LIKE_MEMBER = re.compile(r"\d+[:-]|[ \t]+\S")
"""Matches a line that looks like an entry in a folder or a match in a file."""
_ABSOLUTE = re.compile(r"/|[A-Za-z]:[\\/]")
_MOST_LISTED = 0.6
_NUMBER = re.compile(r"\d++")
_MAX_PATH = 1_000
_SAMPLE_ROWS, _LIKELY = 100, 0.4
FOLDER, FILE = "/", ":"


def fold_listings(text: str, *, matches: bool = True) -> str:
    """Fold a list of paths or, with `matches`, search results.

    Returns the same text if it is neither, or if folding does not shorten it. If there is a
    question, callers leave search results unfolded, so that the agent can quote each match with its
    file and line.
    """
    rows = text.split("\n")
    filled = [row for row in rows if row.strip()]
    sample = [row for row in rows[:: 1 + len(rows) // _SAMPLE_ROWS] if row.strip()]
    for pattern in (_MATCH, _ENTRY):
        if sum(1 for row in sample if pattern.match(row)) < _LIKELY * len(sample):
            continue
        heads = [pattern.match(row) for row in rows]
        if sum(1 for head in heads if head) <= _MOST_LISTED * len(filled):
            continue
        if pattern is _MATCH and not matches:
            return text
        others = [row for row, head in zip(rows, heads, strict=True) if head is None]
        if not any(_LIKE_MEMBER.match(row) or row.endswith((FOLDER, FILE)) for row in others):
            folded = "\n".join(_below_heads(rows, heads, pattern))
            return folded if len(folded) < len(text) else text
    return text


def count_listing_lines(text: str) -> int:
    """Count how many lines of the original a folded list represents. An entry or match represents
    one line, and a folder or file represents none.
    """
    rows = text.removesuffix("\n").split("\n")
    heads = [row for row in rows if row.endswith((FOLDER, FILE)) and not _LIKE_MEMBER.match(row)]
    return len(rows) - len(heads)


def listing_parts(text: str) -> str:
    """Count the folders or files that begin in this part of a folded list, as in `2 folders`.
    Returns "" if none begins there."""
    rows = dict.fromkeys(row for row in text.split("\n") if row.endswith((FOLDER, FILE)))
    heads = [row for row in rows if not _LIKE_MEMBER.match(row)]
    noun = "folder" if heads and heads[0].endswith(FOLDER) else "file"
    return f"{len(heads)} {noun}{'s' * (len(heads) > 1)}" if heads else ""


def _below_heads(
    rows: list[str], heads: list[re.Match[str] | None], pattern: re.Pattern[str]
) -> list[str]:
    """Write the folder of each entry, or the file of each match, on a line of its own."""
    is_search = pattern is _MATCH
    full_names = _full_names(rows, heads) if is_search else {}
    folded: list[str] = []
    current = ""
    for row, head in zip(rows, heads, strict=True):
        if head is None:
            folded.append(row)
            # A search puts dashes between groups of matches in the same file.
            current = "" if row.strip("- ") or not is_search else current
            continue
        name = full_names[head[1] or head[2]] if is_search else head[1]
        if name != current:
            current = name
            folded.append(f"{name}{FILE}" if is_search else name)
        folded.append(f"{'' if is_search else ' '}{row[head.end() :]}")
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


MIN_RUN = 4
HEAD = re.compile(r"\[(\d+) lines like: (.*)\]$")
_REPEATS = re.compile(r"^\[the line above ([\d,]+) times\]\r?$", re.M)
_SLOT = "{}"
_ALIKE = 0.4
"""In a run, all lines share at least this proportion of their characters, and half of their words.
"""


def fold_logs(text: str) -> str:
    """Fold runs of at least four equal or similar lines.

    If the text already contains lines that look like heads, only equal lines are folded, because
    readers could not tell these lines from heads written here.
    """
    return _fold_alike(_fold_equal(text)) if not _HEADS.search(text) else _fold_equal(text)


_HEADS = re.compile(rf"^{HEAD.pattern}", re.M)


def count_log_lines(text: str) -> int:
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


_ARRAY = re.compile(r"^([\w ]{0,40}:[ \t]?)?(\[\{.*\}\])[ \t\r]*$", re.M)
_LEAST_CHARS, _MOST_CHARS = 200, 200_000
LINK = re.compile(r"- .* <https?://[^\s>]+>\s*\Z")
"""Matches a line with a link, as `as_lists()` writes it."""


def as_lists(text: str) -> str:
    """Write arrays of objects in `text` as lists, if all their values are one-line strings."""
    return _ARRAY.sub(_list, text) if "[{" in text else text


def _list(match: re.Match[str]) -> str:
    array = match[2]
    if not _LEAST_CHARS <= len(array) <= _MOST_CHARS:
        return match[0]
    try:
        items = json.loads(array)
    except (ValueError, RecursionError):
        return match[0]
    rows = [_row(item) for item in items]
    if not all(rows):
        return match[0]
    head = f"{match[1].rstrip()}\n" if match[1] else ""
    return head + "\n".join(rows)


def _row(item: object) -> str:
    if not isinstance(item, dict) or not all(isinstance(value, str) for value in item.values()):
        return ""
    if "\n" in "".join(item.values()):
        return ""
    if set(item) == {"title", "url"}:
        return f"- {item['title']} <{item['url']}>"
    return "- " + " · ".join(f"{name}: {value}" for name, value in item.items())


_ROW = re.compile(r"\A[ \t]*+(\d{1,7})(→|\t|:)")
_LEAST_ROWS = 5
_MOST = 0.8
_RANGE = re.compile(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*")


def without_numbers(passage: Passage) -> Passage:
    """Return the passage without its line numbers, or the same passage if it has none.

    The numbers must be consecutive, except in a diff. Lines without a number may come before and
    after the numbered lines. If the numbers do not begin with 1, the first line keeps its number.
    """
    rows = passage.text.split("\n")
    begin = next((index for index, row in enumerate(rows[:4]) if _ROW.match(row)), None)
    match = _ROW.match(rows[begin]) if begin is not None else None
    if begin is None or match is None:
        return passage
    first, sign = int(match[1]), match[2]
    plain = rows[:begin]
    for number, row in enumerate(rows[begin:], first):
        head, _, rest = row.partition(sign)
        if head.lstrip() != str(number) and head.strip() != str(number):
            break
        plain.append(rest)
    count = len(plain) - begin
    others = rows[len(plain) :]
    if count < max(_LEAST_ROWS, _MOST * len(rows)) or any(_ROW.match(row) for row in others):
        return _diff_without_numbers(passage, rows, sign)
    if first != 1:
        plain[begin] = rows[begin]
    return replace(passage, text="\n".join([*plain, *others]), first_line=first - begin)


def _diff_without_numbers(passage: Passage, rows: list[str], sign: str) -> Passage:
    """Remove the line numbers from a diff; they may have gaps. Returns the same passage if it is
    not a diff.

    Without the numbers, the diff can be recognised by the first character of its lines. The line
    after a gap keeps its number. Nobody edits a diff by its line numbers, so omission marks do not
    give them.
    """
    if sign == ":":
        return passage
    plain: list[str] = []
    expected = 0
    for row in rows:
        match = _ROW.match(row)
        number = int(match[1]) if match and match[2] == sign else expected
        is_next = match is not None and match[2] == sign and expected in (0, number)
        plain.append(row[match.end() :] if match and is_next else row)
        expected = number + 1 if match else expected
    text = "\n".join(plain)
    return replace(passage, text=text) if detect(text) == TextKind.DIFF else passage


def plain_start(passage: Passage) -> str:
    """Return the text without the number that its first line kept."""
    return _ROW.sub("", passage.text, 1) if passage.first_line is not None else passage.text


def lines_of(text: str, first: int, last: int) -> str:
    """Return the lines `first` to `last` of `text`. If a tool numbered the lines, use its numbers;
    otherwise count from 1. Omission marks use the same numbers.
    """
    numbered_from = without_numbers(Passage(text=text)).first_line
    begin = 1 if numbered_from is None else numbered_from
    rows = text.split("\n")
    return "\n".join(rows[max(0, first - begin) : max(0, last + 1 - begin)])


def line_range(lines: str) -> tuple[int, int]:
    """Parse a range of lines such as `120-180`, or a single line number.

    Raises:
        UsageError: `lines` is neither.
    """
    match = _RANGE.fullmatch(lines)
    first = int(match[1]) if match else 0
    last = int(match[2] or match[1]) if match else 0
    if not 1 <= first <= last:
        raise UsageError(f"{lines!r} is not a range of lines", hint="write it like 120-180")
    return first, last
