"""Cutting Markdown: whole lines, exact spans, headings and fences respected; and what to cite."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upwell.memory.chunks import MAX_LINE_CHARS, MAX_WHOLE_CHARS, cut
from upwell.memory.frontmatter import front_of, namespace_of
from upwell.memory.quote import lines_for, quoted


def texts(document: str) -> list[str]:
    return [chunk.text for chunk in cut(document)]


def test_a_section_is_a_chunk_with_its_lines_and_headings():
    document = "# Log\n\n## Monday\n\nIt rained.\n\n## Tuesday\n\nIt did not.\n"
    monday, tuesday = cut(document)
    assert (monday.text, monday.lines) == ("# Log\n\n## Monday\n\nIt rained.", (1, 5))
    assert (tuesday.text, tuesday.lines) == ("## Tuesday\n\nIt did not.", (7, 9))
    assert tuesday.headings == ("Log", "Tuesday")


def test_sections_are_cut_between_items_and_nothing_overlaps():
    items = [f"- item {n} says something of its own in about fifty characters" for n in range(30)]
    chunks = cut("# List\n\n" + "\n".join(items))
    assert len(chunks) > 3
    spans = [chunk.lines for chunk in chunks]
    assert all(last < first for (_, last), (first, _) in pairwise(spans))
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))


def test_a_fence_stays_whole_and_its_signs_are_no_headings():
    code = "\n".join(f"# step {n}: this line is a comment" for n in range(30))
    fence = f"```sh\n{code}\n```"
    assert len(fence) < MAX_WHOLE_CHARS
    assert fence in texts(f"# Run\n\nIntro.\n\n{fence}\n\nAfter.\n")


def test_a_line_longer_than_a_chunk_is_cut_and_keeps_its_number():
    long = "word " * 1000
    chunks = cut(long + "\n" + "\n".join(f"short {n}" for n in range(10)))
    assert len(chunks) <= 6
    assert all(len(chunk.text) <= MAX_LINE_CHARS + 1000 for chunk in chunks)
    assert {chunk.lines for chunk in chunks[:2]} == {(1, 1)}
    assert chunks[-1].lines[1] == 11


def test_a_megabyte_without_a_break_is_cut():
    chunks = cut("x" * 1_000_000)
    assert sum(len(chunk.text) for chunk in chunks) == 1_000_000
    assert {chunk.lines for chunk in chunks} == {(1, 1)}


@pytest.mark.parametrize("document", ["", "\n\n", "  \n\t\n", "---\ntags: a\n---\n"])
def test_nothing_is_no_chunk(document: str):
    assert cut(document, front_of(document).end) == []


def test_windows_line_ends_count_the_same():
    (chunk,) = cut("# A\r\n\r\none\r\ntwo\r\n")
    assert (chunk.text, chunk.lines) == ("# A\n\none\ntwo", (1, 4))


LINES = st.lists(
    st.sampled_from(
        ["", " ", "# h", "## h2", "text", "- item", "```", "~~~", "| a | b |", "|---|---|", "===",
         "---", "a long line " * 40, "x" * 2500, "> quote", "\tcode", "1. one", "é🌊"]
    ),
    max_size=60,
)  # fmt: skip


@given(LINES)
def test_every_line_that_says_something_is_in_exactly_one_span(lines):
    document = "\n".join(lines)
    chunks = cut(document)
    covered: dict[int, str] = {}
    for chunk in chunks:
        first, last = chunk.lines
        assert 1 <= first <= last <= len(lines)
        if first == last:
            assert chunk.text in lines[first - 1]
            covered[first] = covered.get(first, "") + chunk.text
        else:
            assert chunk.text == "\n".join(lines[first - 1 : last])
            for number in range(first, last + 1):
                assert number not in covered
                covered[number] = lines[number - 1]
    for number, line in enumerate(lines, 1):
        assert covered.get(number, "").split() == line.split()


CHUNK = """# Pets

- JC's dog Cookie loves carrots
- The cat sleeps

Both are fed at
seven in the evening."""


@pytest.mark.parametrize(
    ("query", "lines", "shown"),
    [
        ("what does Cookie love?", (2, 2), "JC's dog Cookie loves carrots"),
        ("when are they fed in the evening", (5, 6), "Both are fed at\nseven in the evening."),
        ("pets", (0, 6), CHUNK),
        ("nothing of the kind", None, CHUNK),
    ],
)
def test_what_is_cited_and_shown_is_what_matches(query, lines, shown):
    assert lines_for(CHUNK, [query]) == lines
    assert quoted(CHUNK, [query]) == shown


def test_front_matter_in_the_forms_that_people_write():
    front = front_of(
        "---\ntitle: x\nnamespace: Decision\ntags: [db, 'infra']\npaths:\n  - src/db.py\n"
        '  - "src/a b.py"\n---\nbody'
    )
    assert (front.namespace, front.tags) == ("decisions", ("db", "infra"))
    assert front.paths == ("src/db.py", "src/a b.py")
    assert front_of("no front\n---\n").end == 0
    assert front_of("---\nnamespace: two words\n---\n").namespace == ""


def test_a_folder_names_the_namespace_unless_the_document_does():
    plain = front_of("")
    assert namespace_of(plain, "memory/decisions/2026/db.md") == "decisions"
    assert namespace_of(plain, "memory/decision/db.md") == "decisions"
    assert namespace_of(plain, "memory/decisions.md") == "context"
    assert namespace_of(front_of("---\nnamespace: apis\n---\n"), "memory/decisions/a.md") == "apis"
