"""Episodes, and their triggers: the keys of the situations in which an episode surfaces.

A trigger is a short string `kind:value`. The same situation gives the same triggers in every
session, so its episodes can be found by exact comparison:

    way:PROGRAM:DIGEST      this program cannot be run in this way, for this job
    fails:PROGRAM:DIGEST    this program fails with this error
    file:NAME               a file with this name is missing (only for distinctive names)
    file:FOLDER/NAME        a file is missing in this folder, or in one of its subfolders
    below:FOLDER/NAME       a file is missing in this folder; it may be in a subfolder
    symbol:NAME             a search for this identifier found nothing
    ticket:NAME             a prompt names this ticket

Tickets are named in prompts and paths (`ABC-123`, `#045`, `task 45`). Of the files that are opened
after the prompt, a ticket's file is the first one whose path names the ticket. The number in the
name of a source file (`0045_users.sql`) says nothing about ticket 45, so a number counts only in a
document's path, or after a word for tickets (`test_issue_45.py`).

First come the readings of single events (which file or name was missing, which tickets are named),
then the triggers that follow from them, with `triggers_of()` for any event.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from upwell.episodes.events import DOCUMENTS, Kind, SessionEvent, inside
from upwell.episodes.failures import Failure, failure_of, is_refused
from upwell.episodes.signatures import CommandStep, command_of, digest, steps_of
from upwell.episodes.trials import LAUNCHED, Trial, trial_of


class EpisodeKind(StrEnum):
    """The form of what was learned."""

    COMMAND = "command"
    """A command failed, and another command for the same purpose succeeded."""
    PLACE = "place"
    """A session worked with a file, or a search showed where a name is defined."""
    TICKET = "ticket"
    """A prompt named a ticket, and the agent opened a file with the ticket in its path."""
    RULE = "rule"
    """The user stated a rule for the work. If the rule is restricted to some files, `Episode.paths`
    contains their globs.
    """


class Episode(Struct, frozen=True, kw_only=True):
    """A conclusion from a session.

    `text` is the conclusion, in one or two complete sentences. Unless it is a rule, which has no
    triggers, it surfaces on events that have one of the `triggers` (see `triggers_of()`), provided
    that `paths` and `identifiers` still exist. The paths are relative to `cwd`, the folder of the
    session. `evidence` lists the indexes (`SessionEvent.i`) of the events in `session` that led to
    the episode. `at` is the time of the last of these events, in seconds since the epoch. `tool` is
    the tool of that event, or "" for tickets and rules.
    """

    kind: EpisodeKind
    text: str
    triggers: tuple[str, ...]
    paths: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    cwd: str | None = None
    tool: str = ""
    session: str = ""
    at: float = 0.0
    evidence: tuple[int, ...] = ()


HEAD_CHARS = 400
MAX_LINES, MAX_LINE_CHARS = 300, 400
MAX_NAMES = 4
"""A pattern with more names than this searches for a topic, not for the names themselves."""
MIN_NAME_CHARS = 8
_ABSENT = ("no such file or directory", "file does not exist", "enoent", "path does not exist")
_NOTHING = ("no matches found", "no files found", "no results found", "found 0 ")
_SEARCHERS = frozenset({"grep", "rg", "ag", "ack"})
_READERS = frozenset("cat head tail less more bat nl sed wc ls stat".split())
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_]*")
_COMPOUND = re.compile(r"[a-z][A-Z]|[A-Za-z]_[A-Za-z]|[A-Z][a-z]+[A-Z]")
_ESCAPES = re.compile(r"\\[bBwWsSdD]")
_RECEIVER = re.compile(r"func[ +*]*\\?\((?:\w{1,20} [+*]?)?\\?\*?\w+\\?\)")
_DEFINING = frozenset(
    "func def class interface struct type enum trait fn const function module record object".split()
)
"""Keywords that begin a definition in common languages."""
_VALUES = frozenset({"const", "type", "object", "module"})
"""Keywords that count only if the line is not indented, because otherwise the definition is local.
"""
_FILES = re.compile(r"Found \d+ files?$")


def missing_path(event: SessionEvent) -> str:
    """Return the missing file that a call tried to open, or ""."""
    if event.kind is not Kind.TOOL or is_refused(event):
        return ""
    head = event.out[:HEAD_CHARS]
    low = head.lower()
    if event.tool == "Glob":
        path = _text(event.args, "pattern").rpartition("**/")[2]
        is_literal = _is_file(path) and not any(char in path for char in "*?[{")
        return path if is_literal and _is_nothing(low) else ""
    if not any(words in low for words in _ABSENT):
        return ""
    if event.tool == "Read":
        return _text(event.args, "file_path") if event.failed or len(event.out) < HEAD_CHARS else ""
    if event.tool == "Grep":
        return _text(event.args, "path")
    return _named_missing(command_of(event), head)


def names_not_found(event: SessionEvent) -> Sequence[str]:
    """Return the identifiers that a search in a folder did not find."""
    pattern, place = _search(event)
    if not pattern or _is_file(place) or is_refused(event):
        return ()
    if not _is_nothing(event.out[:HEAD_CHARS].lower()):
        return ()
    # A pattern with other words than names and definition keywords searches for uses of the names.
    names, plain = names_in(pattern), _plain(pattern)
    words = {word for word in _NAME.findall(plain) if len(word) > 1}
    return names if "=" not in plain and words <= _DEFINING | set(names) else ()


def definitions(event: SessionEvent) -> Iterator[tuple[str, str]]:
    """Yield each name in the search pattern whose definition was found, with the file that defines
    it."""
    pattern, place = _search(event)
    names = names_in(pattern) if pattern and not event.failed else ()
    if not names:
        return
    lines = event.out[: MAX_LINES * MAX_LINE_CHARS].split("\n", MAX_LINES)
    asks_definition = not _DEFINING.isdisjoint(_NAME.findall(pattern[:MAX_LINE_CHARS]))
    if len(lines) == 2 and len(names) == 1 and _FILES.match(lines[0]) and asks_definition:
        yield names[0], lines[1].strip()
        return
    for line in lines[:MAX_LINES]:
        for name in names:
            if name in line and (file := _defined_in(line[:MAX_LINE_CHARS], name, place)):
                yield name, file


def names_in(pattern: str) -> Sequence[str]:
    """Return the compound names in a search pattern, such as `SaveChanges` or `save_changes`. The
    receiver type of a Go method is left out, because the search is for the method."""
    names = dict.fromkeys(
        name
        for name in _NAME.findall(_plain(pattern))
        if len(name) >= MIN_NAME_CHARS and _COMPOUND.search(name)
    )
    return tuple(names) if len(names) <= MAX_NAMES else ()


def _search(event: SessionEvent) -> tuple[str, str]:
    """Return the pattern and the path of a text search. Both are "" for other calls."""
    if event.tool == "Grep":
        return _text(event.args, "pattern"), _text(event.args, "path")
    steps = steps_of(command_of(event))
    if not steps or steps[0].program not in _SEARCHERS or len(steps) > 2:
        return "", ""
    arguments = [word for word in steps[0].args if not word.startswith("-")]
    return (arguments[0], arguments[1] if len(arguments) > 1 else "") if arguments else ("", "")


def _is_nothing(low: str) -> bool:
    return not low.strip() or low.startswith(_NOTHING) or low.strip() == "exit code 1"


def _is_file(place: str) -> bool:
    name = place.rpartition("/")[2]
    return "." in name.lstrip(".") and not name.endswith((".", "*"))


def _plain(pattern: str) -> str:
    """Remove escapes such as `\\b` and `\\w`, and the receivers of Go methods."""
    return _RECEIVER.sub("func ", _ESCAPES.sub(" ", pattern[:MAX_LINE_CHARS]))


def _defined_in(line: str, name: str, place: str) -> str:
    """Return the file in which a line (`FILE:LINE:CODE`, `FILE:CODE` or `LINE:CODE`) defines the
    name, or "" for other lines."""
    file, _, code = line.partition(":")
    number, _, rest = code.partition(":")
    if file.isdigit():
        file = place
    elif number.isdigit():
        code = rest
    before, _, after = code.partition(name)
    if " " in file or not _is_file(file) or after[:1].isalnum() or after[:1] == "_":
        return ""
    return file if _introduces(before) else ""


def _introduces(before: str) -> bool:
    """Return whether a keyword that defines something precedes the name. The receiver of a Go
    method may be between them. A keyword in `_VALUES` must not be indented.
    """
    code = before.rstrip()
    if code == before:
        return False
    word = code.rpartition(" ")[2].strip("\t(")
    receiver = code.rpartition("func (")[2] if code.endswith(")") else ""
    if word in _VALUES:
        return not before[:1].isspace()
    return word in _DEFINING or (0 < len(receiver) < len(code) and ")" not in receiver[:-1])


def _named_missing(command: str, head: str) -> str:
    """Return the file that a program could not open (`cat: PATH: No such file or directory`)."""
    step: CommandStep | None = next((s for s in steps_of(command) if s.program in _READERS), None)
    if step is None:
        return ""
    for line in head.split("\n"):
        program, _, rest = line.partition(": ")
        path, absent, _ = rest.partition(": No such file or directory")
        if absent and program.strip() == step.program and path in step.args and _is_file(path):
            return path
    return ""


def _text(args: Mapping[str, object], name: str) -> str:
    value = args.get(name)
    return value if isinstance(value, str) else ""


MAX_PROMPT_CHARS = 600
"""A longer prompt contains its own context, so the tickets in it are ignored."""
MAX_TICKETS = 2
"""A text that names more tickets than this is not about any particular ticket."""
MAX_DISTANCE = 40
"""A file belongs to a ticket only if it is opened within this many calls after the prompt."""
_KEY = re.compile(r"\b[A-Z][A-Z0-9]+-[0-9]+\b")
_NUMBERED = re.compile(
    r"\b(?:task|issue|ticket|story|bug|spec|adr|rfc|epic)s?[ _-]?#?([0-9]+)\b"
    r"|(?:^|[\s(\"'`])#([0-9]+)\b",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"[0-9]+")
_AFTER_WORD = re.compile(
    r"(?:task|issue|ticket|story|bug|spec|adr|rfc|epic)s?[ _/-]?#?([0-9]+)", re.IGNORECASE
)
_TECHNICAL = frozenset("UTF ISO SHA RFC GPT ES MD TLS AES RSA HTTP CVE PR STEP BASE EC IPV".split())
"""The prefixes of technical names that look like tickets, such as `UTF-8`."""
MIN_BARE = 10
"""A smaller number after a bare `#` is assumed to number a list item."""


def tickets_in(text: str) -> Sequence[str]:
    """Return the tickets that a text is about: `ABC-123`, or a number without leading zeros."""
    tickets = [
        match[0]
        for match in _KEY.finditer(text)
        if match[0].partition("-")[0] not in _TECHNICAL and len(match[0]) <= 16
    ]
    for match in _NUMBERED.finditer(text):
        digits = match[1] or match[2]
        bare = match[1] is None and not digits.startswith("0") and int(digits[:6]) < MIN_BARE
        if len(digits) <= 6 and not bare:
            tickets.append(str(int(digits)))
    unique = tuple(dict.fromkeys(tickets))
    return unique if len(unique) <= MAX_TICKETS else ()


def tickets_of(prompt: SessionEvent) -> Sequence[str]:
    """Return the tickets that a prompt is about."""
    return tickets_in(prompt.text) if len(prompt.text) <= MAX_PROMPT_CHARS else ()


def path_names(path: str, ticket: str) -> bool:
    """Return whether one of the last two parts of `path` names the ticket."""
    parts = "/".join(path.split("/")[-2:])
    if "-" in ticket:
        return ticket.lower() in parts.lower()
    numbers = _DIGITS if path.lower().endswith(DOCUMENTS) else _AFTER_WORD
    return any(digits.lstrip("0") == ticket for digits in numbers.findall(parts))


class TicketMiner:
    """Finds the file of each ticket in a session."""

    def __init__(self) -> None:
        self._waiting: dict[str, SessionEvent] = {}
        self._calls = 0

    def prompt(self, event: SessionEvent) -> None:
        """Process a prompt, which may name tickets."""
        tickets = tickets_of(event)
        if tickets:
            self._waiting = dict.fromkeys(tickets, event)
            self._calls = 0

    def feed(self, event: SessionEvent) -> Iterator[Episode]:
        """Process a call. Yields an episode for each ticket whose file the call opens."""
        if not self._waiting:
            return
        self._calls += 1
        if self._calls > MAX_DISTANCE:
            self._waiting = {}
        path = event.args.get("file_path")
        if event.tool not in ("Read", "Edit", "Write") or event.failed or not isinstance(path, str):
            return
        own = inside(path, event.cwd)
        if own.startswith(("/", "~", "..")):
            return
        for ticket, prompt in list(self._waiting.items()):
            if path_names(own, ticket):
                del self._waiting[ticket]
                yield Episode(
                    kind=EpisodeKind.TICKET,
                    text=f"Earlier work on ticket {ticket} began with `{own}`.",
                    triggers=(f"ticket:{ticket}",),
                    paths=(own,),
                    cwd=event.cwd,
                    session=event.session,
                    at=event.t,
                    evidence=(prompt.i, event.i),
                )


type Trigger = str
MAX_TRIGGER_CHARS = 120
_FAMILIES = {
    ".yml": ".yaml",
    **dict.fromkeys((".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx"), ".js"),
    **dict.fromkeys((".jsonc", ".json5"), ".json"),
}
"""Extensions that are easily confused when an agent guesses a file name. They count as equal."""
_SITUATIONS = {
    **dict.fromkeys(("file", "below"), "the file {} is missing"),
    "symbol": "a search for {} finds nothing",
    "ticket": "a prompt names the ticket {}",
    "tool": "{} is called",
}
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
_FRAMEWORK = frozenset(
    "index main mod lib __init__ __main__ page layout route package tsconfig conftest error"
    " loading readme.md skill.md claude.md agents.md gemini.md changelog.md license.md".split()
)
"""File names that occur in many folders and therefore identify nothing."""
_ROLES = frozenset({"test", "tests", "spec"})


def triggers_of(event: SessionEvent) -> tuple[Trigger, ...]:
    """Return the triggers of an event, most exact first. Most events have none."""
    if event.kind is Kind.PROMPT:
        return _bounded(f"ticket:{name}" for name in tickets_of(event))
    if event.kind is not Kind.TOOL:
        return ()
    if path := missing_path(event):
        return at_missing(inside(path, event.cwd))
    if failure := failure_of(event):
        trial = trial_of(event, failure) if failure.fault in LAUNCHED else None
        return (*(of_launch(trial) if trial else ()), *of_failure(failure))
    return of_symbols(names_not_found(event))


def in_words(trigger: Trigger) -> str:
    """Describe the situation in which an episode with this trigger surfaces."""
    kind, _, value = trigger.partition(":")
    if kind == "way":
        return f"`{value.partition(':')[0]}` cannot be run in this way again"
    if kind == "fails":
        program = value.partition(":")[0].partition(" ")[0]
        return f"{'the shell' if program == 'shell' else f'`{program}`'} reports this error again"
    return _SITUATIONS.get(kind, "{} is met").format(value)


def of_failure(failure: Failure) -> tuple[Trigger, ...]:
    """Return the trigger for a program's error."""
    return of_error(failure.speaker, failure.signature)


def of_error(speaker: str, signature: str) -> tuple[Trigger, ...]:
    """Return the trigger for an error with this signature, reported by `speaker`."""
    return (f"fails:{speaker[:60]}:{digest(signature)}",)


def of_launch(trial: Trial) -> tuple[Trigger, Trigger]:
    """Return the triggers for a launcher that cannot do a job: in a folder of this name, and in any
    folder."""
    key = f"{trial.launcher}\0{trial.job}"
    program = trial.launcher.rpartition(" ")[2].rpartition("/")[2][:60]
    return f"way:{program}:{digest(f'{key}\0{trial.name}')}", f"way:{program}:{digest(key)}"


def of_symbols(names: Iterable[str]) -> tuple[Trigger, ...]:
    """Return the triggers for searches that do not find these names."""
    return _bounded(f"symbol:{name}" for name in names)


def at_missing(path: str) -> tuple[Trigger, ...]:
    """Return the triggers for a file that is missing at `path`."""
    folder, name = _split(path)
    if not name:
        return ()
    above, _, parent = folder.rpartition("/")
    keys = [f"file:{parent}/{name}", f"below:{parent}/{name}", *_alone(name)]
    if name.partition(".")[0] not in (parent, _last(above)):
        keys.append(f"file:{_last(above)}/{name}")
    return _bounded(keys)


def of_place(path: str) -> tuple[Trigger, ...]:
    """Return the triggers that make the location of the file at `path` surface."""
    folder, name = _split(path)
    if not name:
        return ()
    above, _, parent = folder.rpartition("/")
    return _bounded([f"file:{parent}/{name}", f"below:{_last(above)}/{name}", *_alone(name)])


def _bounded(keys: Iterable[str]) -> tuple[Trigger, ...]:
    return tuple(dict.fromkeys(key for key in keys if len(key) <= MAX_TRIGGER_CHARS))


def _split(path: str) -> tuple[str, str]:
    """Return the folder and the name of a file. The name is "" if it identifies nothing."""
    folder, _, name = path.rpartition("/")
    stem, dot, suffix = name.rpartition(".")
    if not stem or {stem.partition(".")[0].lower(), name.lower()} & _FRAMEWORK:
        return folder, ""
    return folder, f"{stem}{_FAMILIES.get(dot + suffix, dot + suffix)}"


def _alone(name: str) -> tuple[str, ...]:
    """Return the trigger for a name without a folder, if the name is long or has several words."""
    words = [word for word in _WORDS.findall(name.rpartition(".")[0]) if word not in _ROLES]
    letters = sum(map(len, words))
    return (f"file:{name}",) if letters >= 12 or (len(words) > 1 and letters >= 8) else ()


def _last(folder: str) -> str:
    return folder.rpartition("/")[2]
