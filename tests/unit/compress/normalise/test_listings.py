"""Lists of paths and search results are folded without loss."""

import pytest

from upwell.compress import compress
from upwell.compress.normalise.listings import fold

PATHS = "\n".join(
    f"src/harbor/part_{n % 3}/file_{n}.py" for n in sorted(range(30), key=lambda n: n % 3)
)
MATCHES = "\n".join(f"src/harbor/crane.py:{n}:    lift(load_{n})" for n in range(10, 40))


def unfolded(text: str) -> str:
    rows: list[str] = []
    head = ""
    for row in text.split("\n"):
        if row.endswith(("/", ":")):
            head = row
        else:
            rows.append(head + row.removeprefix(" "))
    return "\n".join(rows)


@pytest.mark.parametrize("text", [PATHS, MATCHES])
def test_folding_loses_nothing(text: str) -> None:
    folded = fold(text)
    assert len(folded) < 0.7 * len(text)
    assert unfolded(folded) == text


def test_a_text_with_lines_like_entries_stays() -> None:
    text = PATHS + "\n  an indented remark"
    assert fold(text) == text


def test_prose_is_not_folded() -> None:
    text = "The harbor opens at six.\n" * 20
    assert fold(text) == text


def test_a_list_that_fits_when_folded_is_complete() -> None:
    result = compress(PATHS, max_chars=len(PATHS) * 2 // 3)
    assert result.lossless
    assert unfolded(result.text) == PATHS


def test_a_retained_entry_has_its_folder() -> None:
    result = compress(PATHS, max_chars=200)
    for row in result.text.split("\n"):
        if row.startswith(" "):
            assert "/\n" in result.text[: result.text.index(row)]
