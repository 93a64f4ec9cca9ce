"""The file of notes: an array of JSON objects, read at each use and replaced whole.

An edit by hand counts. Every change is lock, temporary file, fsync, rename. A torn or foreign
file is moved aside, never overwritten, and things in it that are no notes stay.
"""

import errno
import json
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

from upwell.ground.errors import StoreError
from upwell.ground.files import clear_halves, exclusively, write_whole, writing
from upwell.ground.limits import Clock
from upwell.ground.text.counts import counted
from upwell.ground.trace import LOG
from upwell.ground.types import Ping

Raw = dict[str, Any]


class NotesFile:
    """One `stm.json`. Its methods block."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._moved_aside: Path | None = None

    def read(self) -> list[Raw]:
        """The notes of the file that can be read as such.

        Raises:
            StoreError: the file cannot be read.
        """
        try:
            notes = _parsed(self.path)
        except OSError as error:
            raise StoreError(
                f"cannot read {self.path}: {error.strerror}", hint="check its owner"
            ) from error
        if notes is None:
            self.change(list)
            notes = []
        return [raw for raw in notes if is_note(raw)]

    def change(self, change: Callable[[list[Any]], list[Any]]) -> None:
        """Replace everything in the file, foreign things too, by what `change` makes of it.

        Raises:
            StoreUnwritable: nothing was changed.
        """
        with writing(self.path):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with exclusively(self.path):
                clear_halves(self.path)
                notes = change(self._load_or_move_aside())
                write_whole(self.path, json.dumps(notes, indent=2) + "\n")

    def take_report(self) -> Path | None:
        """Where a file that could not be read was moved since this was last asked."""
        moved, self._moved_aside = self._moved_aside, None
        return moved

    def ping(self) -> Ping:
        """Can the file be read? Nothing is moved."""
        try:
            notes = _parsed(self.path)
        except OSError as error:
            return Ping(ok=False, detail=f"{self.path}: {error.strerror}", hint="check its owner")
        if notes is None:
            return Ping(
                ok=False,
                detail=f"{self.path} is no JSON array",
                hint="mend it, or the next use moves it aside",
            )
        return Ping(ok=True, detail=f"{counted(sum(map(is_note, notes)), 'note')} in {self.path}")

    def _load_or_move_aside(self) -> list[Any]:
        """Under the lock, so that nobody else's good file is moved."""
        notes = _parsed(self.path)
        if notes is not None:
            return notes
        stamp = datetime.fromtimestamp(self._clock.now(), UTC).strftime("%Y%m%dT%H%M%S")
        aside = self.path.with_name(f"{self.path.name}.corrupt-{stamp}")
        self.path.replace(aside)
        self._moved_aside = aside
        LOG.error("%s could not be read and was moved to %s", self.path, aside)
        return []


def is_note(raw: object) -> TypeGuard[Raw]:
    """Has it an id and a content?"""
    return (
        isinstance(raw, dict)
        and isinstance(raw.get("id"), str)
        and isinstance(raw.get("content"), str)
    )


def _parsed(path: Path) -> list[Any] | None:
    """What the file holds; nothing where there is none, None where it holds no JSON array.

    Raises:
        OSError: it cannot be read, or is no file.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(errno.EINVAL, "is no file")
        notes = json.loads(path.read_bytes())
    except FileNotFoundError:
        return []
    except (ValueError, RecursionError):
        return None
    return notes if isinstance(notes, list) else None
