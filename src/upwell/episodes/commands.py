"""Learns from commands that were called wrongly and, soon afterwards, correctly."""

import re
from collections import deque
from collections.abc import Iterator, Sequence

from msgspec import Struct

from upwell.episodes.episode import Episode, EpisodeKind
from upwell.episodes.events import WRITERS, SessionEvent
from upwell.episodes.failures import (
    Failure,
    Fault,
    asks_help,
    failure_of,
    real_steps,
    succeeded,
)
from upwell.episodes.quoting import can_be_said, is_risky, quoted
from upwell.episodes.signatures import CommandStep, command_of
from upwell.episodes.triggers import of_failure

MAX_OPEN = 8
MAX_DISTANCE = 5
"""A command corrects a failed command only if it follows within this many shell calls."""
MIN_SHARED = 0.5
_CORRECTED = frozenset(
    {Fault.OPTION, Fault.ARGUMENT, Fault.PROGRAM, Fault.SCRIPT, Fault.SERVICE, Fault.QUOTING}
)
"""The faults that one correction explains; for the others, `ways.py` compares several sessions."""
_WORDS = re.compile(r"[a-z0-9]+")
_STARTS = frozenset("up start serve restart open boot daemon run dev".split())
_INSTALLS = re.compile(r"\b(?:install|add|sync|restore|download|ci)\b")


class _Open(Struct, eq=False):
    """A failure for which no working command has been found yet. `age` is the number of shell calls
    since the failure. `others` contains the commands of those calls that had no usage error.
    """

    event: SessionEvent
    failure: Failure
    others: list[CommandStep]
    age: int = 0


class CommandMiner:
    """Finds the commands that worked after other commands had failed."""

    def __init__(self) -> None:
        self._open: deque[_Open] = deque(maxlen=MAX_OPEN)

    def feed(self, event: SessionEvent) -> Iterator[Episode]:
        """Process the next event. Yields the episodes that it completes."""
        if event.tool in WRITERS:
            self._open.clear()
            return
        command = command_of(event)
        if not command:
            return
        failure = failure_of(event)
        steps = real_steps(command)
        if failure is None and succeeded(event):
            yield from self._resolved(event, steps)
        self._drop_rerun(steps, failure)
        for open_failure in self._open:
            open_failure.age += 1
            open_failure.others += [] if failure else steps
        while self._open and self._open[0].age >= MAX_DISTANCE:
            self._open.popleft()
        if failure and failure.fault in _CORRECTED and can_be_said(failure.step.text):
            self._open.append(_Open(event, failure, []))

    def _resolved(self, event: SessionEvent, steps: Sequence[CommandStep]) -> Iterator[Episode]:
        for open_failure in reversed(list(self._open)):
            if open_failure not in self._open:
                continue
            for step in steps:
                if text := _conclusion(open_failure, step):
                    self._forget(open_failure.failure)
                    if not _is_obvious(open_failure.failure, step):
                        yield _episode(open_failure, event, text)
                    break

    def _drop_rerun(self, steps: Sequence[CommandStep], failure: Failure | None) -> None:
        """Forget the failures of commands that were run again with a different outcome. They failed
        because of the state of the project, not because of how they were called.
        """
        now = failure.signature if failure else ""
        words = {step.words for step in steps}
        others = [
            each
            for each in self._open
            if each.failure.step.words not in words or each.failure.signature == now
        ]
        self._open = deque(others, maxlen=MAX_OPEN)

    def _forget(self, failure: Failure) -> None:
        others = [each for each in self._open if each.failure.signature != failure.signature]
        self._open = deque(others, maxlen=MAX_OPEN)


def _episode(open_failure: _Open, event: SessionEvent, text: str) -> Episode:
    return Episode(
        kind=EpisodeKind.COMMAND,
        text=text,
        triggers=of_failure(open_failure.failure),
        cwd=open_failure.event.cwd,
        tool="Bash",
        session=event.session,
        at=event.t,
        evidence=(open_failure.event.i, event.i),
    )


def _conclusion(open_failure: _Open, correction: CommandStep) -> str:
    failed_step, fault = open_failure.failure.step, open_failure.failure.fault
    if not can_be_said(correction.text) or is_risky(correction.text):
        return ""
    root, quote = open_failure.event.cwd, quoted(open_failure.failure.message)
    if correction.text == failed_step.text:
        start = _service(open_failure.others) if fault is Fault.SERVICE else ""
        shown = _shown(failed_step.text, root)
        return (
            f"`{shown}` fails with {quote} until `{_shown(start, root)}` has run." if start else ""
        )
    if not _replaces(failed_step, correction, open_failure.failure):
        return ""
    shown = _shown(failed_step.text, root)
    return f"`{shown}` fails with {quote}; `{_shown(correction.text, root)}` works."


def _shown(command: str, root: str | None) -> str:
    return command.replace(f"{root}/", "") if root else command


def _replaces(failed_step: CommandStep, correction: CommandStep, failure: Failure) -> bool:
    """Return whether `correction` does what `failed_step` was meant to do."""
    fault = failure.fault
    if (
        fault is Fault.SERVICE
        or (correction.piped and not failed_step.piped)
        or asks_help(correction)
    ):
        return False
    if fault is Fault.PROGRAM:
        is_same = (
            correction.words == failed_step.words or _shared(failed_step, correction) >= MIN_SHARED
        )
        return failed_step.program in failure.message and is_same
    if fault is Fault.QUOTING or correction.words == failed_step.words:
        return correction.words == failed_step.words and fault is Fault.QUOTING
    if correction.words == failed_step.words[1:]:
        return fault is Fault.OPTION
    if correction.program != failed_step.program:
        return False
    if fault is Fault.ARGUMENT:
        return failed_step.verbs == correction.verbs
    named_words = _named(failed_step, failure.message)
    if named_words & set(correction.words) or not _continues(failed_step, correction, named_words):
        return False
    if fault is Fault.SCRIPT:
        return any(_alike(old, new) for old in named_words for new in correction.args)
    return not named_words or _shared(failed_step, correction) >= MIN_SHARED


def _continues(failed_step: CommandStep, correction: CommandStep, named_words: set[str]) -> bool:
    """Return whether both commands have the same sub-commands, up to the first one that the error
    names."""
    verbs = failed_step.verbs
    known = next((place for place, verb in enumerate(verbs) if verb in named_words), len(verbs))
    return verbs[:known] == correction.verbs[:known]


def _is_obvious(failure: Failure, correction: CommandStep) -> bool:
    """Return whether `correction` only leaves something out. The error names the wrong word, so
    agents correct such a call immediately without help.
    """
    return failure.fault is Fault.OPTION and set(correction.words) <= set(failure.step.words)


def _named(step: CommandStep, message: str) -> set[str]:
    return {
        word
        for word in step.args
        if len(word) > 1
        and any(f"{mark}{word}" in message for mark in ("'", '"', "`", "/", ": "))
        and word != "run"
    }


def _alike(old: str, new: str) -> bool:
    """Return whether someone who ran the script `old` could have meant `new`: both are in the same
    folder, or one name contains all words in the other.
    """
    folder, _, name = old.rpartition("/")
    other_folder, _, other_name = new.rpartition("/")
    if folder and folder.removeprefix("./") == other_folder.removeprefix("./"):
        return True
    words = set(_WORDS.findall(name.partition(".")[0].lower()))
    others = set(_WORDS.findall(other_name.partition(".")[0].lower()))
    return bool(words and others) and (words <= others or others <= words)


def _shared(failed_step: CommandStep, correction: CommandStep) -> float:
    first = {word for word in failed_step.args if not word.startswith("-")}
    return len(first & set(correction.words)) / len(first) if first else 0.0


def _service(steps: Sequence[CommandStep]) -> str:
    for step in reversed(steps):
        words = set(step.words[1:3])
        if words & _STARTS and not _INSTALLS.search(step.text) and can_be_said(step.text):
            return step.text
    return ""
