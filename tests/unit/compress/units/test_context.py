"""What a line belongs to: headings of its own depth, branches, places, documents and tables."""

import time

import pytest

from upwell.compress.units.base import Units, lines
from upwell.compress.units.belonging import add_context


def needs_of(text: str, line: str) -> list[str]:
    """Return the lines that `line` needs."""
    units = Units()
    for start, end in lines(text):
        units.add(start, end, 0.0)
    add_context(units, text)
    rows = [text[start:end].strip() for start, end in zip(units.starts, units.ends, strict=True)]
    return [rows[need] for need in units.needs[rows.index(line)]]


@pytest.mark.parametrize(
    ("text", "line", "needs"),
    [
        ("./a:\ncrane.py\n\n./b:\nquay.py\n", "quay.py", ["./b:"]),
        ("[a]\n# note\nx = 1\n[b]\ny = 2\n", "y = 2", ["[b]"]),
        ("PLAY [p] ***\n\nTASK [t] ***\nok: h\n", "ok: h", ["PLAY [p] ***", "TASK [t] ***"]),
        ("├── a\n│   ├── b\n│   │   └── c\n", "│   │   └── c", ["├── a", "│   ├── b"]),
        ("src/a-109-b.py\n12:x\n13:y\n", "13:y", ["src/a-109-b.py"]),
        ("E1 bad\n  --> a.py:1\n   |\n12 | if x:\n13 | y\n", "13 | y", ["E1 bad", "--> a.py:1"]),
        ("key:\n- name: a\n  size: 1\n", "size: 1", ["key:", "- name: a"]),
        ("kind: P\nmetadata:\n  name: a\nx: 1\n", "x: 1", ["kind: P", "metadata:", "name: a"]),
        ("[[t]]\nname = 'a'\nsize = 1\n", "size = 1", ["[[t]]", "name = 'a'"]),
        ("NAME   AGE\nweb    12d\n\nother line\n", "web    12d", ["NAME   AGE"]),
        ("NAME   AGE\nweb    12d\n\nother line\n", "other line", []),
        ("a-1/b.py:12:x:\na-1/c.py:3:y\n", "a-1/c.py:3:y", []),
    ],
)  # fmt: skip
def test_a_line_needs_what_it_belongs_to(text: str, line: str, needs: list[str]) -> None:
    assert needs_of(text, line) == needs


@pytest.mark.parametrize(
    "text",
    [
        "word " * 400_000,
        "".join(" " * (depth % 2_000) + "- x:\n" for depth in range(20_000)),
        "a:\n" * 40_000,
        "== x ==\n[y]\n" * 20_000,
    ],
)
def test_the_time_is_linear(text: str) -> None:
    units = Units()
    for start, end in lines(text):
        units.add(start, end, 0.0)
    began = time.process_time()
    add_context(units, text)
    assert time.process_time() - began < 3.0
