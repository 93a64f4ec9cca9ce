"""Lossless forms have the same content."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import expand

from upwell.compress import compress
from upwell.compress.folding import HEAD
from upwell.compress.folding import fold_logs as fold
from upwell.compress.json.tree import compact, parse
from upwell.compress.lossless import as_tables, to_markdown

records = st.fixed_dictionaries(
    {
        "id": st.integers(),
        "a": st.fixed_dictionaries({"b": st.text(max_size=5)}),
        "on": st.just(True),
    }
)


@settings(max_examples=50, deadline=None)
@given(st.lists(records, min_size=4, max_size=9))
def test_tables_expand_to_the_original(rows: list[dict[str, Any]]) -> None:
    text = json.dumps({"total": len(rows), "items": rows}, ensure_ascii=False)
    root = parse(text)
    assert root is not None
    table = as_tables(root, text)
    if table is not None:
        assert expand(json.loads(table)) == json.loads(text)


def test_compact_keeps_strings_and_the_blank_after_a_colon() -> None:
    assert compact('{ "a" : "b  c" ,\n "d": [1,  2] }') == '{"a":"b  c","d": [1,2]}'
    assert compact('{"a" :1,"n":  NaN}') == '{"a":1,"n":null}'


def test_prose_with_angle_brackets_is_left_alone() -> None:
    text = "if a<b and c>d: pass\n" * 100
    assert "a<b and c>d" in compress(text, max_chars=300).text


def test_equal_log_lines_are_written_once_and_counted() -> None:
    line = "2026-01-01 10:00:00 WARN retrying\n"
    text = "2026-01-01 10:00:00 INFO start\n" + line * 50 + "2026-01-01 10:01:00 INFO stop\n"
    result = compress(text, max_chars=300)
    assert result.lossless
    assert result.text.count("retrying") == 1
    assert "[the line above 50 times]" in result.text


def test_equal_lines_of_code_are_left_alone() -> None:
    text = "def f():\n" + "    pass\n" * 300 + "import os\n"
    assert "the line above" not in compress(text, max_chars=400, name="f.py").text


def unfold(text: str) -> str:
    """Unfold a text to its lines: the inverse, which shows that nothing was lost."""
    rows, result = text.split("\n"), []
    at = 0
    while at < len(rows):
        head = HEAD.match(rows[at])
        at += 1
        if head is None:
            result.append(rows[at - 1])
            continue
        for row in rows[at : at + int(head[1])]:
            cells = iter(row.split(" "))
            result.append(" ".join(next(cells) if w == "{}" else w for w in head[2].split(" ")))
        at += int(head[1])
    return "\n".join(result)


lines = st.lists(
    st.sampled_from(
        ["test {} ... ok", "INFO db  {} done in {} ms", "{}", "", "a {} b\r", "{} {{}}"]
    ),
    max_size=30,
)


@settings(max_examples=100, deadline=None)
@given(lines, st.lists(st.text("ab:{}[] \t", max_size=6), min_size=3, max_size=3))
def test_folds_unfold_to_the_original(shapes: list[str], words: list[str]) -> None:
    rows = [
        shape.replace("{}", f"{words[n % 3]}{n}", 1).replace("{}", str(n * 7))
        for n, shape in enumerate(shapes)
    ]
    text = "\n".join(rows)
    folded = fold(text)
    if "[the line above" not in folded:
        assert unfold(folded) == text


def test_similar_lines_are_folded_and_their_differences_listed() -> None:
    rows = [f"test suite::case_{n} ... ignored, needs a database" for n in range(30)]
    result = compress("\n".join(["running 30 tests", *rows, "test result: ok"]), max_chars=700)
    assert "[30 lines like: test {} ... ignored, needs a database]" in result.text
    assert "suite::case_29" in result.text
    assert result.lossless


def test_an_inline_drawing_is_left_out_and_an_image_with_an_address_stays() -> None:
    page = (
        "<html><body><h1>Harbour</h1><svg width='9'><polygon points='0,7 7,7'/></svg>"
        "<p>Ships <img src='https://example.org/ship.png' alt='a ship'> call.</p></body></html>"
    )
    markdown = to_markdown(page)
    assert "data:" not in markdown
    assert "https://example.org/ship.png" in markdown
    assert "Harbour" in markdown
