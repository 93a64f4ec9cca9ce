"""Commands worth remembering, from a session's calls: a command that succeeded after another one
for the same purpose had failed, and commands that check a project again and again.

The words are the agent's own; a command's output counts only by its exit status.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from upwell.capture.entries import Call, CallResult, Entry
from upwell.capture.rules import Finding
from upwell.ground.types.cue import Cue, Door
from upwell.surface.filters import writes

WHY_INSTEAD = "command that worked"
WHY_CHECKS = "command run again and again"
MAX_CHARS = 160
MAX_DISTANCE = 4
"""A command replaces a failed one only within this many commands after it."""
MIN_RUNS = 3
MIN_SHARED_WORDS = 0.5
"""The least share of words that two commands for the same purpose have in common."""
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
"""Programs that build and check a project. Commands that only look around (`ls`, `git log`)
are not worth a memory."""
_TEMPORARY = re.compile(r"/tmp/|/var/folders/|\$\(|<<|`|\b(?:sleep|kill|sudo|rm)\b")


@dataclass(frozen=True, slots=True)
class _Run:
    """A finished command, the number of edits before it, and whether it failed."""

    command: str
    edits: int
    failed: bool


def command_findings(entries: Sequence[Entry], project: str | None) -> Iterator[Finding]:
    """The commands of a session that are worth proposing."""
    runs = list(_runs(entries, project))
    yield from _replacements(runs)
    yield from _checks(runs)


def _replacements(runs: Sequence[_Run]) -> Iterator[Finding]:
    """Commands that succeeded after another one for the same purpose had failed, with no edit
    between them."""
    for index, failed in enumerate(runs):
        if not failed.failed:
            continue
        for later in runs[index + 1 : index + 1 + MAX_DISTANCE]:
            if later.edits != failed.edits:
                break
            if not later.failed and _have_same_purpose(failed.command, later.command):
                text = f"`{later.command}` works here; `{failed.command}` fails."
                yield Finding(text, WHY_INSTEAD, "patterns")
                break


def _checks(runs: Sequence[_Run]) -> Iterator[Finding]:
    """Commands that build or check something and succeeded several times."""
    successes = Counter(
        run.command for run in runs if not run.failed and _CHECKS.search(run.command)
    )
    for command, runs_of_it in successes.items():
        if runs_of_it >= MIN_RUNS:
            yield Finding(f"This project is checked with `{command}`.", WHY_CHECKS, "patterns")


def _runs(entries: Sequence[Entry], project: str | None) -> Iterator[_Run]:
    """The commands that would work for somebody else too, in the order in which they ended."""
    calls = {entry.id: entry for entry in entries if isinstance(entry, Call)}
    edits = 0
    for entry in entries:
        if isinstance(entry, Call) and _is_edit(entry.tool):
            edits += 1
        if not isinstance(entry, CallResult) or entry.failed is None or entry.id not in calls:
            continue
        command = _command(calls[entry.id], project)
        if command:
            yield _Run(command, edits, entry.failed)


def _is_edit(tool: str) -> bool:
    return tool in _EDITS or ("__" in tool and bool(writes(Cue(door=Door.TOOL, tool=tool))))


def _command(call: Call, project: str | None) -> str:
    """The command as typed in the project's folder; "" for another tool, or for a one-off
    command."""
    if call.tool not in _SHELLS:
        return ""
    value = call.args.get("command", call.args.get("cmd"))
    if isinstance(value, list):
        value = value[-1] if len(value) == 3 else shlex.join(map(str, value))
    if not isinstance(value, str):
        return ""
    command = value.strip()
    if project:
        command = re.sub(rf"^cd {re.escape(project)}/?\s*(?:&&|;)\s*", "", command)
    command = re.sub(r"\s*(?:2>&1)?\s*(?:\|\s*(?:tail|head)\b[^|&;]*)?$", "", command)
    is_reusable = (
        len(command) <= MAX_CHARS and "\n" not in command and not _TEMPORARY.search(command)
    )
    return command if is_reusable and _words(command) and _runs_known_program(command) else ""


def _runs_known_program(command: str) -> bool:
    return any(word.rpartition("/")[2] in _PROGRAMS for word in _words(command)[:3])


def _words(command: str) -> list[str]:
    """The words of a command without the variables set before it; [] where a shell would reject
    it."""
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    while words and re.fullmatch(r"[A-Za-z_]\w*=.*", words[0]):
        words = words[1:]
    return words


def _have_same_purpose(failed: str, later: str) -> bool:
    """Do two different commands share enough words?"""
    first, second = set(_words(failed)), set(_words(later))
    if first == second:
        return False
    return len(first & second) >= MIN_SHARED_WORDS * min(len(first), len(second))
