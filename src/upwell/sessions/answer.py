"""The answer that a past session gives: its question and conclusion, the commands that worked, and
the files that it changed, with their current state; or, at the end of this file, the session step
by step.

Both are read from the transcript as it is now. If the host has removed it, the masked excerpts in
the index are used instead. A transcript is untrusted text of any size. It is read only up to the
last turn needed, and only the beginning of each text is masked and shown.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from upwell.capture.git import commits_since
from upwell.episodes.events import Kind, SessionEvent
from upwell.episodes.failures import is_refused, succeeded
from upwell.ground.errors import UsageError
from upwell.ground.project import in_project, real_folder, repository_of
from upwell.ground.secrets.redact import redact, redacted_start
from upwell.ground.text.words import counted, informative, iso, terms
from upwell.replay.transcripts import Transcript, format_named
from upwell.sessions.index import (
    MAX_STORED_CHARS,
    SessionIndex,
    SessionMatch,
    SessionScope,
    read_turn,
)
from upwell.sessions.turns import FileChange, Run, Turn, error_lines, notable
from upwell.surface.journal import file_of, subject_of
from upwell.surface.render import harmless, harmless_line, preview

STANDS = "stands"
MAX_FILES, MAX_RUNS = 5, 3
MAX_FILE_BYTES = 2_000_000
MIN_LINE_CHARS = 4
"""Shorter lines, such as a lone bracket, are ignored when a change is compared with a file."""
_MARGIN_SECONDS = 120.0
"""A file too large to compare counts as changed since the turn only if it was modified more than
this long after the turn ended."""


class FileState(Struct, frozen=True):
    """A file that a turn changed. `state` is `stands` (the change is still in the file),
    `reverted`, `changed since`, `gone`, or "" if unknown. `commits` are the commits that have
    touched the file since the turn."""

    path: str
    state: str
    commits: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The file and its state, for people."""
        if not self.state:
            return self.path
        if self.state == STANDS or not self.commits:
            return f"{self.path} ({self.state})"
        count = counted(len(self.commits), "commit")
        return f"{self.path} ({self.state}, {count}, last {self.commits[0]})"


class Answer(Struct, frozen=True):
    """The answer that a turn gives. `closing` is the conclusion at the end of the session, if the
    turn is its first and the session ended with another. `remarks` contains everything that the
    agent wrote, if requested. `is_excerpt` is True if the transcript is gone and only excerpts are
    left."""

    match: SessionMatch
    question: str
    conclusion: str
    closing: str = ""
    remarks: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()
    files: tuple[FileState, ...] = ()
    is_excerpt: bool = False


async def answers_to(
    index: SessionIndex,
    question: str,
    scope: SessionScope,
    limit: int,
    environment: Mapping[str, str],
) -> list[Answer]:
    """The sessions most relevant to the question, best first. Raises StoreError if the index cannot
    be read."""
    matches = await index.search(question, scope, limit)
    closings = [await index.closing(match) for match in matches]
    answers = await _answers(matches, environment, question)
    texts = await asyncio.to_thread(lambda: list(map(_closing, closings)))
    return [
        answer if text == answer.conclusion else replace(answer, closing=text)
        for answer, text in zip(answers, texts, strict=True)
    ]


async def changes_of(
    index: SessionIndex,
    path: str,
    cwd: str,
    scope: SessionScope,
    limit: int,
    environment: Mapping[str, str],
) -> list[Answer]:
    """The turns that changed a file, newest first. If no turn changed the file under its absolute
    path, `path` is looked up as given, because transcripts from other machines have different
    folders. Raises StoreError if the index cannot be read."""
    name = os.path.normpath(path)
    folder, file = os.path.split(os.path.normpath(os.path.join(cwd, path)))
    matches = await index.changes(os.path.join(real_folder(folder), file), scope, limit)
    if not matches:
        matches = await index.changes(name, scope, limit)
    return await _answers(matches, environment, os.path.basename(name), name.lstrip("/"))


async def turn_at(index: SessionIndex, locator: str, environment: Mapping[str, str]) -> Answer:
    """The turn with this locator. Raises UsageError if no session matches, several do, or the
    session has no such turn, and StoreError if the index cannot be read."""
    match = await index.located(locator)
    return await asyncio.to_thread(partial(answer_of, match, "", environment, whole=True))


async def _answers(
    matches: Sequence[SessionMatch], environment: Mapping[str, str], question: str, file: str = ""
) -> list[Answer]:
    return await asyncio.to_thread(
        lambda: [answer_of(match, question, environment, file=file) for match in matches]
    )


def answer_of(
    match: SessionMatch,
    question: str,
    environment: Mapping[str, str],
    *,
    whole: bool = False,
    file: str = "",
) -> Answer:
    """The answer that this turn gives, read from its transcript, with secrets masked.

    `whole` adds everything that the agent wrote. With `file` (an absolute path, a path within a
    project, or a name), all other files are left out.
    """
    turn = read_turn(match)
    if turn is None:
        return Answer(match, match.turn.question, match.turn.conclusion, is_excerpt=True)
    words = set(informative(terms(question)))
    worked = [run for run in notable(turn.runs) if run.worked]
    relevant = sorted(worked, key=lambda run: -len(words & set(terms(run.command))))
    return Answer(
        match,
        redact(turn.question)[0],
        redact(turn.conclusion)[0],
        "",
        tuple(redact(remark)[0] for remark in turn.remarks) if whole else (),
        tuple(Run(redact(run.command)[0], run.worked) for run in relevant[:MAX_RUNS]),
        tuple(file_states(turn, environment, file)),
    )


def _closing(match: SessionMatch | None) -> str:
    turn = read_turn(match) if match else None
    if match is None or turn is None:
        return match.turn.conclusion if match else ""
    return redact(turn.conclusion)[0]


def file_states(turn: Turn, environment: Mapping[str, str], file: str = "") -> list[FileState]:
    """The current state of the first `MAX_FILES` files that the turn changed, or only of `file`."""
    root = turn.cwd or "/"
    repository = repository_of(root) if turn.cwd and os.path.isdir(root) else None
    places = {path: in_project(os.path.join(root, path), repository) for path in turn.changed}
    changed = {
        path: os.path.normpath(place)
        for path, place in places.items()
        if not file or any(f"/{name}".endswith(f"/{file}") for name in (path, place))
    }
    paths = list(changed)[:MAX_FILES]
    named = [changed[path] for path in paths]
    log = commits_since(repository, named, turn.ended, environment) if repository and paths else []
    states = []
    for path in paths:
        absolute = changed[path]
        inside = os.path.relpath(absolute, repository) if repository else path
        commits = [f"{sha[:8]} {subject}" for sha, subject, files in log if inside in files]
        own = [change for change in turn.changes if change.path == path]
        state = _state(absolute, own, turn.ended, has_commits=bool(commits))
        states.append(FileState(path.removeprefix(f"{root}/"), state, tuple(commits)))
    return states


def _state(path: str, changes: Sequence[FileChange], ended: float, *, has_commits: bool) -> str:
    try:
        info = os.stat(path)
        is_newer = info.st_mtime > ended + _MARGIN_SECONDS
        if info.st_size > MAX_FILE_BYTES:
            return "changed since" if is_newer else ""
        with open(path, encoding="utf-8", errors="replace") as file:
            content = file.read()
    except FileNotFoundError:
        return "gone"
    except (OSError, ValueError):
        return ""
    verdicts = {_verdict(change, content) for change in changes} - {""}
    if verdicts in ({STANDS}, {"reverted"}):
        return verdicts.pop()
    return "changed since" if verdicts or has_commits else ""


def _verdict(change: FileChange, content: str) -> str:
    """The state of one change, judged by the file's content; "" if the text of the change was not
    recorded. A change counts as reverted only if the lines that it removed are back and those that
    it added are gone."""
    if change.added and change.added in content:
        return STANDS
    present = _lines(content)
    added, removed = _lines(change.added), _lines(change.removed)
    own, old = added - removed, removed - added
    if old and old <= present and not own & present:
        return "reverted"
    if own <= present and not old & present and (own or old):
        return STANDS
    return "changed" if own or old else ""


def _lines(text: str) -> set[str]:
    return {line for raw in text.split("\n") if len(line := raw.strip()) >= MIN_LINE_CHARS}


QUESTION_CHARS, CONCLUSION_CHARS = 240, 700
GONE = "the transcript is gone; this is an excerpt"


def lines_of(answer: Answer, question: str) -> list[str]:
    """A session as a few lines: date and place, question, conclusion, the conclusion at the end of
    the session, commands that worked, and changed files."""
    rows = [
        ("asked", preview(answer.question, [question], QUESTION_CHARS)),
        ("concluded", preview(answer.conclusion, [question], CONCLUSION_CHARS)),
        ("finally", preview(answer.closing, [question], CONCLUSION_CHARS)),
        *(("worked", harmless_line(run.command)) for run in answer.runs),
        *(("changed", harmless_line(file.text)) for file in answer.files),
        *([("note", GONE)] if answer.is_excerpt else []),
    ]
    return [heading(answer), *(f"  {name:<10} {text}" for name, text in rows if text)]


def heading(answer: Answer) -> str:
    """When and where the session ran, and the turn's locator."""
    session = answer.match.session
    when = (iso(answer.match.turn.at) or "")[:16].replace("T", " ")
    parts = (when, session.host, os.path.basename(session.project), answer.match.locator)
    return harmless_line(" · ".join(filter(None, parts)))


def page_of(answer: Answer) -> str:
    """A whole turn as text, with everything that the agent wrote."""
    remarks = answer.remarks or (answer.conclusion,)
    parts = [heading(answer), "", "## Question", answer.question, "", "## Answer", *remarks]
    if answer.runs:
        parts += ["", "## Commands that worked", *(run.command for run in answer.runs)]
    if answer.files:
        parts += ["", "## Files changed", *(file.text for file in answer.files)]
    if answer.is_excerpt:
        parts += ["", f"({GONE})"]
    return harmless("\n".join(parts))


def described(answer: Answer) -> dict[str, Any]:
    """A session as JSON."""
    session, turn = answer.match.session, answer.match.turn
    return {
        "locator": answer.match.locator,
        "score": round(answer.match.score, 4),
        "at": iso(turn.at),
        "host": session.host,
        "project": session.project or None,
        "session": session.name,
        "turn": turn.number,
        "transcript": session.path,
        "question": answer.question,
        "conclusion": answer.conclusion,
        "closing": answer.closing,
        "commands": [run.command for run in answer.runs],
        "files": [
            {"path": file.path, "state": file.state or None, "commits": list(file.commits)}
            for file in answer.files
        ],
        "is_excerpt": answer.is_excerpt,
    }


PROMPT_CHARS, REMARK_CHARS, SUBJECT_CHARS, FAILURE_CHARS = 2_000, 1_500, 300, 300
TOOL_CHARS = 60
MAX_TROUBLE_CHARS = 20_000
"""How many characters of a failed call's result are searched for the error."""
MAX_STEPS = 200
"""The maximum number of steps shown for one turn."""
_SHOWN = frozenset({Kind.SAY, Kind.TOOL, Kind.COMPACT})


class SessionStep(Struct, frozen=True, kw_only=True):
    """A step of a turn. `text` is the agent's remark, or the command, pattern or question in a
    call. `trouble` is the line in a failed call's result that reports an error, or else its first
    line."""

    kind: Kind
    at: float
    text: str = ""
    tool: str = ""
    file: str = ""
    failed: bool = False
    trouble: str = ""


class SessionPart(Struct, kw_only=True):
    """A turn with its first `MAX_STEPS` steps. `left_out` counts the others. If the transcript is
    gone, `is_excerpt` is True, and the only step is the excerpt of the turn's conclusion."""

    number: int
    at: float
    prompt: str
    steps: list[SessionStep] = field(default_factory=list[SessionStep])
    left_out: int = 0
    is_excerpt: bool = False


def parts_of(matches: Sequence[SessionMatch]) -> list[SessionPart]:
    """These turns, step by step. `matches` must be sorted by time."""
    parts: list[SessionPart] = []
    for _, group in groupby(matches, key=lambda match: match.session.no):
        own = list(group)
        read = _read(own)
        parts += [read.get(match.turn.number) or _excerpt(match) for match in own]
    return parts


def _read(matches: Sequence[SessionMatch]) -> dict[int, SessionPart]:
    numbers = {match.turn.number: match.turn for match in matches}
    parts: dict[int, SessionPart] = {}
    try:
        for number, event in _numbered(matches):
            if number > max(numbers):
                break
            turn = numbers.get(number)
            if turn is None:
                continue
            if event.kind is Kind.PROMPT:
                # A different file may now be at this path.
                if abs(event.t - turn.at) <= 1.0:
                    prompt = _cut(event.text, PROMPT_CHARS)
                    parts[number] = SessionPart(number=number, at=event.t, prompt=prompt)
            elif event.kind in _SHOWN and number in parts:
                if len(parts[number].steps) < MAX_STEPS:
                    parts[number].steps.append(_step(event))
                else:
                    parts[number].left_out += 1
    except (UsageError, OSError):
        return parts
    return parts


def _numbered(matches: Sequence[SessionMatch]) -> Iterator[tuple[int, SessionEvent]]:
    """The events of a session with the numbers of their turns. If the format can be read from an
    offset, they begin with the first of the given turns; otherwise, at the start of the session."""
    session = matches[0].session
    transcript = Transcript(Path(session.path), format_named(session.format))
    first = min(matches, key=lambda match: match.turn.number).turn
    if first.offset and transcript.format.resumes:
        events, number = transcript.events(first.offset), first.number - 1
    else:
        events, number = transcript.events(), -1
    for event in events:
        if event.session[:MAX_STORED_CHARS] == session.name:
            number += event.kind is Kind.PROMPT
            yield number, event


def _step(event: SessionEvent) -> SessionStep:
    if event.kind is not Kind.TOOL:
        return SessionStep(kind=event.kind, at=event.t, text=_cut(event.text, REMARK_CHARS))
    failed = event.failed or is_refused(event) or (event.tool == "Bash" and not succeeded(event))
    out = event.out[:MAX_TROUBLE_CHARS] if failed else ""
    first_line = next((line.strip() for line in out.split("\n") if line.strip()), "")
    trouble = next(iter(error_lines(out)), first_line)
    return SessionStep(
        kind=event.kind,
        at=event.t,
        text=_cut(" ".join(subject_of(event.args)[: 4 * SUBJECT_CHARS].split()), SUBJECT_CHARS),
        tool=event.tool[:TOOL_CHARS],
        file=file_of(event.args, event.cwd),
        failed=failed,
        trouble=_cut(trouble, FAILURE_CHARS),
    )


def _excerpt(match: SessionMatch) -> SessionPart:
    turn = match.turn
    part = SessionPart(number=turn.number, at=turn.at, prompt=turn.question, is_excerpt=True)
    if turn.conclusion:
        part.steps.append(SessionStep(kind=Kind.SAY, at=turn.at, text=turn.conclusion))
    return part


def _cut(text: str, limit: int) -> str:
    return redacted_start(text.strip(), limit)
