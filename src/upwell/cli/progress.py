"""A progress bar on stderr, only on a terminal, and only for work that takes over a second."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from typing import TYPE_CHECKING

from upwell.ground.text.invisible import visible

if TYPE_CHECKING:
    from rich.progress import Progress

WAIT_SECONDS = 1.0


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Yields `show(done, total)`. A bar appears after a second. Until `show` is called, the bar
    moves back and forth."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    bar = _Bar(visible(title))
    timer = Timer(WAIT_SECONDS, bar.draw)
    timer.daemon = True
    timer.start()
    try:
        yield bar.show
    finally:
        timer.cancel()
        bar.end()


class _Bar:
    """A bar that a timer draws. The lock and `_has_ended` keep a late timer from drawing the bar
    after the end."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._lock = Lock()
        self._state: tuple[int, int] | None = None
        self._drawn: Progress | None = None
        self._has_ended = False

    def show(self, done: int, total: int) -> None:
        with self._lock:
            self._state = (done, total)
            if self._drawn:
                self._drawn.update(self._drawn.task_ids[0], completed=done, total=total)

    def draw(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeRemainingColumn(),
        )
        with self._lock:
            if self._has_ended:
                return
            done, total = self._state or (0, None)
            self._drawn = Progress(*columns, console=Console(stderr=True), transient=True)
            self._drawn.add_task(self._title, completed=done, total=total)
            self._drawn.start()

    def end(self) -> None:
        with self._lock:
            self._has_ended = True
            if self._drawn:
                self._drawn.stop()
