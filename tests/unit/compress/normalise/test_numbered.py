"""The line numbers of a tool are taken off, and marks name the missing lines."""

from itertools import pairwise

from upwell.compress import compress
from upwell.compress.normalise.numbered import without_numbers
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


def test_marks_name_the_next_line() -> None:
    original = CODE.split("\n")
    retained = compress(numbered(CODE), max_chars=1_200).text.split("\n")
    for mark, following in pairwise(retained):
        if mark.startswith("[…") and "→" in mark:
            number = int(mark.partition("→")[2].removesuffix("]"))
            assert original[number - 1] == following
