"""`upwell --help`: the commands in groups, in the order in which a newcomer needs them."""

from typing import Any

from typer.core import TyperGroup

GROUPS = {
    "Start": ("setup", "demo", "doctor", "on", "off"),
    "Memory": (
        *("remember", "recall", "context", "forget", "restore", "topics"),
        *("rules", "lessons", "inbox", "review", "learn", "import", "export", "stm", "backup"),
        "migrate",
    ),
    "See what it does": (
        *("dashboard", "top", "explain", "stats", "gain", "replay", "feedback", "tune"),
    ),
    "Tool results": ("compress", "read", "cache"),
    "Servers and hooks": (
        *("init", "eject", "serve", "wrap", "add", "list", "remove", "login", "logout"),
        *("token", "tenant", "team", "hook", "daemon", "config"),
    ),
}
REST = "Other commands"


def grouped(names: list[str]) -> dict[str, list[str]]:
    """The commands in `names`, listed by group. Those without a group come last."""
    groups = {title: [name for name in group if name in names] for title, group in GROUPS.items()}
    known = {name for group in GROUPS.values() for name in group}
    groups[REST] = [name for name in names if name not in known]
    return {title: group for title, group in groups.items() if group}


class GroupedCommands(TyperGroup):
    """A group whose help lists the commands in sections."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        shown = [name for name, command in commands.items() if command and not command.hidden]
        width = max(map(len, shown))
        for title, names in grouped(shown).items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), _line(commands[name])) for name in names])


def _line(command: Any) -> str:
    short: str = command.get_short_help_str(limit=200)
    return short
