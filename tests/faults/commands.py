"""Commands of `upwell` in processes that are killed at any step, or that find the disk full.

A step is a change of a file, a statement of SQLite, or some thousand instructions of SQLite within
a statement. Each command runs in a process forked from one that has loaded the program, which takes
much less time than starting Python.
"""

import importlib
import os
import signal
import sqlite3
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.conftest import Done

MODULES = "cli.main cli.memories cli.upkeep cli.stats app app.memory app.store".split()
_INSTRUCTIONS = 3_000
_FAILED = 99


def load() -> None:
    """Import the program, so that the forked processes need not."""
    for name in MODULES:
        importlib.import_module(f"upwell.{name}")


class Kill:
    """Kills this process at the step with this number, 0 for never."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.steps = 0

    def install(self) -> None:
        for name in ("replace", "rename", "link", "unlink", "mkdir", "ftruncate", "fsync"):
            setattr(os, name, self._counted(getattr(os, name)))
        open_, connect = os.open, sqlite3.connect

        def opened(path: Any, flags: int, *args: Any, **options: Any) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self.step()
            return open_(path, flags, *args, **options)

        def connected(*args: Any, **options: Any) -> sqlite3.Connection:
            db = connect(*args, **options)
            db.set_trace_callback(lambda _: self.step())
            db.set_progress_handler(self.step, _INSTRUCTIONS)
            return db

        os.open = opened  # type: ignore[assignment]
        sqlite3.connect = connected  # type: ignore[assignment]

    def step(self) -> None:
        self.steps += 1
        if self.steps == self._at:
            os.kill(os.getpid(), signal.SIGKILL)

    def _counted(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self.step()
            return change(*args, **options)

        return counted


def run(environment: Mapping[str, str], *args: str, kill_at: int = 0) -> Done:
    """Run a command. Its exit status is negative if it was killed. `load()` must be called
    before."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _become(environment, out.fileno(), err.fileno(), args, kill_at)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    done = Done(code, *texts)
    assert code != _FAILED, done.err
    assert "Traceback" not in done.err, done.err
    assert "internal error" not in done.err, done.err
    return done


def _become(
    environment: Mapping[str, str],
    out: int,
    err: int,
    args: tuple[str, ...],
    kill_at: int,
) -> None:
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(environment["HOME"])
        from upwell.cli.main import main

        if kill_at:
            Kill(kill_at).install()
        code = main(args)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(_FAILED)


def sound_rows(database: Path, statement: str) -> list[Any]:
    """The rows of a query in a database that must have no flaw."""
    db = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)], database
        return db.execute(statement).fetchall()
    finally:
        db.close()
