"""A bar on stderr while something takes its time; nothing where nobody watches."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Gives `show(done, total)`; the bar appears when it is first called."""
    with ExitStack() as bar:
        draw: Callable[[int, int], None] | None = None

        def show(done: int, total: int) -> None:
            nonlocal draw
            draw = draw or _drawn(what, bar)
            draw(done, total)

        yield show if sys.stderr.isatty() else lambda done, total: None


def _drawn(what: str, until: ExitStack) -> Callable[[int, int], None]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
    bar = until.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
    task = bar.add_task(what, total=None)

    def draw(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)

    return draw
