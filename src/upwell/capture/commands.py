"""Commands that worked, from a session's calls: one that succeeded where another for the same end
had failed, and those by which a project is checked again and again.

The words are the agent's own; of what a command gave back only its exit status counts.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from upwell.capture.entries import Called, Entry, Returned
from upwell.capture.rules import Found
from upwell.ground.types import Cue, Door
from upwell.surface.gate import writes

WHY_INSTEAD = "command that worked"
WHY_CHECKS = "command run again and again"
MAX_CHARS = 160
NEAR = 4
"""A command that works stands for the same end only when it comes within so many commands."""
LEAST_RUNS = 3
SAME_END = 0.5
"""The share of words that two commands for the same end have in common, at least."""
_SHELLS = frozenset({"Bash", "bash", "shell", "exec_command", "local_shell", "run_shell_command"})
_EDITS = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit", "apply_patch", "write_file"})
_CHECKS = re.compile(
    r"\b(?:py)?tests?\b|\blint\b|\bbuild\b|\bcheck\b|\bverify\b|\btypecheck\b|\bmypy\b|\bruff\b"
    r"|\btsc\b|\bclippy\b|\bvet\b|\btox\b|\bnox\b|\bctest\b|\bvitest\b|\bjest\b|\beslint\b",
    re.IGNORECASE,
)
_PROGRAMS = frozenset(
    """
    make just task npm pnpm yarn bun npx uv uvx poetry hatch pdm pip python python3 pytest tox nox
    ruff mypy cargo go gradle gradlew mvn bazel cmake ninja ctest dotnet swift rake bundle mix tsc
    eslint vitest jest deno docker terraform
    """.split()
)
"""What a project is built and checked with; looking around (`ls`, `git log`) is no memory."""
_PASSING = re.compile(r"/tmp/|/var/folders/|\$\(|<<|`|\b(?:sleep|kill|sudo|rm)\b")


@dataclass(frozen=True, slots=True)
class _Run:
    """A command that came back, how many edits there were before it, and whether it failed."""

    command: str
    edits: int
    failed: bool


def that_worked(entries: Sequence[Entry], project: str | None) -> Iterator[Found]:
    """The commands of a session that are worth proposing."""
    runs = list(_runs(entries, project))
    yield from _instead(runs)
    yield from _checks(runs)


def _instead(runs: Sequence[_Run]) -> Iterator[Found]:
    """A command failed, nothing was edited, and another for the same end succeeded."""
    for place, failed in enumerate(runs):
        if not failed.failed:
            continue
        for later in runs[place + 1 : place + 1 + NEAR]:
            if later.edits != failed.edits:
                break
            if not later.failed and _same_end(failed.command, later.command):
                text = f"`{later.command}` works here; `{failed.command}` fails."
                yield Found(text, WHY_INSTEAD, "patterns")
                break


def _checks(runs: Sequence[_Run]) -> Iterator[Found]:
    """Whole commands that build or check something and went well several times."""
    well = Counter(run.command for run in runs if not run.failed and _CHECKS.search(run.command))
    for command, times in well.items():
        if times >= LEAST_RUNS:
            yield Found(f"This project is checked with `{command}`.", WHY_CHECKS, "patterns")


def _runs(entries: Sequence[Entry], project: str | None) -> Iterator[_Run]:
    """The commands that could be told to somebody else, in the order in which they came back."""
    called = {entry.call: entry for entry in entries if isinstance(entry, Called)}
    edits = 0
    for entry in entries:
        if isinstance(entry, Called) and _edits(entry.tool):
            edits += 1
        if not isinstance(entry, Returned) or entry.failed is None or entry.call not in called:
            continue
        command = _command(called[entry.call], project)
        if command:
            yield _Run(command, edits, entry.failed)


def _edits(tool: str) -> bool:
    return tool in _EDITS or ("__" in tool and bool(writes(Cue(door=Door.TOOL, tool=tool))))


def _command(call: Called, project: str | None) -> str:
    """The command as one would type it in the project's folder; "" for what is none, or is made
    for the moment."""
    if call.tool not in _SHELLS:
        return ""
    given = call.args.get("command", call.args.get("cmd"))
    if isinstance(given, list):
        given = given[-1] if given and len(given) == 3 else shlex.join(map(str, given))
    if not isinstance(given, str):
        return ""
    command = given.strip()
    if project:
        command = re.sub(rf"^cd {re.escape(project)}/?\s*(?:&&|;)\s*", "", command)
    command = re.sub(r"\s*(?:2>&1)?\s*(?:\|\s*(?:tail|head)\b[^|&;]*)?$", "", command)
    plain = len(command) <= MAX_CHARS and "\n" not in command and not _PASSING.search(command)
    return command if plain and _words(command) and _programs(command) else ""


def _programs(command: str) -> bool:
    return any(word.rpartition("/")[2] in _PROGRAMS for word in _words(command)[:3])


def _words(command: str) -> list[str]:
    """The words of a command without variables that are set before it; none where it is not one
    that a shell would take."""
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    while words and re.fullmatch(r"[A-Za-z_]\w*=.*", words[0]):
        words = words[1:]
    return words


def _same_end(one: str, other: str) -> bool:
    """Do they differ, and yet mean the same? By the words that they share."""
    first, second = set(_words(one)), set(_words(other))
    if first == second:
        return False
    return len(first & second) >= SAME_END * min(len(first), len(second))
