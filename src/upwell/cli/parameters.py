"""The wording of arguments and options in `--help` and error messages. Values are shown as words
such as TEXT or N, not as type names."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.exceptions import TyperException

TranscriptPaths = Annotated[
    list[Path] | None, typer.Argument(metavar="PATH", help="Transcripts, or folders of them.")
]
TranscriptHost = Annotated[
    str | None, typer.Option(help="claude, codex, copilot, gemini, opencode, specstory or events.")
]
Everywhere = Annotated[
    bool, typer.Option("--everywhere", help="For every project, not only this repository.")
]
Session = Annotated[
    str | None,
    typer.Option(
        metavar="ID", help="Only this session; `upwell explain --json` shows the session ids."
    ),
]
Days = Annotated[int, typer.Option(min=1, max=90, help="Number of days, including today.")]
Since = Annotated[
    str | None, typer.Option(help="Instead of --days, for example 30d, 2w or a date.")
]
WORDS = {str: "TEXT", int: "N", list[str]: "TEXT"}


def worded(app: typer.Typer) -> TyperCommand | TyperGroup:
    """The command of `app`, with help that shows each value as a word such as TEXT or N."""
    command = typer.main.get_command(app)
    assert isinstance(command, TyperCommand | TyperGroup)
    for parameter in _parameters(command):
        if isinstance(parameter, TyperArgument):
            parameter.metavar = parameter.metavar or (parameter.name or "").upper()
            vars(parameter)["display_type_rich"] = _no_type
            vars(parameter)["_usage_display_name"] = lambda argument=parameter: _in_usage(argument)
        elif isinstance(parameter, TyperOption):
            parameter.metavar = parameter.metavar or WORDS.get(_kind(parameter))
            vars(parameter)["_get_number_range_help_str"] = lambda option=parameter: bounds(option)
    return command


def complaint(error: TyperException) -> str:
    """The error message for a wrong command line. It quotes a rejected value. For an unknown
    option, it suggests a similar one."""
    parameter = getattr(error, "param", None)
    values = _rejected(error)
    if values and isinstance(parameter, TyperOption) and _kind(parameter) is int:
        within = bounds(parameter)
        expected = f"a whole number, {within}" if within else "a whole number"
        return f"{parameter.opts[-1]} is {values[0]!r}: must be {expected}"
    message = error.format_message() if isinstance(error, typer.BadParameter) else str(error)
    if options := getattr(error, "possibilities", None):
        return f"{message}. Did you mean {options[0]}?"
    return message.rstrip(".") if "\n" not in message else message


def bounds(parameter: TyperOption | TyperArgument) -> str | None:
    """The allowed range in words; None if any number is allowed."""
    least, most = parameter.min, parameter.max
    if least is None:
        return None if most is None else f"at most {most}"
    return f"{least} or more" if most is None else f"{least} to {most}"


def _parameters(command: Any) -> Iterator[Any]:
    yield from command.params
    for verb in getattr(command, "commands", {}).values():
        yield from _parameters(verb)


def _kind(parameter: TyperOption) -> Any:
    return parameter.type_descriptor.annotation


def _rejected(error: TyperException) -> list[Any]:
    faults: list[Any] = getattr(error.__cause__, "errors", list)()
    return [fault["input"] for fault in faults]


def _in_usage(argument: TyperArgument) -> str:
    name = argument.metavar if argument.required else f"[{argument.metavar}]"
    return f"{name}..." if argument.nargs != 1 else f"{name}"


def _no_type(ctx: object) -> None:
    """Replaces the Typer function that fills the type column, so that the column stays empty."""
