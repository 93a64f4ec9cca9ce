"""Odd values in any column or field of another program: left out or read, never a crash."""

import json
from pathlib import Path

import pytest
from tests.unit.migration import test_claude_mem, test_mcp_memory_service, test_mem0
from tests.unit.migration.reading import items_of

from upwell.ground.errors import UsageError
from upwell.memory.records import validated
from upwell.migration.base import LeftOut, Record

ODD = [
    None,
    3,
    -1,
    2.5,
    10**18,
    1e300,
    b"\xff\x00",
    "",
    " ",
    "[",
    '["a", 3, null]',
    "x" * 10_000,
    "\x00",
]
STORES = {
    "claude-mem": (
        test_claude_mem.DECISION,
        lambda at, row: test_claude_mem.store(at, ("observations", row)),
    ),
    "mcp-memory-service": (
        {key: value for key, value in test_mcp_memory_service.ROW.items() if key != "content_hash"},
        lambda at, row: test_mcp_memory_service.store(at, **{"content": "x", **row}),
    ),
}


@pytest.mark.parametrize("value", ODD, ids=repr)
@pytest.mark.parametrize(
    ("program", "column"),
    [
        (program, column)
        for program, (row, _) in STORES.items()
        for column in row
        if column not in ("id", "content")
    ],
)
def test_an_odd_column_is_read_or_left_out(
    tmp_path: Path, program: str, column: str, value: object
) -> None:
    row, write = STORES[program]
    (item,) = items_of(program, write(tmp_path, {**row, column: value}))
    assert isinstance(item, Record | LeftOut)
    if isinstance(item, Record):
        memory = item.memory
        assert json.dumps([memory.text, memory.tags, memory.paths, memory.source])


@pytest.mark.parametrize(
    "value",
    [*(odd for odd in ODD if not isinstance(odd, bytes)), 10**400, [], {}, [[]]],
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
