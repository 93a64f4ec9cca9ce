"""Finds instructions that an agent already has, because its host loads instruction files
(`CLAUDE.md`, `AGENTS.md` …) into every session.

Those files may be somebody else's: they came with the repository. So little of it is looked at, and
what is not looked at in time counts as not loaded. A file that only quotes, negates or withdraws an
instruction does not load it.

A rule is in a Markdown text if its sentences are there, whole and in order, as paragraphs, list
items or sentences of their own. Text in code, comments and quotations does not count. Neither does
an instruction with a word of negation or withdrawal around it: in another sentence of its
paragraph, or in the heading or line above it. If in doubt, it is not in the text: hearing a rule
twice does less harm than missing it.
"""

import os
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import accumulate, chain, islice, takewhile
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from msgspec import Struct

from upwell.ground.project import Walk, is_inside, project_of, real_folder
from upwell.hosts import HOSTS
from upwell.hosts.base import AutoLoaded

_HIDDEN = re.compile(
    r"(?is)<!--.*?(?:-->|\Z)|<(del|s|strike|script|style|template)\b.*?(?:</\1>|\Z)"
)
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_ITEM = re.compile(r"( *)(?:[-*+•]|\d{1,9}[.)])\s")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:\s|$)")
_IMPORTS = re.compile(r"\s*@\S+(?:\s+@\S+)*\s*")
_SENTENCE_END = re.compile(r"(?<=[.!])\s+|(?<=[。！])")
_EDGES = "-*_•#. !。！"
_WORD = re.compile(r"\w+(?:['’]\w+)?")
_DOUBTS = frozenset(
    """
    not no never cannot without avoid stop ignore disregard forget drop skip obsolete deprecated
    outdated expired old former formerly previous previously wrong bad false untrue invalid void
    withdrawn revoked retired superseded replaced cancelled instead unless except but however until
    longer anymore example examples was were used mistake joke
    nicht kein keine keinen nie niemals veraltet ungültig falsch statt sondern
    ne pas jamais aucun obsolète faux sauf nunca jamás ningún obsoleto não nenhum non mai не нет
    никогда нельзя nie niet geen nooit
    """.split()
)
_DOUBT_SIGNS = "不别別勿無无禁"


class _Block(Struct, frozen=True):
    """A paragraph, list item or heading. `is_doubted` if something above it negates or withdraws
    it: a heading, the line that introduces it, or an item that it is part of."""

    text: str
    is_doubted: bool


class Instructions:
    """The instructions in `text`, a Markdown document. `in` finds a rule among them."""

    def __init__(self, text: str) -> None:
        self._sentences: list[str] = []
        self._blocks: list[int] = []
        self._places: dict[str, list[int]] = {}
        doubts: list[bool] = []
        self._doubted_blocks: list[bool] = []
        for number, block in enumerate(_blocks(text)):
            self._doubted_blocks.append(block.is_doubted)
            for sentence in _sentences(block.text):
                self._places.setdefault(sentence, []).append(len(self._sentences))
                self._sentences.append(sentence)
                self._blocks.append(number)
                doubts.append(_is_doubtful(sentence))
        self._doubts = [0, *accumulate(doubts)]
        self._bounds = _bounds(self._blocks)

    def __contains__(self, rule: str) -> bool:
        sentences = [part for block in _blocks(rule) for part in _sentences(block.text)]
        if not sentences:
            return False
        return any(
            self._sentences[place : place + len(sentences)] == sentences
            and not self._is_doubted(place, place + len(sentences))
            for place in self._places.get(sentences[0], ())
        )

    def _is_doubted(self, start: int, end: int) -> bool:
        """True if the rest of the blocks around these sentences, or what is above them, withdraws
        or negates."""
        first, last = self._blocks[start], self._blocks[end - 1]
        inside = self._doubts[end] - self._doubts[start]
        around = self._doubts[self._bounds[last][1]] - self._doubts[self._bounds[first][0]]
        return around > inside or self._doubted_blocks[first]


def _bounds(blocks: list[int]) -> dict[int, tuple[int, int]]:
    """Where each block's sentences begin and end."""
    bounds: dict[int, tuple[int, int]] = {}
    for place, number in enumerate(blocks):
        bounds[number] = (bounds.get(number, (place, 0))[0], place + 1)
    return bounds


def _is_doubtful(text: str) -> bool:
    if any(sign in text for sign in _DOUBT_SIGNS):
        return True
    words = (match[0].replace("’", "'") for match in _WORD.finditer(text.casefold()))
    return any(word in _DOUBTS or word.endswith("n't") for word in words)


def _sentences(text: str) -> list[str]:
    parts = (" ".join(part.split()).strip(_EDGES) for part in _SENTENCE_END.split(text))
    return [part.casefold() for part in parts if part]


def _blocks(text: str) -> Iterator[_Block]:
    headings: dict[int, bool] = {}
    """Whether each heading is doubtful, by its level."""
    parents: list[tuple[int, bool]] = []
    """The items around the current one: the indentation of each, and whether it is doubtful."""
    introduces, is_doubtful_intro = False, False
    for lines in _groups(text):
        written = "\n".join(lines)
        doubts = _is_doubtful(written)
        item = _ITEM.match(lines[0])
        if heading := _HEADING.match(lines[0]):
            level = len(heading[1])
            headings = {other: doubt for other, doubt in headings.items() if other < level}
            yield _Block(written, any(headings.values()))
            headings[level], parents, is_doubtful_intro = doubts, [], False
        elif item is None:
            parents = parents if written[0] == " " else []
            is_introduced = introduces and is_doubtful_intro
            is_within = any(doubt for _, doubt in parents)
            yield _Block(written, any(headings.values()) or is_introduced or is_within)
            introduces, is_doubtful_intro = written.rstrip().endswith((":", "：")), doubts
        else:
            parents = [(indent, doubt) for indent, doubt in parents if indent < len(item[1])]
            is_within = is_doubtful_intro or any(doubt for _, doubt in parents)
            yield _Block(written[item.end() :], any(headings.values()) or is_within)
            parents.append((len(item[1]), doubts))


def _groups(text: str) -> Iterator[list[str]]:
    """The lines of each paragraph, list item and heading."""
    group: list[str] = []
    front_matter_end = text.find("\n---", 3) if text.startswith("---") else -1
    own = text[front_matter_end + 4 :] if front_matter_end > 0 else text
    for line in prose_lines(_HIDDEN.sub(" ", own)):
        is_heading = bool(_HEADING.match(line))
        is_break = not line.strip() or bool(_IMPORTS.fullmatch(line))
        if group and (is_break or is_heading or _ITEM.match(line)):
            yield group
            group = []
        if is_heading:
            yield [line]
        elif not is_break:
            group.append(line)
    if group:
        yield group


def prose_lines(text: str) -> Iterator[str]:
    """The lines of a Markdown text, with an empty line in place of each line of code."""
    fence, is_code, in_list = "", False, False
    was_blank = True
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if fence or mark:
            if mark and not fence:
                fence = mark[1]
            elif mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                fence = ""
            yield ""
            continue
        is_indented = line.startswith(("    ", "\t"))
        is_code = is_indented and (is_code or (was_blank and not in_list))
        if line.strip() and not is_indented:
            in_list = bool(_ITEM.match(line)) or (in_list and line[0] == " ")
        was_blank = not line.strip()
        yield "" if is_code else line


MAX_FILES = 40
MAX_LOOKED_FOR = 200
"""The maximum number of distinct paths checked, whether or not a file exists there."""
MAX_BYTES = 200_000
"""The maximum number of bytes read from one file. Hosts warn about much smaller files."""
MAX_DEPTH = 5
"""Imports are followed over at most this many files, as Claude Code and Gemini CLI do."""
MAX_ENTRIES = 2_000
"""The maximum number of entries of folders looked at for the patterns."""
MAX_SECONDS = 0.1
"""Files that were not found and read within this time count as not loaded. The search has the rest
of the 300 ms that a call waits."""
_CUT = "\n(not read to its end)"
"""The end of a text that was cut. What comes next may withdraw the last paragraph."""
_BACKTICKS = re.compile(r"(`+)")
_IMPORT = re.compile(r"(?:^|(?<=\s))@((?:[^\s\\@]|\\ )(?:[^\s\\]|\\ )*)")
_PUNCTUATION = ".,;:!?)]}\"'*_"
_LIMIT = re.compile(r"(?im)^(?:globs|paths|applyTo|alwaysApply)[ \t]*:")
_NO_LIMIT = re.compile(
    r"(?im)^(?:alwaysApply[ \t]*:[ \t]*true|applyTo[ \t]*:[ \t]*['\"]?\*\*['\"]?)[ \t]*$"
)


def loaded_by(
    host: str,
    cwd: str | None,
    texts: Iterable[str],
    always: Collection[str] = (),
    now: Callable[[], float] = monotonic,
) -> set[str]:
    """The `texts` that are instructions in the files that `host` loads for a session in `cwd`. For
    the texts in `always`, files for only some of the project's paths do not count. Empty for an
    unknown host. Reads files for at most about `MAX_SECONDS`, so call it in a thread."""
    if host not in HOSTS:
        return set()
    remaining = set(texts)
    loaded: set[str] = set()
    until = now() + MAX_SECONDS
    for path in _files(HOSTS[host].auto_loaded, cwd, lambda: now() > until):
        content = _content(path)
        instructions = Instructions(content)
        # A file's front matter may say that it is loaded for some paths only.
        front = content.partition("\n---")[0] if content.startswith("---") else ""
        is_limited = _LIMIT.search(front) and not _NO_LIMIT.search(front)
        sought = remaining.difference(always) if is_limited else remaining
        loaded |= {text for text in sought if text in instructions}
        remaining -= loaded
        if not remaining:
            break
    return loaded


class _Loaded(NamedTuple):
    """A file that a host may load. Its imports must be below `root`, if there is one, and so must
    the file itself if it is the `project`'s. `depth` is the number of imports that lead to it."""

    path: Path
    root: str | None = None
    depth: int = 0
    is_projects: bool = False


def _files(auto_loaded: AutoLoaded, cwd: str | None, is_late: Callable[[], bool]) -> Iterator[Path]:
    named = takewhile(lambda _: not is_late(), _named(auto_loaded, cwd))
    pending, tried = deque(named), set[str]()
    found = 0
    while pending and found < MAX_FILES and len(tried) < MAX_LOOKED_FOR and not is_late():
        file = pending.popleft()
        place = os.path.normpath(file.path)
        if place in tried:
            continue
        tried.add(place)
        try:
            if not file.path.is_file():
                continue
        except OSError:  # the name is too long
            continue
        if file.is_projects and not is_inside(file.path, file.root):
            continue
        found += 1
        yield file.path
        is_followed = auto_loaded.follows_imports and file.depth < MAX_DEPTH
        if is_followed and len(pending) < MAX_LOOKED_FOR:
            pending += islice(_imported(file), MAX_LOOKED_FOR)


def _named(auto_loaded: AutoLoaded, cwd: str | None) -> Iterator[_Loaded]:
    for pattern in auto_loaded.user:
        path = Path.home() / pattern
        yield _Loaded(path, None if auto_loaded.user_imports_anywhere else str(path.parent))
    root = project_of(cwd)
    if cwd is None or root is None:
        return
    place = Path(real_folder(cwd))
    walk = Walk(root, MAX_ENTRIES)
    for folder in (place, *place.parents):
        if not folder.is_relative_to(root):
            return
        own = [path for name in auto_loaded.folder if (path := folder / name).exists()]
        for path in own or (folder / name for name in auto_loaded.fallback):
            yield _Loaded(path, root, is_projects=True)
        for pattern in auto_loaded.scoped:
            top, _, name = pattern.partition("/**/*")
            for path in walk.below(folder / top, name):
                yield _Loaded(path, root, is_projects=True)


def _imported(file: _Loaded) -> Iterator[_Loaded]:
    written = imports_in(_content(file.path))
    # The end of a sentence may follow a path, but may also belong to it.
    forms = (dict.fromkeys((path, path.rstrip(_PUNCTUATION))) for path in written)
    for name in chain.from_iterable(forms):
        # `Path.expanduser` would raise for `@~team`, which is a mention, not a home folder.
        path = file.path.parent / os.path.expanduser(name)
        if is_inside(path, file.root):
            yield _Loaded(path, file.root, file.depth + 1)


def imports_in(text: str) -> Iterator[str]:
    """The paths that a Markdown file imports (`See @docs/rules.md`), at the beginning of a line or
    after white space. Text in code is skipped."""
    for line in prose_lines(text):
        if "@" in line:
            yield from (match[1].replace("\\ ", " ") for match in _IMPORT.finditer(_prose(line)))


def _prose(line: str) -> str:
    """The line without its code spans. A span ends with as many backticks as it begins with."""
    parts = _BACKTICKS.split(line)
    last = {ticks: place for place, ticks in enumerate(parts) if place % 2}
    prose, place = [parts[0]], 1
    while place < len(parts):
        if last[parts[place]] > place:
            place = parts.index(parts[place], place + 1)
        prose += ["`", parts[place + 1]]
        place += 2
    return "".join(prose)


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError:
        return ""
    text = raw[:MAX_BYTES].decode("utf-8-sig", "replace")
    return text if len(raw) <= MAX_BYTES else text.rpartition("\n")[0] + _CUT
