"""The `upwell` command. It reports an error as one line and an exit status. The module of a command
is imported when the command is used.
"""

import shlex
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import click
from click.exceptions import NoArgsIsHelpError, NoSuchCommand

from upwell import __version__
from upwell.cli.command import Command, Group
from upwell.cli.output import note, say
from upwell.ground.errors import UpwellError, UsageError

GROUPS = {
    "Start": {
        "setup": "setup",
        "demo": "upkeep",
        "doctor": "upkeep",
        "on": "servers",
        "off": "servers",
    },
    "Memory": {
        "remember": "memories",
        "recall": "memories",
        "context": "memories",
        "forget": "memories",
        "restore": "memories",
        "rules": "rules",
        "lessons": "lessons",
        "inbox": "inbox",
        "learn": "lessons",
        "import": "transfer.import_memories",
        "export": "transfer",
        "stm": "notes",
        "backup": "upkeep",
        "migrate": "upkeep",
    },
    "See what it does": {
        "dashboard": "stats",
        "explain": "stats",
        "stats": "stats",
        "replay": "replay",
        "feedback": "stats",
    },
    "Tool results": {
        "compress": "compress",
        "read": "compress",
        "cache": "upkeep",
    },
    "Servers and hooks": {
        "serve": "servers",
        "wrap": "servers",
        "add": "servers",
        "list": "servers.list_servers",
        "remove": "servers",
        "login": "access",
        "logout": "access",
        "token": "access",
        "team": "access",
        "hook": "hooks",
        "daemon": "hooks",
        "config": "upkeep",
    },
}
"""The commands, in the sections of `upwell --help` and in the order in which a newcomer needs them:
the module of each, and the function if it has another name."""
PLACES = {name: place for group in GROUPS.values() for name, place in group.items()}
OLD = {
    "init": "setup --only servers",
    "eject": "setup --undo --only servers",
    "topics": "recall --topics",
    "review": "inbox review",
    "top": "explain --follow",
    "gain": "stats gain",
    "tune": "stats tune",
}
"""Names of commands in version 0.2.0, and what they are called now. They work for one version."""
SCRIPTS = {
    "basic-memory": "basic_memory.py",
    "claude-code": "claude_code.py",
    "mem0": "mem0.py EXPORT",
}
"""The programs of `import --from PROGRAM` in version 0.2.0, and the script for each."""

FAILED = 1
USAGE = 2
INTERRUPTED = 130


class Commands(Group):
    """All commands of `upwell`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in PLACES:
            return None
        module, _, function = PLACES[cmd_name].partition(".")
        found = getattr(import_module(f"upwell.cli.{module}"), function or cmd_name)
        if isinstance(found, click.Command):
            return found
        return click.command(cmd_name, cls=Command)(found)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and (now := OLD.get(args[0])):
            note(f"upwell: `upwell {args[0]}` is now `upwell {now}`")
            args = [*now.split(), *args[1:]]
        if args[:1] == ["import"]:
            _refuse_program(args)
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:
            raise NoSuchCommand(error.command_name, possibilities=PLACES, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, PLACES))
        for title, names in GROUPS.items():
            commands = {name: self.get_command(ctx, name) for name in names}
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name.ljust(width), command.get_short_help_str(limit=200))
                        for name, command in commands.items()
                        if command
                    ]
                )


def _refuse_program(args: list[str]) -> None:
    """Raise UsageError for `import --from PROGRAM` of version 0.2.0. For one version, the message
    says what does its work now."""
    words = " ".join(args).replace("--from=", "--from ").split()
    if "--from" not in words:
        return
    (name,) = words[words.index("--from") + 1 :][:1] or ["PROGRAM"]
    hint = SCRIPTS.get(name, "docs/moving-in.md in upwell's repository says what to do")
    if name in SCRIPTS:
        hint = f"in upwell's repository: `python examples/import/{hint} > memories.jsonl`"
        hint = f"{hint}, then `upwell import memories.jsonl`"
    raise UsageError(f"`upwell import --from {name}` is gone", hint=hint)


def version_line() -> str:
    """For example `upwell 0.3.0 (1a2b3c4d5)`, without the parentheses if no commit is known."""
    commit = _checked_out()
    if not commit:
        with suppress(OSError):  # the build writes this file into the package
            commit = (Path(__file__).parents[1] / "COMMIT").read_text(encoding="ascii").strip()
    return f"upwell {__version__}" + (f" ({commit})" if commit else "")


def _checked_out() -> str:
    """The commit of the checkout from which upwell runs; empty if it is installed."""
    checkout = Path(__file__).parents[3]
    if not (checkout / ".git").exists() or not (checkout / "src" / "upwell").is_dir():
        return ""
    try:
        result = subprocess.run(
            ["git", "-C", str(checkout), "rev-parse", "--short=9", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


def _print_version(ctx: click.Context, param: click.Parameter, is_given: bool) -> None:
    if is_given:
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
        likely = getattr(error, "possibilities", None)
        message = error.format_message().rstrip(".")
        if likely:
            message = f"{error.message} Did you mean {likely[0]!r}?"
        return _complain(message, _advice(args), USAGE)
    except UsageError as error:
        return _complain(error.message, error.hint, USAGE)
    except UpwellError as error:
        return _complain(error.message, error.hint, FAILED)
    except Exception as error:
        from upwell.ground.trace import LOG

        LOG.exception("the command failed: %s", " ".join(args[:1]))
        return _complain(f"internal error: {error!r}", "the log has the details", FAILED)
    return result if isinstance(result, int) else 0


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
