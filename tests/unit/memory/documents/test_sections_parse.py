"""Cutting Markdown into sections and blocks: exact lines, and nothing that makes it slow."""

import random
import time

import pytest

from upwell.memory.documents.sections.parse import CALLOUT, CODE, ITEM, blocks_of, parse
from upwell.memory.documents.sections.rows import parents, rows_from

GUIDE = """# Guide

Intro of the guide.

## Limits

Setext
======

```py
# no heading
```

!!! warning

    Do not share a pool.

- item
  goes on
"""


def lines_of(text: str) -> list[str]:
    return [line.removesuffix("\r") for line in text.split("\n")]


def check_lines(text: str) -> None:
    rows = lines_of(text)
    for section in parse(text):
        assert 1 <= section.first <= section.last
        for block in section.blocks:
            assert block.text == "\n".join(rows[block.first - 1 : block.last]).rstrip()
    for row in rows_from("/a.md", "a.md", text):
        if row.section.blocks:
            result = blocks_of(row.text, row.section.first, row.section.level)
            assert result == row.section.blocks
            assert len(row.terms) == len(result) + 1


def test_sections_have_their_headings_lines_and_blocks():
    trails = [section.trail for section in parse(GUIDE)]
    assert trails == [("Guide",), ("Guide", "Limits"), ("Setext",)]
    kinds = [block.kind for block in parse(GUIDE)[2].blocks]
    assert kinds == [CODE, CALLOUT, "prose", ITEM]
    warning, text = parse(GUIDE)[2].blocks[1:3]
    assert text.callout == warning.first == 14
    check_lines(GUIDE)


def test_the_title_of_the_front_matter_heads_a_page_without_one():
    result = parse("---\ntitle: Proxies | Docs\n---\n\nOpening.\n\n## Use\n\nText.\n", 3)
    assert [section.trail for section in result] == [("Proxies",), ("Proxies", "Use")]


def test_sections_know_the_one_above():
    result = parse("# A\n\na\n\n## B\n\nb\n\n### C\n\nc\n\n## D\n\nd\n")
    assert list(parents(result)) == [-1, 0, 1, 0]


def test_ids_stay_while_other_sections_change():
    before = rows_from("/a.md", "a.md", "# A\n\none\n\n# B\n\ntwo\n")
    after = rows_from("/a.md", "a.md", "# A\n\nmore\n\nand more\n\n# B\n\ntwo\n")
    assert [row.id for row in before] == [row.id for row in after]
    assert rows_from("/b.md", "a.md", "# A\n\none\n")[0].id != before[0].id


@pytest.mark.parametrize(
    "text",
    ["", "\n" * 50, "# ", "```\nopen", "---\ntitle: x", "[" * 50_000, "{*" * 40_000, "- " * 40_000,
     "a" * 300_000, "`" * 60_000, "# a\r\n\r\ntext\r\n", "| a |\n|---|\n| b |", "-" * 100_000,
     "a-" * 50_000, "a'" * 50_000, "<" * 60_000, "::: tip\n" * 5_000, ". A" * 40_000, "你好" * 99],
)  # fmt: skip
def test_hostile_text_is_cut_in_linear_time(text: str):
    began = time.process_time()
    check_lines(text)
    assert time.process_time() - began < 3


def test_random_markdown_keeps_its_lines():
    rng = random.Random(1)
    bits = ["# h\n", "## é x\n", "text here. More of it:\n", "- item\n", "  - sub `a_b`\n", "```\n",
            "\n", "| a | b |\n", "!!! note\n", "    indented\n", "::: danger\n", ":::\n", "=====\n",
            "[l](x.md#h)\n", "> q\n", "\r\n", "---\n", "<!-- x -->\n"]  # fmt: skip
    for _ in range(400):
        check_lines("".join(rng.choice(bits) for _ in range(rng.randrange(40))))
