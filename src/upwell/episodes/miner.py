"""Derives episodes from the events of a session: commands that were called wrongly and, soon
afterwards, correctly; the files that the session worked with, and those that define a name."""

import re
from collections import deque
from collections.abc import Iterator, Sequence

from msgspec import Struct

from upwell.episodes.corrections import rules_of
from upwell.episodes.events import DOCUMENTS, WRITERS, Kind, SessionEvent, inside
from upwell.episodes.failures import (
    Failure,
    Fault,
    asks_help,
    failure_of,
    real_steps,
    succeeded,
)
from upwell.episodes.signatures import CommandStep, command_of
from upwell.episodes.trials import Trial, TrialMiner, can_be_said, is_risky, quoted
from upwell.episodes.triggers import (
    Episode,
    EpisodeKind,
    TicketMiner,
    definitions,
    of_failure,
    of_place,
    of_symbols,
)

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
        # The failure of a command that was run again with a different outcome came from the state
        # of the project, not from how the command was called.
        words, now = {step.words for step in steps}, failure.signature if failure else ""
        others = [
            each
            for each in self._open
            if each.failure.step.words not in words or each.failure.signature == now
        ]
        self._open = deque(others, maxlen=MAX_OPEN)
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
                    failure = open_failure.failure
                    others = [
                        each for each in self._open if each.failure.signature != failure.signature
                    ]
                    self._open = deque(others, maxlen=MAX_OPEN)
                    # If the correction only leaves something out, the error names the wrong word,
                    # so agents correct such a call immediately without help.
                    leaves_out = set(step.words) <= set(failure.step.words)
                    if failure.fault is not Fault.OPTION or not leaves_out:
                        yield Episode(
                            kind=EpisodeKind.COMMAND,
                            text=text,
                            triggers=of_failure(failure),
                            cwd=open_failure.event.cwd,
                            tool="Bash",
                            session=event.session,
                            at=event.t,
                            evidence=(open_failure.event.i, event.i),
                        )
                    break


def _conclusion(open_failure: _Open, correction: CommandStep) -> str:
    failed_step, fault = open_failure.failure.step, open_failure.failure.fault
    if not can_be_said(correction.text) or is_risky(correction.text):
        return ""
    root, quote = open_failure.event.cwd, quoted(open_failure.failure.message)
    if correction.text == failed_step.text:
        started = (
            step.text
            for step in reversed(open_failure.others)
            if _STARTS.intersection(step.words[1:3])
            and not _INSTALLS.search(step.text)
            and can_be_said(step.text)
        )
        start = next(started, "") if fault is Fault.SERVICE else ""
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
    # Both commands have the same sub-commands, up to the first one that the error names.
    verbs = failed_step.verbs
    known = next((place for place, verb in enumerate(verbs) if verb in named_words), len(verbs))
    if named_words & set(correction.words) or verbs[:known] != correction.verbs[:known]:
        return False
    if fault is Fault.SCRIPT:
        return any(_alike(old, new) for old in named_words for new in correction.args)
    return not named_words or _shared(failed_step, correction) >= MIN_SHARED


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


MAX_FILES, MAX_SYMBOLS = 512, 256
MAX_PLACES = 2
"""A name that is defined in more files than this gets no episode."""
_FOREIGN = ("node_modules/", ".git/", "dist/", "build/", "vendor/", ".venv/", "target/")
_FILE_TOOLS = frozenset({"Read", *WRITERS})


class PlaceMiner:
    """Collects files and definitions. It returns episodes only when the session ends, because
    until then a search may show that a name is defined in too many files.
    """

    def __init__(self) -> None:
        self._files: dict[str, SessionEvent] = {}
        self._symbols: dict[str, dict[str, SessionEvent]] = {}

    def feed(self, event: SessionEvent) -> None:
        """Process the next event of the session."""
        if event.kind is not Kind.TOOL:
            return
        if event.tool in _FILE_TOOLS:
            path = event.args.get("file_path")
            if isinstance(path, str) and not event.failed:
                self._add(self._files, _own(path, event.cwd), event, MAX_FILES)
            return
        for name, file in definitions(event):
            own = _own(file, event.cwd)
            if own and not own.endswith(DOCUMENTS):
                files = self._symbols.setdefault(name, {})
                self._add(files, own, event, MAX_PLACES + 1)
                while len(self._symbols) > MAX_SYMBOLS:
                    self._symbols.pop(next(iter(self._symbols)))

    def end(self) -> Iterator[Episode]:
        """End the session. Yields the episodes for the files and the names."""
        for path, event in self._files.items():
            if keys := of_place(path):
                yield _place(event, keys, (path,))
        for name, files in self._symbols.items():
            if len(files) <= MAX_PLACES:
                event = next(iter(files.values()))
                yield _place(event, of_symbols([name]), tuple(files), (name,))

    @staticmethod
    def _add(files: dict[str, SessionEvent], path: str, event: SessionEvent, limit: int) -> None:
        if path and path not in files and len(files) < limit:
            files[path] = event


def in_words(paths: Sequence[str], names: Sequence[str] = ()) -> str:
    """Say where a file is, or in which files a name is defined."""
    if names:
        return f"`{names[0]}` is defined in {' and in '.join(f'`{path}`' for path in paths)}."
    folder, _, name = paths[0].rpartition("/")
    return f"`{name}` is {f'at `{paths[0]}`' if folder else 'in the root folder of the project'}."


def _own(path: str, root: str | None) -> str:
    """Return `path` relative to the folder of the session, or "" if the file is outside that folder
    or belongs to dependencies or build output.
    """
    own = inside(path, root)
    if own.startswith(("/", "~", "../", "$")) or any(part in own for part in _FOREIGN):
        return ""
    return own


def _place(
    event: SessionEvent,
    triggers: tuple[str, ...],
    paths: tuple[str, ...],
    identifiers: tuple[str, ...] = (),
) -> Episode:
    return Episode(
        kind=EpisodeKind.PLACE,
        text=in_words(paths, identifiers),
        triggers=triggers,
        paths=paths,
        identifiers=identifiers,
        cwd=event.cwd,
        tool=event.tool,
        session=event.session,
        at=event.t,
        evidence=(event.i,),
    )


class EpisodeMiner:
    """Collects the episodes of one session. Call `feed` with each event in order, then `end`.
    `trials` has the commands that show how to run something, for `ways.py`, which compares those of
    all sessions."""

    def __init__(self) -> None:
        self.trials: list[Trial] = []
        self._trials = TrialMiner()
        self._commands = CommandMiner()
        self._corrections: list[Episode] = []
        self._places = PlaceMiner()
        self._tickets = TicketMiner()

    def feed(self, event: SessionEvent) -> Sequence[Episode]:
        """Process the next event. Returns the episodes that it completes."""
        if event.kind is Kind.TOOL:
            self._places.feed(event)
            self.trials += self._trials.feed(event)
            self._corrections += self._commands.feed(event)
            return tuple(self._tickets.feed(event))
        if event.kind is Kind.PROMPT:
            self._tickets.prompt(event)
            return tuple(rules_of(event)) if event.is_users else ()
        return ()

    def end(self) -> Sequence[Episode]:
        """End the session. Returns the episodes that can only be known at the end."""
        lasting = [each for each in self._corrections if not self._is_refuted(each)]
        return (*lasting, *self._places.end())

    def _is_refuted(self, correction: Episode) -> bool:
        """True if the command that worked failed as a call later, so that it was half the
        answer."""
        last = correction.evidence[-1]
        ways = {(trial.job, trial.launcher) for trial in self.trials if trial.i == last}
        return any(
            trial.fault and trial.i > last and (trial.job, trial.launcher) in ways
            for trial in self.trials
        )
