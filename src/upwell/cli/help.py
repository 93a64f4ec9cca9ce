"""The commands, in the sections of `upwell --help` and in the order in which a newcomer needs them.
The module of a command is imported when the command is used."""

from importlib import import_module

import click
from click.exceptions import NoSuchCommand

from upwell.cli.command import Command, Group
from upwell.cli.output import note
from upwell.ground.errors import UsageError

GROUPS = {
    "Start": {
        "setup": "setup",
        "demo": "demo",
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
        "learn": "capturing",
        "import": "transfer.import_memories",
        "export": "transfer",
        "stm": "notes",
        "backup": "upkeep",
        "migrate": "migrate",
    },
    "See what it does": {
        "dashboard": "dashboard",
        "explain": "learning",
        "stats": "stats",
        "replay": "replay",
        "feedback": "learning",
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
        "login": "logins",
        "logout": "logins",
        "token": "tokens",
        "team": "team",
        "hook": "hooks",
        "daemon": "daemon",
        "config": "upkeep",
    },
}
"""The module in which each command is, and the function if it has another name."""
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
