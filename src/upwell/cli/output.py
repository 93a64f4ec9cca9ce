"""What commands print: tables on a terminal, plain text in a pipe, JSON on request, and a progress
bar on stderr for work that takes over a second. Also durations and times as people write them, and
arguments and options that several commands share.
"""

import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock, Timer
from typing import TYPE_CHECKING, Annotated, Any

import click

from upwell.cli.command import Argument, Option
from upwell.ground.errors import UsageError
from upwell.ground.text.safe import visible, visible_json

if TYPE_CHECKING:
    from rich.progress import Progress

    from upwell.replay.transcripts import Transcript

_SPAN = re.compile(r"(\d{1,6})\s*([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
MAX_DAYS = 90
"""The number of days for which daily figures are kept."""


def seconds_of(span: str) -> float:
    """The number of seconds in a duration such as `30d`.

    Raises:
        UsageError: `span` is not a positive number followed by s, m, h, d or w.
    """
    match = _SPAN.fullmatch(span.strip().lower())
    if match is None or not int(match[1]):
        raise UsageError(f"{span[:40]!r} is not a duration", hint="try 45m, 12h, 30d or 8w")
    return float(int(match[1]) * _UNITS[match[2]])


def epoch_of(since: str | None) -> float:
    """The time of `--since`, in seconds since the epoch. `since` is a date, or a duration before
    now. Returns 0 for None.

    Raises:
        UsageError: `since` is neither a duration nor a date.
    """
    if since is None:
        return 0.0
    from upwell.replay.transcripts.base import moment

    if at := moment(since):
        return at
    try:
        return time.time() - seconds_of(since)
    except UsageError as error:
        raise UsageError(
            f"--since {since!r:.40} is not a time", hint="try 30d, 12h or 2026-01-31"
        ) from error


def days_since(since: str) -> int:
    """The number of calendar days (UTC) that `--since` covers, including today. `7d` covers seven
    days. If `--since` is a date, that day is the first.

    Raises:
        UsageError: `since` is not a time, is in the future, or covers more than 90 days.
    """
    began = datetime.fromtimestamp(epoch_of(since), UTC).date()
    days = (datetime.now(UTC).date() - began).days + 1
    if _SPAN.fullmatch(since.strip().lower()):
        days = math.ceil(seconds_of(since) / _UNITS["d"])
    if days < 1:
        raise UsageError(f"--since {since!r:.40} is in the future")
    if days > MAX_DAYS:
        raise UsageError(f"--since goes back at most {MAX_DAYS} days")
    return days


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


TranscriptPaths = Annotated[
    list[Path] | None, Argument(metavar="PATH", help="Transcripts, or folders of them.")
]
TranscriptHost = Annotated[
    str | None, Option(help="claude, codex, copilot, gemini, opencode, specstory or events.")
]


def transcripts_named(paths: Sequence[Path], host: str | None) -> "list[Transcript]":
    """The transcripts at these paths or, without any, those of every agent on this machine."""
    from upwell.replay.transcripts import format_named, transcripts_at, transcripts_of_user

    format = format_named(host) if host else None
    if paths:
        return transcripts_at(paths, format)
    return transcripts_of_user(Path.home(), Path.cwd(), format)


Everywhere = Annotated[
    bool, Option("--everywhere", help="For every project, not only this repository.")
]
Session = Annotated[
    str | None,
    Option(metavar="ID", help="Only this session; `upwell explain --json` shows the session ids."),
]
Days = Annotated[int, Option(min=1, max=90, help="Number of days, including today.")]
Since = Annotated[str | None, Option(help="Instead of --days, for example 30d, 2w or a date.")]


Json = Annotated[bool, Option("--json", help="Print JSON.")]


def say(text: str = "") -> None:
    """Print a line on stdout. On a terminal, invisible characters are escaped."""
    click.echo(visible(text) if sys.stdout.isatty() else _writable(text))


def note(text: str) -> None:
    """Print a remark on stderr. On a terminal, invisible characters are escaped."""
    click.echo(visible(text) if sys.stderr.isatty() else _writable(text), err=True)


def note_masked(rules: Iterable[str]) -> None:
    """Report the masked secrets by the names of the rules that found them."""
    for rule in rules:
        note(f"upwell: a secret was masked before storing ({rule})")


def say_json(value: Any) -> None:
    """Print JSON. On a terminal it is indented, and invisible characters are escaped."""
    if sys.stdout.isatty():
        click.echo(visible_json(json.dumps(value, ensure_ascii=not _utf8(), indent=2)))
    else:
        click.echo(json.dumps(value, ensure_ascii=not _utf8()))


def raw(text: str) -> None:
    """Print `text` byte for byte, without an added newline. On a terminal, invisible characters are
    escaped, because the text may come from an untrusted server."""
    sys.stdout.flush()
    if sys.stdout.isatty():
        text = visible(text)
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
    sys.stdout.buffer.flush()


def table(
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    empty: str = "",
    *,
    has_header: bool = False,
) -> None:
    """Print rows as a table on a terminal and as tab-separated lines in a pipe. Without rows, print
    the remark `empty`. With `has_header`, a pipe also gets the column names.
    """
    if not rows:
        if empty:
            note(empty)
        return
    if not sys.stdout.isatty():
        if has_header:
            say("\t".join(columns))
        for row in rows:
            say("\t".join(" ".join(_cell(row[name]).split()) for name in columns))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(*columns, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        drawn.add_row(*(Text(visible(_cell(row[name]))) for name in columns))
    Console().print(drawn)


def row(cells: Sequence[tuple[str, int]]) -> None:
    """Print one row of a table whose rows appear one at a time. Cells are padded to their widths on
    a terminal, and separated by tabs in a pipe.
    """
    if sys.stdout.isatty():
        say("  ".join(text.ljust(width) for text, width in cells))
    else:
        say("\t".join(" ".join(text.split()) for text, _ in cells))
    sys.stdout.flush()


def _cell(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _utf8() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _writable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
