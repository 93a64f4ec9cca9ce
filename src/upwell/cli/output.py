"""Output: tables on a terminal, plain text in a pipe, JSON on request."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import click

from upwell.cli.command import Option
from upwell.ground.text.invisible import visible, visible_json

Json = Annotated[bool, Option("--json", help="Print JSON.")]


def say(text: str = "") -> None:
    """Print a line on stdout. On a terminal, invisible characters are escaped."""
    click.echo(_harmless(text) if sys.stdout.isatty() else _writable(text))


def note(text: str) -> None:
    """Print a remark on stderr. On a terminal, invisible characters are escaped."""
    click.echo(_harmless(text) if sys.stderr.isatty() else _writable(text), err=True)


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
        text = _harmless(text)
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
        drawn.add_row(*(Text(_harmless(_cell(row[name]))) for name in columns))
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


def _harmless(text: str) -> str:
    return visible(text)


def _utf8() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _writable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
