"""Markdown blocks, compared with a complete CommonMark parser."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from upwell.ground.text import sections
from upwell.ground.text.sections import FENCE, HEADING, blocks, title

LINES = st.sampled_from(
    [
        "# One",
        "## Two ##",
        "text",
        "",
        "```",
        "~~~ py",
        "Under",
        "===",
        "- item",
        "1. x",
        "#no",
        "####### seven",
    ]
)


def headings_by_the_parser(text: str) -> list[tuple[int, int]]:
    tokens = MarkdownIt("commonmark").parse(text)
    return [
        (token.map[0], int(token.tag[1]))
        for token in tokens
        if token.type == "heading_open" and token.map and token.level == 0
    ]


@settings(max_examples=150, deadline=None)
@given(st.lists(LINES, max_size=14).map("\n".join))
def test_headings_are_those_of_commonmark(text: str) -> None:
    result = blocks(text)
    ours = [(text.count("\n", 0, b.start), b.level) for b in result if b.what == HEADING]
    lists = any(line.startswith(("- ", "1. ")) for line in text.splitlines())
    if not lists and not text.startswith("---"):
        assert ours == headings_by_the_parser(text)
    assert "".join(text[b.start : b.end] for b in result) == text


def test_blocks_know_their_heading() -> None:
    text = "# A\n\none\n\n## B\n\ntwo\n\n# C\n\nthree\n"
    result = blocks(text)
    above = {
        text[b.start : b.end].strip(): title(text, result[b.heading])
        for b in result
        if b.what == "paragraph"
    }
    assert above == {"one": "A", "two": "B", "three": "C"}


def test_a_hash_inside_a_fence_is_not_a_heading() -> None:
    result = blocks("```\n# not a heading\n```\n# yes\n")
    assert [b.what for b in result] == [FENCE, HEADING]


def test_front_matter_is_one_block() -> None:
    assert blocks("---\ntitle: x\n# no\n---\n# yes\n")[0].end == len("---\ntitle: x\n# no\n---\n")


@pytest.mark.parametrize("pattern", [sections._RULE, sections._PLAIN])
@pytest.mark.parametrize("unit", ["* ", " ", "- ", "_", "a "])
def test_a_search_through_a_long_line_is_linear(pattern: re.Pattern[str], unit: str) -> None:
    """A search tries every position of the line, not only its beginning."""
    text = "|" + unit * (40_000 // len(unit)) + "x"
    began = time.process_time()
    assert list(pattern.finditer(text)) == []
    assert time.process_time() - began < 1
