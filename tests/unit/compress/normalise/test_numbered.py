"""The line numbers of a tool are removed, and marks name the missing lines."""

import re

import pytest

from upwell.compress import compress
from upwell.compress.folding import line_range, lines_of, without_numbers
from upwell.ground.errors import UsageError
from upwell.ground.types.compression import Passage

CODE = "\n".join(
    f"def step_{n}(cargo):\n    weigh_{n} = scale(cargo)\n    return weigh_{n}\n" for n in range(60)
)


def numbered(text: str, first: int = 1) -> str:
    rows = text.split("\n")
    return "\n".join(f"{number:6}→{row}" for number, row in enumerate(rows, first))


def test_numbers_that_begin_with_one_are_taken_off() -> None:
    passage = without_numbers(Passage(text=numbered(CODE)))
    assert passage.text == CODE
    assert passage.first_line == 1


def test_the_first_number_of_a_later_part_stays() -> None:
    passage = without_numbers(Passage(text=numbered(CODE, 120)))
    assert passage.text == "   120→" + CODE
    assert passage.first_line == 120


def test_lines_before_and_after_may_lack_numbers() -> None:
    text = f"Here is the file:\n{numbered(CODE)}\n(end)"
    assert without_numbers(Passage(text=text)).text == f"Here is the file:\n{CODE}\n(end)"


def test_numbers_with_a_gap_stay() -> None:
    text = numbered(CODE).replace("    30→", "    31→", 1)
    assert without_numbers(Passage(text=text)).text == text


def gaps(shortened: str) -> list[tuple[int, int]]:
    """The lines that the marks of a shortened text name."""
    marks = re.findall(r"^\[…(\d+)→(\d+)\]$", shortened, re.M)
    return [(int(following) - int(count), int(following) - 1) for count, following in marks]


@pytest.mark.parametrize("text", [CODE, numbered(CODE, 120), CODE.replace("def", "We saw")])
def test_the_lines_that_marks_name_are_the_missing_ones(text: str) -> None:
    shortened = compress(text, max_chars=1_200).text
    missing = gaps(shortened)
    assert missing
    for first, last in missing:
        lines = lines_of(text, first, last).split("\n")
        assert len(lines) == last - first + 1
        assert not {line.partition("→")[2] or line for line in lines} & set(
            line for line in shortened.split("\n") if line.strip()
        )


def test_a_line_before_the_numbers_does_not_shift_them() -> None:
    text = f"Here is the file:\n{numbered(CODE)}"
    assert lines_of(text, 3, 4) == "\n".join(numbered(CODE).split("\n")[2:4])


def test_lines_of_a_numbered_part_have_the_numbers_of_the_tool() -> None:
    assert lines_of(numbered(CODE, 120), 130, 131) == "\n".join(
        numbered(CODE, 120).split("\n")[10:12]
    )
    assert lines_of(CODE, 2, 2) == CODE.split("\n")[1]
    assert lines_of(CODE, 9_000, 9_001) == ""


@pytest.mark.parametrize("lines", ["", "0", "9-3", "a-b", "1-2-3", "-4"])
def test_texts_that_are_not_a_range_of_lines(lines: str) -> None:
    with pytest.raises(UsageError):
        line_range(lines)


def test_a_diff_whose_numbers_have_a_gap_keeps_its_pairs_together() -> None:
    changes = "".join(
        f" context_{n} stays\n-lift_{n}(crane_{n}, load_{n})\n+lift_{n}(crane_{n}, part_{n})\n"
        for n in range(40)
    )
    rows = numbered(
        f"diff --git a/c.py b/c.py\n--- a/c.py\n+++ b/c.py\n@@ -1,24 +1,24 @@\n{changes}"
    ).split("\n")
    text = "\n".join([*rows[:50], *rows[54:]])
    shown = compress(text, max_chars=len(text) // 4).text.split("\n")
    pairs = 0
    for n in range(40):
        old, new = f"-lift_{n}(crane_{n}, load_{n})", f"+lift_{n}(crane_{n}, part_{n})"
        if old in text and new in text and not 15 <= n <= 17:
            assert (old in shown) == (new in shown)
            pairs += old in shown
    assert pairs >= 4


def test_code_whose_numbers_have_a_gap_keeps_its_numbers() -> None:
    rows = numbered(CODE).split("\n")
    text = "\n".join([*rows[:50], *rows[54:]])
    assert without_numbers(Passage(text=text)).text == text
