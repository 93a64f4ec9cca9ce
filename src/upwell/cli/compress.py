"""The commands `compress` and `read`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from upwell.cli.command import Argument, Option
from upwell.cli.output import Json, note, raw, say_json
from upwell.cli.session import with_app, with_memory
from upwell.ground.errors import UsageError
from upwell.ground.text.words import counted

if TYPE_CHECKING:
    from upwell.app import App
    from upwell.ground.types.compression import Compressed


def compress(
    file: Annotated[
        Path | None, Argument(metavar="FILE", help="The text; omit to read stdin.")
    ] = None,
    strategy: Annotated[str, Option(help="Strategy; auto picks one by content.")] = "auto",
    max_tokens: Annotated[int | None, Option(min=1)] = None,
    max_chars: Annotated[int | None, Option(min=1)] = None,
    query: Annotated[str | None, Option(help="The question that the text should answer.")] = None,
    as_json: Json = False,
) -> None:
    """Fit a text to a budget. `upwell read KEY` prints the whole text again."""
    if max_tokens and max_chars:
        raise UsageError("--max-tokens and --max-chars cannot be combined", hint="give one")
    text = _text_of(file)

    async def work(app: "App") -> "Compressed":
        return await app.compress(
            text,
            strategy=strategy,
            max_tokens=max_tokens,
            max_chars=max_chars,
            query=query or "",
            name=str(file or ""),
            read_later=True,
        )

    done = with_app(work)
    if as_json:
        say_json(_described(done))
        return
    raw(done.text)
    if not done.text.endswith("\n") and (sys.stdout.isatty() or done.omitted):
        note("")
    if done.omitted:
        whole = (
            f"whole text: upwell read {done.key}"
            if done.key
            else "the whole text was not stored: it contains a secret or is too large, or the disk "
            "is full or read-only"
        )
        left = "; ".join(f"{o.count:,} of {o.total:,} {o.what}" for o in done.omitted[:5])
        note(
            f"upwell: {done.strategy}, {done.before:,} to {done.after:,} characters "
            f"({counted(done.tokens, 'token')}); left out: {left}; {whole}"
        )


def read(
    key: Annotated[
        str,
        Argument(metavar="KEY", help="The key from the notice, a memory's id, or a citation."),
    ],
    lines: Annotated[
        str | None, Option(metavar="FIRST-LAST", help="Print only these lines.")
    ] = None,
) -> None:
    """Print a whole text by the key in its notice, or a memory by its id or address."""
    raw(with_memory(lambda app: app.texts.read(key, lines or "")))


def _text_of(file: Path | None) -> str:
    try:
        data = file.read_bytes() if file else sys.stdin.buffer.read()
    except OSError as error:
        raise UsageError(
            f"cannot read {file}: {(error.strerror or '').lower()}", hint="check the path"
        ) from error
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{file or 'stdin'} is not UTF-8 text (byte {error.start})", hint="convert it first"
        ) from error


def _described(done: "Compressed") -> dict[str, object]:
    body: dict[str, object] = {
        "text": done.text,
        "strategy": done.strategy,
        "before": done.before,
        "after": done.after,
        "tokens": done.tokens,
        "lossless": done.lossless,
        "omitted": [
            {"what": o.what, "count": o.count, "total": o.total, "where": o.where}
            for o in done.omitted
        ],
        "tried": [{"strategy": a.strategy, "outcome": a.outcome} for a in done.tried],
    }
    return {**body, "key": done.key} if done.key else body
