"""The instructions in a Markdown text that the text affirms.

Used to tell whether an instruction file says the same as a rule. The rule is in the text if its
sentences are there, whole and in order, as paragraphs, list items or sentences of their own. Text
in code, comments and quotations does not count. Neither does an instruction with a word of negation
or withdrawal around it: in another sentence of its paragraph, or in the heading or line above it.
If in doubt, it is not in the text: hearing a rule twice does less harm than missing it.
"""

import re
from collections.abc import Iterator
from itertools import accumulate

from msgspec import Struct

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
    for line in prose_lines(_HIDDEN.sub(" ", _without_front_matter(text))):
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


def _without_front_matter(text: str) -> str:
    end = text.find("\n---", 3) if text.startswith("---") else -1
    return text[end + 4 :] if end > 0 else text


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
