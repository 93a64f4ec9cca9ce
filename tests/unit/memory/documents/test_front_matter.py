"""The front matter of documents, and the lines of a text to cite and to show."""

import pytest

from upwell.memory.documents.quote import lines_for, quoted
from upwell.memory.documents.reading import front_of, namespace_of

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
def test_the_matching_lines_are_cited_and_shown(query, lines, shown):
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


def test_scalars_of_front_matter_keep_their_spelling():
    front = front_of("---\nTags: [2026-04-09, no, 1.10, db]\npaths: a.py, b.py\n---\nbody")
    assert front.tags == ("2026-04-09", "no", "1.10", "db")
    assert front.paths == ("a.py", "b.py")


@pytest.mark.parametrize(
    "block",
    [
        "Not a mapping but a sentence between rules.\n",
        "- a list\n- of items\n",
        "tags: [unclosed\n",
        "a: &x [b]\ntags: *x\n",
        "tags: " + "[" * 20 + "x" + "]" * 20 + "\n",
        "tags: " + "[" * 5_000 + "\n",
        "".join(f"key{n}: {'x' * 100}\n" for n in range(180)),
        'tags: ["\\ud800"]\n\x00\n',
    ],
)
def test_a_block_that_is_not_plain_yaml_stays_in_the_body(block: str):
    assert front_of(f"---\n{block}---\nbody\n") == front_of("")


def test_a_bomb_of_aliases_is_refused_at_once():
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert front_of("---\n" + "\n".join(rows) + "\ntags: *a11\n---\nbody") == front_of("")


def test_a_folder_names_the_namespace_unless_the_document_does():
    plain = front_of("")
    assert namespace_of(plain, "memory/decisions/2026/db.md") == "decisions"
    assert namespace_of(plain, "memory/decision/db.md") == "decisions"
    assert namespace_of(plain, "memory/decisions.md") == "context"
    assert namespace_of(front_of("---\nnamespace: apis\n---\n"), "memory/decisions/a.md") == "apis"
