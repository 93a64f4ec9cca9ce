"""Usage errors: commands that were called wrongly, as opposed to failing tests and bugs.

Examples are a wrong option, a missing argument, a program, script or task that does not exist, the
wrong folder, a missing permission, and a service that is not running. The next session is likely to
make the same mistake. Usage errors are recognised by phrases from common command-line libraries,
shells and tools, not by program names, because every project has programs of its own.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from upwell.episodes.events import SessionEvent
from upwell.episodes.signatures import CommandStep, command_of, signature, steps_of

HEAD_CHARS, TAIL_CHARS = 2_000, 800
"""How much of the beginning and the end of a result is read. Errors are at one end or the other."""
MAX_HEAD_LINES, MAX_TAIL_LINES = 6, 4
MAX_MESSAGE_CHARS, MAX_LINE_CHARS = 240, 600
"""A message is cut at the first limit, so that one with long paths is still read. A line longer
than the second is data."""
MAX_UNFLAGGED_CHARS = 1_500
"""Hosts do not always report that a command failed. Without such a report, a result longer than
this counts as normal output.
"""


class Fault(StrEnum):
    """What was wrong with a call."""

    OPTION = "option"
    ARGUMENT = "argument"
    PROGRAM = "program"
    SCRIPT = "script"
    SERVICE = "service"
    QUOTING = "quoting"
    FOLDER = "folder"
    ACCESS = "access"
    BUSY = "busy"
    TIMEOUT = "timeout"


class Failure(Struct, frozen=True):
    """A simple command that was called wrongly. `message` is the error as it was printed;
    `signature` is the error without paths and numbers."""

    step: CommandStep
    fault: Fault
    message: str
    signature: str

    @property
    def speaker(self) -> str:
        """The program that reports the error, or `shell` if the program does not exist. If the
        error is about options or arguments, the program's sub-commands follow its name, except
        those that the error mentions."""
        if self.signature.startswith(_NOT_FOUND):
            return "shell"
        parts = [self.step.program]
        if self.fault in _CALLED:
            named_words = set(_WORDS.findall(self.message))
            parts += [verb for verb in self.step.verbs if verb not in named_words]
        return " ".join(parts)


_PHRASES: Mapping[Fault, str] = {
    Fault.OPTION: (
        "unknown option|unknown flag|unknown shorthand flag|unknown argument|unknown command|"
        "unknown subcommand|unknown json field|unrecognized option|unrecognized argument|"
        "unrecognized subcommand|unrecognized command|unrecognised|invalid option|illegal option|"
        "invalid flag|no such option|no such command|unexpected argument|unexpected option|"
        "too many arguments|invalid choice|flag provided but not defined|unsupported option|"
        "bad option|is not a git command|accepts at most"
    ),
    Fault.ARGUMENT: (
        "must be provided|must be specified|must specify|must provide|is required|are required|"
        "required option|required flag|required argument|missing argument|missing required|"
        "missing operand|requires at least|requires exactly|requires an argument|accepts between|"
        "please provide|please specify|expected one argument|needs an argument|"
        "not enough arguments"
    ),
    Fault.PROGRAM: (
        "command not found|executable file not found|could not determine executable|"
        "no module named|not recognized as an internal|is not recognized as the name of a cmdlet|"
        "could not be found in this|no virtual environment found"
    ),
    Fault.SCRIPT: (
        "missing script|script not found|unknown task|no task named|no such task|task not found|"
        "no rule to make target|don't know how to build task|module not found|cannot find module|"
        "cannot find package|no such file or directory: |can't open file|does not contain a task"
    ),
    Fault.SERVICE: (
        "connection refused|econnrefused|cannot connect to the docker daemon|"
        "is the server running|failed to connect to|could not connect to server|"
        "can't reach database server"
    ),
    Fault.FOLDER: (
        "could not read package.json|no package.json|couldn't find a package.json|"
        "not a git repository|could not find `cargo.toml`|go.mod file not found|"
        "no configuration file provided|no makefile found|no `pyproject.toml` found|"
        "could not find a pyproject.toml|no pubspec.yaml"
    ),
    Fault.ACCESS: (
        "permission denied|operation not permitted|eacces|access is denied|authentication failed|"
        "authentication required|unauthorized|not logged in|must be logged in|not authenticated|"
        "could not read username"
    ),
    Fault.BUSY: (
        "address already in use|eaddrinuse|port is already allocated|resource busy|ebusy|"
        "database is locked|is being used by another process"
    ),
    Fault.TIMEOUT: ("timed out|timeout exceeded|deadline exceeded"),
    Fault.QUOTING: (
        "no matches found:|event not found|unmatched|bad substitution|parse error near|bad pattern"
    ),
}
"""What the errors of each fault say, between bars."""
_FAULTS = {phrase: fault for fault, phrases in _PHRASES.items() for phrase in phrases.split("|")}
_MESSAGE_STARTS = tuple(
    (
        "error|err |fatal|unknown|invalid|missing|zsh:|bash:|sh:|/bin/|(eval)|npm err|accepts|"
        "required|usage error|modulenotfounderror|eperm|eacces|permission denied|"
        "command timed out|✗|❌"
    ).split("|")
)
_REFUSALS = (
    "The user doesn't want",
    "Permission to use",
    "<tool_use_error>Sibling tool call",
    "[Request interrupted",
    "This command requires approval",
)
"""How a result begins if the host or the user refused the call."""
_READERS = frozenset(
    "cat head tail less more bat nl grep rg ag sed awk find fd ls tree diff jq wc sort uniq".split()
)
"""Programs that show or search text. Their output may quote errors."""
_ASIDE = frozenset(
    "cd echo printf export set unset source . sleep true false pwd tee xargs cut tr test [".split()
)
"""Commands that only prepare or accompany the work."""
_CLIENTS = frozenset({"curl", "wget", "http", "psql", "sqlite3"})
"""Programs that query services, often only to check whether the service is running."""
_LABELS = frozenset(
    "error err fatal usage unknown invalid missing warning eperm eacces unauthorized".split()
)
"""Words that errors may begin with and that are not program names."""
_SHELLS = frozenset("bash sh zsh dash (eval)".split())
_SUBMODULE = re.compile(r"no module named '[\w-]+\.", re.IGNORECASE)
"""A package that is installed lacks a module: the code is wrong, not the call."""
_NOT_FOUND = "command not found"
_ABSENT = ": no such file or directory"
_STATES = frozenset(
    {Fault.ARGUMENT, Fault.SERVICE, Fault.FOLDER, Fault.ACCESS, Fault.BUSY, Fault.TIMEOUT}
)
"""Faults whose phrases also occur in the output of tests and checks."""
_CALLED = frozenset({Fault.OPTION, Fault.ARGUMENT})
"""Faults in the options or arguments. If the program also prints its usage, the failure is ignored,
because agents then correct the call immediately.
"""
_HELP = frozenset({"--help", "-h", "help", "-help"})
_WORDS = re.compile(r"[\w:-]+")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_EXIT = re.compile(r"(?:Error: )?Exit code \d+$")
_TESTS = frozenset(
    "test tests pytest jest vitest mocha lint eslint ruff mypy tsc check clippy golangci-lint"
    " playwright cypress".split()
)
"""Commands whose output is mostly about the code. Phrases such as "is required" or "connection
refused" in that output do not mean that the command was called wrongly."""


def is_refused(event: SessionEvent) -> bool:
    """Return whether the user or the host refused the call, so that the tool never ran."""
    return event.out.startswith(_REFUSALS)


def failure_of(event: SessionEvent) -> Failure | None:
    """Return the usage error in a shell call, if there is one."""
    command = command_of(event)
    if not command or is_refused(event):
        return None
    if not event.failed and len(event.out) > MAX_UNFLAGGED_CHARS:
        return None
    complaint = _message(event.out, command)
    if complaint is None:
        return None
    fault, message = complaint
    if _SUBMODULE.search(message):
        return None
    if fault in _CALLED and "usage:" in event.out[:HEAD_CHARS].lower():
        return None
    step = _culprit(steps_of(command), fault, message)
    if step is None or asks_help(step) or (not event.failed and step.program in _READERS):
        return None
    if fault is Fault.SERVICE and step.program in _CLIENTS:
        return None
    words = [part for word in (step.program, *step.args[:3]) for part in word.split(":")]
    if fault in _STATES and not _TESTS.isdisjoint(words):
        return None
    if _NOT_FOUND in message:
        return Failure(step, fault, message, f"{_NOT_FOUND}: {_complaint(message)}")
    return Failure(step, fault, message, signature(message))


def asks_help(step: CommandStep) -> bool:
    """Return whether the command only asks for its usage."""
    host = "-h" in step.args[:-1] and step.args[step.args.index("-h") + 1][:1] != "-"
    return bool((_HELP - {"-h"} if host else _HELP) & set(step.args))


def succeeded(event: SessionEvent) -> bool:
    """Return whether a shell call succeeded, as far as its result shows."""
    if event.failed or is_refused(event):
        return False
    return not any(
        line.lower().startswith(("error", "fatal", "usage:", "traceback", "zsh:", "bash:"))
        for line in _lines(event.out[:HEAD_CHARS])
    )


def real_steps(command: str) -> Sequence[CommandStep]:
    """Return the steps that do the work. `cd`, `echo` and the like are left out, and so are readers
    such as `tail` unless there are only readers."""
    return _working(steps_of(command))


def _working(steps: Sequence[CommandStep]) -> Sequence[CommandStep]:
    working = [step for step in steps if step.program not in _ASIDE]
    return [step for step in working if step.program not in _READERS] or working


def _message(out: str, command: str) -> tuple[Fault, str] | None:
    """Find the first line that reports a fault, at the beginning or the end of the output. Returns
    the fault and the line."""
    head = out[:HEAD_CHARS]
    tail = out[-TAIL_CHARS:] if len(out) > HEAD_CHARS else ""
    low = f"{head}\n{tail}".lower()
    if not any(phrase in low for phrase in (*_FAULTS, _ABSENT)):
        return None
    # A terminal repeats the command after the prompt.
    lines = [
        line
        for line in _lines(head)
        if command[:40] not in line or line.partition(":")[0] in _SHELLS
    ]
    later = lines[MAX_HEAD_LINES:] + list(_lines(tail))
    for place, line in enumerate([*lines[:MAX_HEAD_LINES], *later[-MAX_TAIL_LINES:]]):
        if (fault := _fault(line.lower())) is None:
            continue
        # A line may also begin with a program from the command, as in `gh: unknown flag`.
        name = line.partition(":")[0]
        names_program = bool(name) and " " not in name and name in command
        if place == 0 or names_program or line.lower().startswith(_MESSAGE_STARTS):
            return fault, line
    return None


def _lines(text: str) -> Iterator[str]:
    for raw in text.split("\n"):
        line = _ANSI.sub("", raw).strip() if "\x1b" in raw else raw.strip()
        if line and len(line) <= MAX_LINE_CHARS and not _EXIT.match(line):
            yield line[:MAX_MESSAGE_CHARS]


def _fault(low: str) -> Fault | None:
    for phrase, fault in _FAULTS.items():
        if phrase in low:
            return fault
    is_script = low.partition(":")[0] in _SHELLS and ": cd:" not in low
    return Fault.SCRIPT if is_script and low.endswith(_ABSENT) else None


def _culprit(steps: Sequence[CommandStep], fault: Fault, message: str) -> CommandStep | None:
    """Return the step that the message is about: the step whose program the message names, or the
    only step that does the work."""
    if fault is Fault.QUOTING or _NOT_FOUND in message:
        step = _with_word(steps, _complaint(message))
        scripts = [] if step or message[0] != "/" else _working(steps)
        return scripts[0] if len(scripts) == 1 else step
    speaker = message.partition(":")[0].rpartition("/")[2]
    if speaker in _SHELLS:
        return next((step for step in steps if step.words[0] in message), None)
    candidates = [step for step in steps if step.program == speaker]
    is_label = speaker.lower() in _LABELS or speaker.endswith(("Error", "Exception"))
    if candidates or (speaker.isalnum() and not is_label):
        return candidates[0] if candidates else None
    working = _working(steps)
    if len(working) == 1:
        return working[0]
    candidates = [step for step in working if len(step.program) > 1 and step.program in message]
    return candidates[0] if candidates else None


def _with_word(steps: Sequence[CommandStep], word: str) -> CommandStep | None:
    candidates = [step for step in steps if step.program == word]
    candidates += [step for step in steps if word in step.text.split()[:3]]
    candidates += [step for step in steps if word in step.text]
    return candidates[0] if word and candidates else None


def _complaint(message: str) -> str:
    """Return the word that a shell could not run or expand, as in `zsh: command not found: WORD`,
    `bash: WORD: command not found`, or "parse error near `WORD'"."""
    before, _, after = message.partition(_NOT_FOUND)
    if _NOT_FOUND in message and not after.strip(" :"):
        after = before.rstrip(": ").rpartition(" ")[2]
    return after.rpartition(" ")[2].strip(" :'`\"") or message.rpartition(" ")[2].strip("'`\"")
