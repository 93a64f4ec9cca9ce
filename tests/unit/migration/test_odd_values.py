"""Odd values in any field of another program: left out or read, never a crash."""

from pathlib import Path

import pytest
from tests.unit.migration import test_mem0
from tests.unit.migration.reading import items_of

from upwell.ground.errors import UsageError
from upwell.memory.records import validated
from upwell.migration.base import Record

ODD: list[object] = [
    None,
    3,
    -1,
    2.5,
    10**18,
    1e300,
    "",
    " ",
    "[",
    '["a", 3, null]',
    "x" * 10_000,
    "\x00",
]


@pytest.mark.parametrize(
    "value",
    [*ODD, 10**400, [], {}, [[]]],
)
@pytest.mark.parametrize("field", test_mem0.RESULT)
def test_an_odd_field_does_not_fail_the_import(tmp_path: Path, field: str, value: object) -> None:
    path = test_mem0.export(tmp_path, [{**test_mem0.RESULT, field: value}])
    (item,) = items_of("mem0", path)
    assert isinstance(item, Record)


def test_a_project_that_no_folder_can_be_is_left_out(tmp_path: Path) -> None:
    row = {**test_mem0.RESULT, "metadata": {"project": "/code/a\0b"}}
    (item,) = items_of("mem0", test_mem0.export(tmp_path, [row]))
    assert isinstance(item, Record)
    with pytest.raises(UsageError, match="must not contain a NUL"):
        validated(item.memory)
