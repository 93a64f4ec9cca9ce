"""Helpers of the tests that read other programs' stores."""

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from upwell.ground.types.memory import Memory
from upwell.migration.base import Item, LeftOut, Place, Record
from upwell.migration.registry import program_named

EPOCH = 1_753_012_800.0
"""2025-07-20T12:00:00Z."""


def place_at(folder: Path, environment: Mapping[str, str] | None = None) -> Place:
    """The place of a user whose home is `folder`, and who works there."""
    return Place(folder, environment or {}, folder)


def items_of(program: str, path: Path, place: Place | None = None) -> list[Item]:
    return list(program_named(program).read(path, place or place_at(path.parent)))


def memories_of(program: str, path: Path) -> list[Memory]:
    return [item.memory for item in items_of(program, path) if isinstance(item, Record)]


def left_out_of(program: str, path: Path) -> list[str]:
    return [item.why for item in items_of(program, path) if isinstance(item, LeftOut)]


def database(path: Path, schema: str, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Path:
    """A database with these rows, each beside the name of its table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(schema)
        for table, row in rows:
            marks = ", ".join("?" * len(row))
            connection.execute(
                f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values())
            )
        connection.commit()
    return path
