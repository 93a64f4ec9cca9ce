"""A shortened snapshot of a page keeps the elements that can be clicked."""

from itertools import pairwise

from upwell.compress import compress

ROWS = "\n".join(
    f"""      - listitem [ref=e{number}0]:
        - generic [ref=e{number}1]:
          - paragraph [ref=e{number}2]: Crane {number} lifts {number * 7} tons at the north quay
          - 'link "Details: crane {number}" [ref=e{number}3] [cursor=pointer]':
            - /url: /cranes/{number}/
          - button "Reserve crane {number}" [ref=e{number}4] [cursor=pointer]
          - button "Share" [ref=e{number}5] [cursor=pointer]"""
    for number in range(10, 40)
)
PAGE = f"- generic [active] [ref=e1]:\n  - main [ref=e2]:\n    - list [ref=e3]:\n{ROWS}\n"


def test_the_elements_of_a_page_come_first() -> None:
    text = compress(PAGE, max_chars=len(PAGE) * 2 // 5).text
    assert all(f'"Reserve crane {number}" [ref=e{number}4]' in text for number in range(10, 40))
    assert text.count("Details: crane ") == 30
    assert text.count("Crane ") < 30


def test_groups_without_a_name_are_left_out_and_counted() -> None:
    result = compress(PAGE, max_chars=len(PAGE) * 9 // 10)
    assert "generic [ref=e101]" not in result.text
    assert [(part.what, part.count) for part in result.omitted] == [("groups without a name", 63)]
    assert "Crane 39 lifts 273 tons" in result.text


def test_an_address_stays_with_its_link() -> None:
    for share in range(1, 10):
        lines = compress(PAGE, max_chars=len(PAGE) * share // 10).text.split("\n")
        for above, line in pairwise(lines):
            if "/url: /cranes/" in line:
                assert f"crane {line.split('/')[-2]}" in above


def test_errors_of_the_console_leave_room_for_the_elements() -> None:
    errors = "".join(
        f"- [ERROR] Failed to load resource: status 404 @ /plugins/{n}/settings:0\n"
        for n in range(40)
    )
    page = "".join(
        f'- generic [ref=e{n}]:\n  - link "Pier {n}" [ref=e{n}9]:\n    - /url: /piers/{n}\n'
        for n in range(10, 18)
    )
    text = f"### Snapshot\n{page}### Events\n{errors}"
    short = compress(text, max_chars=len(text) // 4).text
    assert all(f'"Pier {n}" [ref=e{n}9]' in short for n in range(10, 18))
