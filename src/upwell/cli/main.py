"""The `upwell` command: registers its subcommands, and reports an error as one line and an exit
status."""

import shlex
import sys
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from upwell.cli import (
    capturing,
    clients,
    compress,
    daemon,
    dashboard,
    demo,
    gain,
    hooks,
    inbox,
    learning,
    lessons,
    logins,
    memories,
    migrate,
    notes,
    replay,
    review,
    rules,
    servers,
    setup,
    stats,
    team,
    tenant,
    tokens,
    transfer,
    upkeep,
)
from upwell.cli.help import GroupedCommands
from upwell.cli.output import note, say
from upwell.cli.parameters import complaint, worded
from upwell.cli.version import version_line
from upwell.ground.errors import UpwellError, UsageError
from upwell.ground.trace import LOG

FAILED = 1
USAGE = 2

app = typer.Typer(
    name="upwell",
    cls=GroupedCommands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Reminds a coding agent of what was learned earlier, and keeps its context free of what "
    "it does not need.",
)
for verbs in (
    demo,
    setup,
    clients,
    servers,
    memories,
    rules,
    notes,
    transfer,
    migrate,
    compress,
    learning,
    stats,
    gain,
    replay,
    upkeep,
    dashboard,
    daemon,
    hooks,
    inbox,
    lessons,
    review,
    capturing,
    tokens,
    tenant,
    team,
    logins,
):
    verbs.register(app)


@app.callback(invoke_without_command=True)
def upwell(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version."),
) -> None:
    if version:
        typer.echo(version_line())
        raise typer.Exit


COMMAND = worded(app)
VERBS = frozenset(getattr(COMMAND, "commands", ()))


def main(args: Sequence[str]) -> int:
    """Run one command. Returns 0 if it succeeded, 1 if it failed, 2 for wrong usage, and 130 if it
    was interrupted.
    """
    try:
        result = COMMAND(list(args), prog_name="upwell", standalone_mode=False)
    except typer.Exit as done:
        return int(done.exit_code)
    except typer.Abort:
        return FAILED
    except TyperException as error:
        message = complaint(error)
        if "\n" in message:
            say(message)
            return USAGE
        return _complain(message, _advice(args), USAGE)
    except UsageError as error:
        return _complain(error.message, error.hint, USAGE)
    except UpwellError as error:
        return _complain(error.message, error.hint, FAILED)
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        LOG.exception("the command failed: %s", " ".join(args[:1]))
        return _complain(f"internal error: {error!r}", "the log has the details", FAILED)
    return result if isinstance(result, int) else 0


def _advice(args: Sequence[str]) -> str:
    if args[:1] == ["add"] and "--" not in args and len(args) > 2 and not args[1].startswith("-"):
        name, *line = args[1:]
        return f"did you mean `upwell add {name} -- {shlex.join(line)}`?"
    verb = f" {args[0]}" if args and args[0] in VERBS else ""
    return f"see `upwell{verb} --help`"


def _complain(message: str, hint: str, status: int) -> int:
    line = " ".join(f"{message} ({hint})".split()) if hint else " ".join(message.split())
    note(f"upwell: {line}")
    return status
