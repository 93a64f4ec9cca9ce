"""A progress bar on stderr, only on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from upwell.ground.text.invisible import visible


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Yields `show(done, total)`. The first call draws the bar."""
    with ExitStack() as bar:
        draw: Callable[[int, int], None] | None = None

        def show(done: int, total: int) -> None:
            nonlocal draw
            draw = draw or _drawn(visible(title), bar)
            draw(done, total)

        yield show if sys.stderr.isatty() else lambda done, total: None


def _drawn(title: str, stack: ExitStack) -> Callable[[int, int], None]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
    bar = stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
    task = bar.add_task(title, total=None)

    def draw(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)

    return draw
