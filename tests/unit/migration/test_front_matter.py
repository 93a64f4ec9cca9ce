"""Front matter that is nearly YAML."""

import pytest

from upwell.migration.front_matter import field, front_and_body, items


@pytest.mark.parametrize(
    ("front", "name", "value"),
    [
        ("globs: **/*.ts", "globs", "**/*.ts"),
        ("title: 'It is: quoted'", "title", "It is: quoted"),
        ("title: 'it''s quoted'", "title", "it's quoted"),
        (r'title: "it is \"quoted\""', "title", 'it is "quoted"'),
        ("url: https://h/a", "url", "https://h/a"),
        ("description: >-\n  two lines\n  of text: here", "description", "two lines of text: here"),
        ("description: one\n  and more", "description", "one and more"),
        ("metadata:\n  type: project\n  mood: fine", "metadata.type", "project"),
        ("# a comment\nname: x", "name", "x"),
        ("Name: x", "name", "x"),
    ],
)
def test_a_field_of_nearly_yaml_is_read(front: str, name: str, value: str) -> None:
    fields, body = front_and_body(f"---\n{front}\n---\nBody\n")
    assert (field(fields, name), body) == (value, "Body")


@pytest.mark.parametrize(
    ("front", "expected"),
    [
        ("tags: [a, 'b c']", ["a", "b c"]),
        ("tags: a, b", ["a", "b"]),
        ("tags:\n- a\n- b", ["a", "b"]),
        ("tags:", []),
    ],
)
def test_a_list_of_nearly_yaml_is_read(front: str, expected: list[str]) -> None:
    assert items(front_and_body(f"---\n{front}\n---\n")[0], "tags") == expected


@pytest.mark.parametrize("text", ["plain", "", "---\nname: never closed", "--- not\nx: y\n---\n"])
def test_a_text_without_front_matter_is_all_body(text: str) -> None:
    assert front_and_body(text) == ({}, text)
