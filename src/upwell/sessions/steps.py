"""A past session step by step, read from its transcript for people: prompts, remarks, calls, files
and failures, shortened and without secrets.

A transcript is untrusted text of any size. It is read only up to the last turn needed, and only the
beginning of each text is masked and shown.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from msgspec import Struct, field

from upwell.episodes.events import Kind, SessionEvent
from upwell.episodes.failures import is_refused, succeeded
from upwell.ground.errors import UsageError
from upwell.ground.secrets.redact import redacted_start
from upwell.replay.transcripts import Transcript, format_named
from upwell.sessions.index import MAX_STORED_CHARS, SessionMatch
from upwell.sessions.turns import error_lines
from upwell.surface.journal import file_of, subject_of

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
                _add(parts[number], event)
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


def _add(part: SessionPart, event: SessionEvent) -> None:
    if len(part.steps) >= MAX_STEPS:
        part.left_out += 1
    else:
        part.steps.append(_step(event))


def _step(event: SessionEvent) -> SessionStep:
    if event.kind is not Kind.TOOL:
        return SessionStep(kind=event.kind, at=event.t, text=_cut(event.text, REMARK_CHARS))
    failed = event.failed or is_refused(event) or (event.tool == "Bash" and not succeeded(event))
    trouble = _trouble(event.out[:MAX_TROUBLE_CHARS]) if failed else ""
    return SessionStep(
        kind=event.kind,
        at=event.t,
        text=_cut(" ".join(subject_of(event.args)[: 4 * SUBJECT_CHARS].split()), SUBJECT_CHARS),
        tool=event.tool[:TOOL_CHARS],
        file=file_of(event.args, event.cwd),
        failed=failed,
        trouble=_cut(trouble, FAILURE_CHARS),
    )


def _trouble(out: str) -> str:
    lines = [line.strip() for line in out.split("\n") if line.strip()]
    return next(iter(error_lines(out)), lines[0] if lines else "")


def _excerpt(match: SessionMatch) -> SessionPart:
    turn = match.turn
    conclusion = (
        [SessionStep(kind=Kind.SAY, at=turn.at, text=turn.conclusion)] if turn.conclusion else []
    )
    return SessionPart(
        number=turn.number, at=turn.at, prompt=turn.question, steps=conclusion, is_excerpt=True
    )


def _cut(text: str, limit: int) -> str:
    return redacted_start(text.strip(), limit)
