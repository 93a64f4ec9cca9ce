"""The turns of a session. A turn is a question, the answer that closed it, and the work in between:
commands, files, errors, and what a call leaves behind outside the files (commits, branches, tickets
and pull requests). Also, which of the commands are worth repeating.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct, field

from upwell.episodes.events import WRITERS, Kind, SessionEvent
from upwell.episodes.failures import asks_help, is_refused, real_steps, succeeded
from upwell.episodes.signatures import CommandStep, command_of, statuses, steps_of
from upwell.episodes.triggers import tickets_in
from upwell.ground.secrets.redact import has_secret
from upwell.ground.text.tokens import count

MAX_SUBJECT_CHARS, MAX_NAME_CHARS = 100, 100
_COMMITTED = re.compile(
    r"^\[([^\s\]]+)(?: \(root-commit\))? ([0-9a-f]{7,40})\] (.+)$", re.MULTILINE
)
"""What git prints after a commit: branch, hash and subject."""
_PULL = re.compile(r"/(?:pull|pulls|merge_requests)/(\d{1,7})\b|\b(?:PR|MR)s?\s*[#!]?(\d{1,7})\b")
_ISSUE = re.compile(r"/(?:issues|browse|work_items)/([A-Z][A-Z0-9]*-)?(\d{1,7})\b")
_FORGES = {"gh": {"pr": "pull", "issue": "ticket"}, "glab": {"mr": "pull", "issue": "ticket"}}
_NEW_BRANCH = {
    "checkout": ("-b", "-B"),
    "switch": ("-c", "-C", "--create"),
    "worktree": ("-b", "-B"),
}
"""The options with which a sub-command of git creates a branch."""
TRUNKS = frozenset("main master develop dev trunk default HEAD origin upstream".split())
"""Branches on which sessions of every subject work."""


def commits_in(out: str) -> Iterator[tuple[str, str, str]]:
    """The branch, short hash and subject of each commit that an output reports."""
    for match in _COMMITTED.finditer(out):
        yield match[1][:MAX_NAME_CHARS], match[2][:8], match[3].strip()[:MAX_SUBJECT_CHARS]


def branch_in(command: str) -> str:
    """The branch that a command creates, or ""."""
    for step in steps_of(command):
        verb = next((word for word in step.args if word in _NEW_BRANCH), "")
        if step.program == "git" and verb:
            args = step.args[step.args.index(verb) :]
            for option, name in pairwise(args):
                if option in _NEW_BRANCH[verb] and not name.startswith("-"):
                    return name[:MAX_NAME_CHARS]
    return ""


def pulls_in(text: str) -> list[str]:
    """The numbers of the pull requests that a text names."""
    return list(dict.fromkeys(match[1] or match[2] for match in _PULL.finditer(text)))


def issues_in(text: str) -> list[str]:
    """The tickets that a text names, also by their addresses."""
    named = [f"{match[1] or ''}{match[2]}" for match in _ISSUE.finditer(text)]
    return list(dict.fromkeys([*named, *tickets_in(text)]))


def numbers_in(command: str) -> Iterator[tuple[str, str]]:
    """The tickets and pull requests that a forge's own command names (`gh pr view 12`), each with
    its kind, `ticket` or `pull`."""
    for step in steps_of(command):
        kind = _FORGES.get(step.program, {}).get(step.verbs[0]) if step.verbs else None
        number = next((word for word in step.args if word.isdecimal() and len(word) < 8), "")
        if kind and number:
            yield kind, number


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
            for line in [] if worked else error_lines(event.out):
                if len(self.errors) < MAX_ERRORS * 4:
                    self.errors[line] = None
            return
        path = _text(event.args, "file_path") or _text(event.args, "notebook_path")
        if path and event.tool in WRITERS and not event.failed:
            if len(self.changes) < MAX_CHANGES:
                self.changes += changes_of(path, event.args)
        elif path and event.tool in _READERS and len(self.read) < MAX_FILES:
            self.read[path] = None


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


def _text(args: Any, name: str) -> str:
    value = args.get(name)
    return value if isinstance(value, str) else ""


MAX_SHOWN_CHARS = 160
_PLAIN = frozenset(
    "cat head tail less more ls tree find fd grep rg ag sed awk wc sort uniq diff stat file which "
    "mkdir rm rmdir cp mv touch ln chmod chown pwd date whoami env ps kill pkill open xdg-open "
    "cd echo printf export sleep true test jq tee xargs source for while if read curl pgrep".split()
)
"""Programs that every agent can use without help."""
_GIT = frozenset(
    "add status diff log show commit push pull fetch branch checkout switch stash restore merge "
    "rev-parse rebase reset clone remote tag blame ls-files config worktree mv rm init".split()
)
_INLINE = frozenset({"-c", "-e", "-p", "--eval", "-"})
"""Options that make an interpreter run a one-off program."""


def notable(runs: Iterable[Run]) -> list[Run]:
    """The commands that an agent could not guess, latest first. Each appears once, with the result
    of its last run."""
    latest: dict[str, Run] = {}
    for run in runs:
        if shown := worth_repeating(run.command):
            latest.pop(shown, None)
            latest[shown] = Run(shown, run.worked)
    return list(latest.values())[::-1]


def worth_repeating(command: str) -> str:
    """The one step in a command that is worth repeating. "" if no step is, if several are, or if
    the exit status does not tell how it ended."""
    steps = [step for step in real_steps(command) if _is_notable(step)]
    if len(steps) != 1 or "\n" in steps[0].text or len(steps[0].text) > MAX_SHOWN_CHARS:
        return ""
    # The status of the step may be lost: `make || true`, `make; echo done`, `make &`.
    told = [told for text, told in statuses(command) if steps[0].words[0] in text.split()]
    return steps[0].text if told and all(told) and not has_secret(steps[0].text) else ""


def _is_notable(step: CommandStep) -> bool:
    if step.piped or step.program in _PLAIN or len(step.words) < 2 or asks_help(step):
        return False
    if _INLINE & set(step.args):
        return False
    return step.program != "git" or not step.verbs or step.verbs[0] not in _GIT


MAX_CARRIED, MAX_CARRIED_TOKENS = 6, 150
_MIN_RUNS = 2
_ONE_TIME = re.compile(r"\$\(|`|/tmp/|^git\s|\d{5}|\b[0-9a-f]{7,}\b|\s-(?:f|F|X)\s|--version\b")
"""A command that matches is usually about one particular object (a commit, a temporary file), or
changes something outside the project (`gh api -X POST`)."""


class _Purpose(Struct):
    """The runs of one program and sub-command. `worked` counts how often each command worked. The
    command that worked last comes last. `was_hard` is True if a failed run preceded one that
    worked."""

    worked: dict[str, int] = field(default_factory=dict[str, int])
    has_failed: bool = False
    was_hard: bool = False

    def add(self, run: Run) -> None:
        if run.worked:
            self.was_hard |= self.has_failed
            self.worked[run.command] = self.worked.pop(run.command, 0) + 1
        self.has_failed |= not run.worked

    @property
    def best(self) -> str:
        return max(reversed(self.worked), key=self.worked.__getitem__, default="")

    @property
    def worth(self) -> float:
        return self.worked.get(self.best, 0) + 2 * self.was_hard


def carried(runs: Iterable[Run]) -> Sequence[str]:
    """The commands that an agent needs again when its context is lost, most useful first.

    For each program and sub-command, returns the command that worked most often. It must have
    worked more than once, unless a failed run preceded one that worked. At most `MAX_CARRIED`
    commands with `MAX_CARRIED_TOKENS` tokens together.
    """
    purposes: dict[tuple[str, ...], _Purpose] = {}
    for run in runs:
        shown = worth_repeating(run.command)
        if shown and not _ONE_TIME.search(shown):
            step = steps_of(shown)[0]
            key = (step.program, *step.verbs[:1])
            purposes.setdefault(key, _Purpose()).add(Run(shown, run.worked))
    ranked = sorted(purposes.values(), key=lambda purpose: -purpose.worth)
    chosen: list[str] = []
    for purpose in ranked[:MAX_CARRIED]:
        tokens = count("\n".join([*chosen, purpose.best]))
        if purpose.best and purpose.worth >= _MIN_RUNS and tokens <= MAX_CARRIED_TOKENS:
            chosen.append(purpose.best)
    return chosen
