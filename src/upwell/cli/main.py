"""The `upwell` command. It reports an error as one line and an exit status."""

import shlex
from collections.abc import Sequence

import click
from click.exceptions import NoArgsIsHelpError

from upwell.cli.help import PLACES, Commands
from upwell.cli.output import note, say
from upwell.ground.errors import UpwellError, UsageError

FAILED = 1
USAGE = 2
INTERRUPTED = 130


def _print_version(ctx: click.Context, param: click.Parameter, is_given: bool) -> None:
    if is_given:
        from upwell.cli.version import version_line

        say(version_line())
        ctx.exit()


COMMAND = Commands(
    "Reminds a coding agent of what was learned earlier, and keeps its context free of what it "
    "does not need."
)
COMMAND.context_settings["help_option_names"] = ["-h", "--help"]
COMMAND.params.append(
    click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print_version,
        help="Print the version.",
    )
)


def main(args: Sequence[str]) -> int:
    """Run one command. Returns 0 if it succeeded, 1 if it failed, 2 for wrong usage, and 130 if it
    was interrupted.
    """
    try:
        result = COMMAND.main(list(args), prog_name="upwell", standalone_mode=False)
    except click.Abort as error:
        return INTERRUPTED if isinstance(error.__cause__, KeyboardInterrupt) else FAILED
    except NoArgsIsHelpError as error:
        say(error.message)
        return USAGE
    except click.ClickException as error:
        return _complain(_complaint(error), _advice(args), USAGE)
    except UsageError as error:
        return _complain(error.message, error.hint, USAGE)
    except UpwellError as error:
        return _complain(error.message, error.hint, FAILED)
    except Exception as error:
        from upwell.ground.trace import LOG

        LOG.exception("the command failed: %s", " ".join(args[:1]))
        return _complain(f"internal error: {error!r}", "the log has the details", FAILED)
    return result if isinstance(result, int) else 0


def _complaint(error: click.ClickException) -> str:
    if likely := getattr(error, "possibilities", None):
        return f"{error.message} Did you mean {likely[0]!r}?"
    return error.format_message().rstrip(".")


def _advice(args: Sequence[str]) -> str:
    if args[:1] == ["add"] and "--" not in args and len(args) > 2 and not args[1].startswith("-"):
        name, *line = args[1:]
        return f"did you mean `upwell add {name} -- {shlex.join(line)}`?"
    verb = f" {args[0]}" if args and args[0] in PLACES else ""
    return f"see `upwell{verb} --help`"


def _complain(message: str, hint: str, status: int) -> int:
    line = " ".join(f"{message} ({hint})".split()) if hint else " ".join(message.split())
    note(f"upwell: {line}")
    return status
