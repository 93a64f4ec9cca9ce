"""The turns of a session. A turn is a question, the answer that closed it, and the work in
between."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct, field

from upwell.episodes.events import WRITERS, Kind, SessionEvent
from upwell.episodes.failures import is_refused, succeeded
from upwell.episodes.signatures import command_of
from upwell.sessions.landmarks import branch_in, commits_in, issues_in, numbers_in, pulls_in

MAX_QUESTION_CHARS, MAX_ANSWER_CHARS = 4_000, 6_000
MAX_REMARKS_CHARS, MAX_REMARK_CHARS = 6_000, 1_200
MAX_COMMAND_CHARS = 400
MAX_RUNS, MAX_FILES, MAX_CHANGES = 200, 200, 100
"""Once a turn has this many commands, files read or changes, no further ones are kept."""
MAX_NAMED_CHARS = 1_500
"""The tickets in a longer question are those of a paste."""
SHORT_ANSWER_CHARS = 200
"""A shorter closing answer (`Done.`) is read together with the remark before it."""
MAX_ERRORS, MAX_ERROR_CHARS, ERROR_EDGE_CHARS = 6, 240, 3_000
_ERROR = re.compile(
    r"error|fatal|exception|failed|failure|panic|cannot|can't|could not|not found|no such"
    r"|denied|refused|unknown|unexpected|undefined|invalid|missing|unable|must be|is required",
    re.IGNORECASE,
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_EXIT = re.compile(r"(?:Error: )?Exit code \d+$")
_READERS = frozenset({"Read", "NotebookRead"})


class Run(Struct, frozen=True):
    """A command that the agent ran."""

    command: str
    worked: bool


class FileChange(Struct, frozen=True):
    """A change to a file: the text that was removed, and the text in its place. Both are empty if
    the host does not record them."""

    path: str
    removed: str = ""
    added: str = ""


class Landmarks(Struct):
    """The commits that a turn made (hash and subject), and the branches, tickets and pull requests
    that it worked on. Each is a dict without values, in order of appearance."""

    commits: dict[str, None] = field(default_factory=dict[str, None])
    branches: dict[str, None] = field(default_factory=dict[str, None])
    tickets: dict[str, None] = field(default_factory=dict[str, None])
    pulls: dict[str, None] = field(default_factory=dict[str, None])

    def add_text(self, text: str) -> None:
        """Add what the user's words name."""
        self.tickets.update(dict.fromkeys(issues_in(text)))
        self.pulls.update(dict.fromkeys(pulls_in(text)))

    def add_call(self, command: str, out: str) -> None:
        """Add what a command that worked has made or named."""
        if branch := branch_in(command):
            self.branches[branch] = None
        for kind, number in numbers_in(command):
            (self.pulls if kind == "pull" else self.tickets)[number] = None
        if "commit" in command or "merge" in command:
            for branch, sha, subject in commits_in(out):
                self.branches[branch] = None
                self.commits[f"{sha} {subject}"] = None
        if "create" in command:
            self.pulls.update(dict.fromkeys(pulls_in(out[-MAX_COMMAND_CHARS:])))


class Turn(Struct, kw_only=True):
    """`number` is the position of the turn in the session, counted from 0. `offset` is the byte in
    the transcript at which the question begins. `remarks` are what the agent wrote; the last one
    closes the turn."""

    session: str
    host: str
    number: int
    question: str
    offset: int = 0
    cwd: str | None = None
    began: float = 0.0
    ended: float = 0.0
    remarks: list[str] = field(default_factory=list[str])
    runs: list[Run] = field(default_factory=list[Run])
    changes: list[FileChange] = field(default_factory=list[FileChange])
    read: dict[str, None] = field(default_factory=dict[str, None])
    errors: dict[str, None] = field(default_factory=dict[str, None])
    landmarks: Landmarks = field(default_factory=Landmarks)

    @property
    def conclusion(self) -> str:
        """The closing answer, and the remark before it if the answer is short."""
        if not self.remarks:
            return ""
        last = self.remarks[-1]
        if len(last) < SHORT_ANSWER_CHARS and len(self.remarks) > 1:
            return f"{self.remarks[-2]}\n{last}"[-MAX_ANSWER_CHARS:]
        return last[:MAX_ANSWER_CHARS]

    @property
    def changed(self) -> list[str]:
        """The files that the turn changed, in the order of their first changes."""
        return list(dict.fromkeys(change.path for change in self.changes))

    def add(self, event: SessionEvent) -> None:
        """Add the next event of the turn."""
        self.ended = max(self.ended, event.t)
        self.cwd = self.cwd or event.cwd
        if event.kind is Kind.SAY:
            self.remarks.append(event.text[:MAX_ANSWER_CHARS])
        elif event.kind is Kind.TOOL and not is_refused(event):
            self._add_call(event)

    def _add_call(self, event: SessionEvent) -> None:
        if command := command_of(event).strip():
            worked = succeeded(event)
            if len(self.runs) < MAX_RUNS:
                self.runs.append(Run(command[:MAX_COMMAND_CHARS], worked))
            if worked:
                self.landmarks.add_call(command, event.out)
            else:
                self._add_errors(event.out)
        elif (path := _path(event.args)) and event.tool in WRITERS and not event.failed:
            if len(self.changes) < MAX_CHANGES:
                self.changes += changes_of(path, event.args)
        elif path and event.tool in _READERS and len(self.read) < MAX_FILES:
            self.read[path] = None

    def _add_errors(self, text: str) -> None:
        for line in error_lines(text):
            if len(self.errors) < MAX_ERRORS * 4:
                self.errors[line] = None


def turns_of(events: Iterable[SessionEvent], first: int = 0) -> Iterator[Turn]:
    """Yield the turns in these events as they are completed, numbered from `first` in each session.
    Events before the first question of a session are left out."""
    open_turns: dict[str, Turn] = {}
    numbers: dict[str, int] = {}
    for event in events:
        if event.kind is not Kind.PROMPT:
            if turn := open_turns.get(event.session):
                turn.add(event)
            continue
        if turn := open_turns.pop(event.session, None):
            yield turn
        number = numbers.get(event.session, first)
        numbers[event.session] = number + 1
        open_turns[event.session] = _opened(event, number)
    yield from open_turns.values()


def _opened(event: SessionEvent, number: int) -> Turn:
    question = event.text[:MAX_QUESTION_CHARS]
    turn = Turn(
        session=event.session,
        host=event.host,
        number=number,
        question=question,
        offset=event.offset,
        cwd=event.cwd,
        began=event.t,
        ended=event.t,
    )
    turn.errors.update(dict.fromkeys(error_lines(question)))
    turn.landmarks.add_text(question[:MAX_NAMED_CHARS])
    return turn


def error_lines(text: str) -> list[str]:
    """The first `MAX_ERRORS` lines that report an error. Only the beginning and end of a long
    output are searched."""
    if len(text) > 2 * ERROR_EDGE_CHARS:
        text = f"{text[:ERROR_EDGE_CHARS]}\n{text[-ERROR_EDGE_CHARS:]}"
    lines: dict[str, None] = {}
    for raw in text.split("\n"):
        line = _ANSI.sub("", raw).strip() if "\x1b" in raw else raw.strip()
        if 8 < len(line) <= MAX_ERROR_CHARS and _ERROR.search(line) and not _EXIT.match(line):
            lines[line] = None
    return list(lines)[:MAX_ERRORS]


def changes_of(path: str, args: Any) -> list[FileChange]:
    """The changes that a call makes to a file."""
    edits = args.get("edits") if isinstance(args.get("edits"), list) else [args]
    changes = []
    for edit in edits:
        if isinstance(edit, dict):
            added = _text(edit, "new_string") or _text(edit, "content")
            changes.append(FileChange(path, _text(edit, "old_string"), added))
    return changes or [FileChange(path)]


def _path(args: Any) -> str:
    return _text(args, "file_path") or _text(args, "notebook_path")


def _text(args: Any, name: str) -> str:
    value = args.get(name)
    return value if isinstance(value, str) else ""
