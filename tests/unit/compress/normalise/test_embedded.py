"""Arrays of objects in one line of a text are written as lists."""

import json

from upwell.compress import compress
from upwell.compress.folding import as_lists

LINKS = [
    {"title": f"Cranes, part {n}", "url": f"https://example.org/cranes/{n}"} for n in range(12)
]
FOUND = f"Results for cranes\n\nLinks: {json.dumps(LINKS)}\n\n" + "# About\n\n" + "Words. " * 200


def test_each_link_gets_a_line() -> None:
    rows = as_lists(FOUND).split("\n")
    assert [row for row in rows if row.startswith("- ")] == [
        f"- {link['title']} <{link['url']}>" for link in LINKS
    ]


def test_other_lines_stay() -> None:
    for text in (
        "short [{}]",
        "x: [{" + "a" * 300,
        'Data: [{"a": [1, 2], "b": "' + "c" * 300 + '"}]',
    ):
        assert as_lists(text) == text


def test_links_survive_in_a_quarter() -> None:
    retained = compress(FOUND, max_chars=len(FOUND) // 4).text
    assert retained.count("https://example.org/cranes/") >= 4


def test_links_beside_lines_of_names_survive_in_a_quarter() -> None:
    summary = "\n".join(f"crane_{n} lifts part_{n} of quay_{n} and load_{n}" for n in range(60))
    found = f"Results for cranes\n\nLinks: {json.dumps(LINKS)}\n\n{summary}"
    retained = compress(found, max_chars=len(found) // 4).text
    assert retained.count("https://example.org/cranes/") >= 3
    assert "lifts part_" in retained
