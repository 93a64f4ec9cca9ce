"""Lists of paths and search results are folded without loss."""

import re

import pytest

from upwell.compress import compress
from upwell.compress.folding import fold_listings as fold
from upwell.compress.folding import listing_parts as parts

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


def both_names(file: str, numbers: range) -> str:
    """Matches in a file whose name is absolute in every third line."""
    names = (f"/home/ann/{file}", file, file)
    return "\n".join(f"{names[n % 3]}:{n}:    lift(load_{n})" for n in numbers)


def test_a_file_with_an_absolute_and_a_relative_name_has_one_heading() -> None:
    text = both_names("src/crane.py", range(10, 30)) + "\n" + both_names("quay.py", range(20))
    folded = fold(text).split("\n")
    headings = [row for row in folded if row.endswith(":")]
    assert headings == ["/home/ann/src/crane.py:", "/home/ann/quay.py:"]
    assert len(folded) == 2 + 40
    result = compress(text, max_chars=len(text) // 4)
    marks = sum(map(int, re.findall(r"^\[…(\d+)(?: lines?, 1 file)?\]$", result.text, re.M)))
    retained = len(re.findall(r"^\d+:", result.text, re.M))
    assert marks + retained == 40
    assert f"[{marks} of 40 lines left out]" in result.text


def test_a_file_with_an_absolute_name_of_windows_has_one_heading() -> None:
    folder = "D:\\code\\src"
    rows = [f"{folder}\\pier\\quay.go:{n}:moor()" for n in (1, 4)]
    rows += [f"{folder}\\crane.go:{n}:lift()" for n in (2, 8)]
    rows[1:1] = [f"pier\\quay.go:{n}:moor(ship)" for n in (2, 3)]
    folded = fold("\n".join(rows))
    assert [row for row in folded.split("\n") if row.endswith(":")] == [
        f"{folder}\\pier\\quay.go:",
        f"{folder}\\crane.go:",
    ]


def test_each_file_of_a_part_is_counted_once() -> None:
    assert parts("1:a\nquay.go:\n2:b\n--\nquay.go:\n9:c\ncrane.go:\n1:d") == "2 files"


def test_files_that_share_a_line_number_stay_two() -> None:
    names = ("/home/ann/src/crane.py", "crane.py")
    folded = fold("\n".join(f"{name}:{n}:lift" for name in names for n in range(10)))
    assert "\ncrane.py:\n" in folded


def test_a_relative_name_is_not_completed_with_a_folder_that_only_some_files_have() -> None:
    absolute = ["/home/ann/src/crane.py", "/home/ann/quay.py"]
    rows = [f"{name}:{n}:lift" for name in absolute for n in range(9)]
    rows += [f"crane.py:{n}:lift" for n in range(20, 29)]
    assert "\ncrane.py:\n" in fold("\n".join(rows))


def test_a_text_with_lines_like_entries_stays() -> None:
    text = PATHS + "\n  an indented remark"
    assert fold(text) == text


def test_prose_is_not_folded() -> None:
    text = "The harbor opens at six.\n" * 20
    assert fold(text) == text


def test_a_retained_entry_has_its_folder() -> None:
    result = compress(PATHS, max_chars=200)
    for row in result.text.split("\n"):
        if row.startswith(" "):
            assert "/\n" in result.text[: result.text.index(row)]
