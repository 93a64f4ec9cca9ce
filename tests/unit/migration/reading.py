"""Helpers of the tests that read other programs' stores."""

from collections.abc import Mapping
from pathlib import Path

from upwell.ground.types.memory import Memory
from upwell.migration.base import Item, LeftOut, Record, StorePlace
from upwell.migration.registry import program_named

EPOCH = 1_753_012_800.0
"""2025-07-20T12:00:00Z."""


def place_at(folder: Path, environment: Mapping[str, str] | None = None) -> StorePlace:
    """The place of a user whose home is `folder`, and who works there."""
    return StorePlace(folder, environment or {}, folder)


def items_of(program: str, path: Path, place: StorePlace | None = None) -> list[Item]:
    return list(program_named(program).read(path, place or place_at(path.parent)))


def memories_of(program: str, path: Path) -> list[Memory]:
    return [item.memory for item in items_of(program, path) if isinstance(item, Record)]


def left_out_of(program: str, path: Path) -> list[str]:
    return [item.why for item in items_of(program, path) if isinstance(item, LeftOut)]
