"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

from upwell.cli.command import Argument, Option

TranscriptPaths = Annotated[
    list[Path] | None, Argument(metavar="PATH", help="Transcripts, or folders of them.")
]
TranscriptHost = Annotated[
    str | None, Option(help="claude, codex, copilot, gemini, opencode, specstory or events.")
]
Everywhere = Annotated[
    bool, Option("--everywhere", help="For every project, not only this repository.")
]
Session = Annotated[
    str | None,
    Option(metavar="ID", help="Only this session; `upwell explain --json` shows the session ids."),
]
Days = Annotated[int, Option(min=1, max=90, help="Number of days, including today.")]
Since = Annotated[str | None, Option(help="Instead of --days, for example 30d, 2w or a date.")]
