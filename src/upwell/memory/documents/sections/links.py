"""Links between sections. The words in and around a link describe the section that it leads to."""

import posixpath
import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from upwell.ground.text.words import fold
from upwell.memory.documents.sections.parse import CODE, Section
from upwell.memory.documents.sections.terms import terms

_LINK = re.compile(r"\[([^\[\]\n]{2,120})\]\(([^()\s]{1,300})\)")
_MARKDOWN_NAME = re.compile(r"\.(?:mdx?|markdown|html)$")
NEAR_CHARS = 120
"""How many characters before and after a link describe its target."""
MAX_LINK_COUNT = 3
"""The maximum count of a term in the links to a section."""


class Link(Struct, frozen=True):
    """A link to a section. `page` is a path without its suffix, and an empty `anchor` means the
    beginning of the page. `terms` come from the link's text, and `near` from that text and the text
    around it."""

    page: str
    anchor: str
    terms: tuple[str, ...]
    near: tuple[str, ...]


def page_of(path: str) -> str:
    """Return a path without its suffix, as in `Link.page`."""
    return _MARKDOWN_NAME.sub("", path)


def anchor_of(heading: str) -> str:
    """Return the anchor that renderers give to a heading: `Resource limits` → `resource-limits`."""
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", fold(heading)).strip())


def links_in(path: str, section: Section) -> Iterator[Link]:
    """Return the links in a section of the file `path`, except those in code and those to URLs."""
    for block in section.blocks:
        if block.kind == CODE or "](" not in block.text:
            continue
        for match in _LINK.finditer(block.text):
            target = _target(path, match[2])
            if target is not None:
                start, end = max(0, match.start() - NEAR_CHARS), match.end() + NEAR_CHARS
                context = tuple(terms(block.text[start:end]))
                yield Link(*target, tuple(terms(match[1])), context)


def _target(path: str, url: str) -> tuple[str, str] | None:
    if "://" in url:
        return None
    page, _, anchor = url.partition("#")
    page = page_of(page).rstrip("/")
    if not page:
        page = page_of(path)
    elif not page.startswith("/"):
        page = posixpath.normpath(posixpath.join(posixpath.dirname(path), page))
    return page, anchor.strip().lower()


class Targets:
    """Maps pages and anchors to sections. If several sections have the same page and anchor,
    `find()` returns the first."""

    def __init__(self) -> None:
        self._by_page: dict[tuple[str, str], int] = {}
        self._by_name: dict[tuple[str, str], int] = {}

    def add(self, path: str, heading: str, number: int) -> None:
        page = page_of(path)
        for anchor in (anchor_of(heading), ""):
            self._by_page.setdefault((page, anchor), number)
            self._by_name.setdefault((posixpath.basename(page), anchor), number)

    def find(self, page: str, anchor: str) -> int | None:
        """Return the number of the section. A folder means its index page. A page that is not found
        by its path is looked up by its file name alone."""
        by_page: Mapping[tuple[str, str], int] = self._by_page
        for name in (page, f"{page}/index"):
            if (number := by_page.get((name, anchor))) is not None:
                return number
        return self._by_name.get((posixpath.basename(page), anchor))
