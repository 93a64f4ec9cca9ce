"""Units are ordered by the names that they contribute."""

from upwell.compress.order import by_names
from upwell.compress.units.base import BLANK, Units


def units_of(text: str, lifted: frozenset[str] = frozenset()) -> Units:
    units = Units(by_names=True)
    at = 0
    for row in text.splitlines(keepends=True):
        salience = BLANK if not row.strip() else float(row.strip() in lifted)
        units.add(at, at + len(row), salience)
        at += len(row)
    return units


def ordered(text: str, lifted: frozenset[str] = frozenset()) -> list[str]:
    rows = text.split("\n")
    return [rows[unit] for unit in by_names(units_of(text, lifted), text, 1e9)]


def test_a_line_without_a_new_name_comes_last() -> None:
    text = "set harbor_gate crane_one\n" * 3 + "set quay_wall lamp_post\n"
    order = ordered(text)
    assert set(order[:2]) == {"set harbor_gate crane_one", "set quay_wall lamp_post"}


def test_identifiers_come_before_plain_words() -> None:
    rows = [f"plain words about {word} follow" for word in "ships cranes lamps ropes".split()]
    rows[2] = "call open_harbor_gate then lift_cranes"
    assert rows[2] in ordered("\n".join(rows * 3))[:2]


def test_lifted_lines_come_first() -> None:
    rows = [f"name_{n} = value_{n} of kind_{n}" for n in range(60)]
    assert ordered("\n".join(rows), frozenset({rows[50]}))[0] == rows[50]


def test_names_that_the_request_mentions_come_first() -> None:
    rows = [f"unload_{ship}(crate_{ship})" for ship in ("ada", "bea", "cyd", "dora")]
    text = "\n".join([*rows, "moor_the_ferry(to_the_quay)"])

    def first(request: str) -> int:
        units = units_of(text)
        units.early = 0.0
        return by_names(units, text, 1e9, request)[0]

    assert first("is tug.py to blame?") == first("go on, and do it") == first("")
    assert first("unload what crate_cyd has") == 2
    assert first("the FERRY_ cannot moor_the") == 4
