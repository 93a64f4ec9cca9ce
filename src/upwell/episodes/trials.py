"""Trials: the commands of a session that show how to run something in a project, and how each of
them ended.

Two commands do the same *job* if they run the same script, sub-command or tests, whatever starts
them: `python -m pytest`, `uv run pytest` and `docker compose exec web pytest` all do the job
`pytest`. What differs between them is their *launcher*, their options and their folder.

At the end of the file: which commands and errors an episode may quote, and in what form.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from upwell.episodes.events import WRITERS, SessionEvent
from upwell.episodes.failures import (
    Failure,
    Fault,
    asks_help,
    failure_of,
    is_refused,
    real_steps,
    succeeded,
)
from upwell.episodes.signatures import CommandStep, command_of, statuses, steps_of

MAX_CODE_CHARS = 600
MAX_WORD_CHARS = 40
"""A longer argument with blanks is text that a command works on, such as a query."""
LEFT_OUT = "…"
"""What stands for code and long texts in the form of a command."""
MAX_NESTED = 3
_INTERPRETERS = frozenset(
    "python node nodejs bun deno ruby perl php rscript bash sh zsh tsx ts-node pwsh".split()
)
"""Programs whose first argument is a script."""
_SCRIPT_RUNNERS = frozenset("npm pnpm yarn bun".split())
"""Programs that run a script of the package."""
_SHELLS = frozenset("bash sh zsh dash fish".split())
_INLINE = frozenset({"-c", "-e", "-p", "-lc", "--eval"})
_ASKING = frozenset("--version -V -v version which where whereis type".split())
"""Words by which a command only looks at a program, without doing its job."""
_IMPORT = re.compile(r"(?:\bimport|\bfrom|require\()[ \t'\"{]{1,4}(@?[A-Za-z_][\w-]{0,60})")
_WORD = re.compile(r"[a-z][a-z0-9:_-]*")
_SCRIPT = re.compile(r"[\w@./\\-]+\.[a-z]{1,4}")
_VALUED = re.compile(r"--?(?:[a-zA-Z]|user|env|workdir|namespace|container|index|file|profile)")
"""Options of `ssh` and of the commands that run a program in a container, with a separate value."""
_FLAG = re.compile(r"-(?:[itqTvNAX46]+|-interactive|-tty|-no-TTY|-rm)")
_SILENT_HOSTS = frozenset({"specstory"})
"""Hosts whose records have no exit status: a command without an error that is known may have failed
all the same, so that it proves nothing."""
LAUNCHED = frozenset({Fault.PROGRAM, Fault.SCRIPT, Fault.FOLDER})
"""Faults that another launcher or folder mends."""
WAITING = LAUNCHED | {Fault.SERVICE, Fault.ACCESS, Fault.BUSY}
"""Faults that another command can mend, after which the same one works."""


class Trial(Struct, frozen=True, kw_only=True):
    """A command that ended with a known result.

    `launcher` is its text up to the program, `options` the names of its options, `folder` where it
    ran, `name` the last part of that folder, and `form` its text to show, or "" if it cannot be
    quoted. `after` is the command that was needed first, for a command that worked again after one
    of the `WAITING` faults. A command that was called wrongly has a `fault`, with the `message`,
    its `signature`, and the `speaker`.
    """

    job: str
    launcher: str
    options: tuple[str, ...]
    form: str
    folder: str
    name: str
    session: str
    at: float
    i: int
    after: str = ""
    fault: str = ""
    message: str = ""
    signature: str = ""
    speaker: str = ""

    @property
    def command(self) -> str:
        """The text to show of a command that failed. Options do not matter if it cannot run."""
        return self.start if self.fault in LAUNCHED else self.form

    @property
    def start(self) -> str:
        """The text up to the first option that does not belong to the launcher."""
        place = len(self.launcher)
        return self.form[:place] + self.form[place:].partition(" -")[0]

    @property
    def runnable(self) -> str:
        """The text to show of a command that works, whatever its arguments: it ends before the
        first one that was left out, and before the option of that one."""
        words = self.form.partition(LEFT_OUT)[0].split(" ")[:-1]
        while words and words[-1].startswith("-"):
            words.pop()
        text = " ".join(words)
        is_whole = LEFT_OUT in self.form and not (text.count("'") % 2 or text.count('"') % 2)
        return text if text and is_whole else self.form


class TrialMiner:
    """Collects the trials of one session. Call `feed` with each event in order."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str, str], list[str]] = {}

    def feed(self, event: SessionEvent) -> Iterator[Trial]:
        """Yield the trials in the next event."""
        if event.tool in WRITERS:
            self._waiting.clear()
        command = command_of(event)
        if not command or is_refused(event):
            return
        failure = failure_of(event)
        if failure is not None:
            if trial := trial_of(event, failure):
                yield trial
                if failure.fault in WAITING:
                    started = self._waiting.get(_kind(trial), [])
                    self._waiting[_kind(trial)] = []
                    yield from (replace(trial, after=each) for each in started[-1:])
        elif event.host not in _SILENT_HOSTS and succeeded(event):
            yield from self._worked(event, command)

    def _worked(self, event: SessionEvent, command: str) -> Iterator[Trial]:
        folder = folder_of(event)
        ended = {text for text, is_known in statuses(command, by_output=False) if is_known}
        for step in real_steps(command):
            trial = _trial(event, step, folder)
            if trial is None or not any(step.words[0] in text.split() for text in ended):
                continue
            started = self._waiting.pop(_kind(trial), [])
            yield trial
            yield from (replace(trial, after=each) for each in started[-1:])
            for others in self._waiting.values():
                others += [trial.form] if trial.form and LEFT_OUT not in trial.form else []


def _kind(trial: Trial) -> tuple[str, str, str]:
    return trial.job, trial.launcher, trial.folder


def trial_of(event: SessionEvent, failure: Failure) -> Trial | None:
    """The trial of a command that failed; None if it is not clear what it was to do."""
    return _trial(event, failure.step, folder_of(event), failure)


def core_of(step: CommandStep) -> CommandStep:
    """The command that runs in the end: that behind `ssh`, `docker exec` and `bash -c`."""
    for _ in range(MAX_NESTED):
        words = _inner(step.words)
        if not words:
            break
        nested = steps_of(words) if isinstance(words, str) else [CommandStep("", tuple(words))]
        working = [each for each in nested if each.program not in ("cd", "source", "export", ".")]
        if len(working) != 1:
            break
        step = CommandStep(step.text, working[0].words, step.piped)
    return step


def _inner(words: Sequence[str]) -> Sequence[str] | str:
    """The words or the script of the command that another one runs."""
    program = words[0].rpartition("/")[2]
    if program in _SHELLS:
        place = next((at for at, word in enumerate(words) if word in ("-c", "-lc")), 0)
        return words[place + 1] if 0 < place < len(words) - 1 else ()
    if program == "ssh":
        rest = _arguments(words[1:])[1:]
        return " ".join(rest) if len(rest) == 1 else rest
    if program in ("docker", "podman", "kubectl", "docker-compose", "oc") and "exec" in words[:6]:
        rest = _arguments(words[words.index("exec") + 1 :])[1:]
        return [word for word in rest[:1] if word != "--"] + list(rest[1:])
    return ()


def _arguments(words: Sequence[str]) -> Sequence[str]:
    """The words from the first that is neither an option nor its value."""
    place = 0
    while place < len(words) and words[place].startswith("-"):
        has_value = not _FLAG.fullmatch(words[place]) and _VALUED.fullmatch(words[place])
        place += 2 if has_value else 1
    return words[place:]


def job_of(step: CommandStep) -> str:
    """What a command does, without what starts it; "" if this is not clear."""
    program, args = _program(step.words[0]), step.args
    if program in _INTERPRETERS:
        for place, word in enumerate(args[:-1]):
            if word == "-m":
                return " ".join([_program(args[place + 1]), *_leading(args[place + 2 :])])
            if word in _INLINE:
                found = _IMPORT.search(args[place + 1][:MAX_CODE_CHARS])
                return f"{program} -c {found[1]}" if found else ""
        script = next((place for place, word in enumerate(args) if word[:1] != "-"), len(args))
        if script < len(args) and args[script] == "run":
            script += 1
        if script < len(args) and _SCRIPT.fullmatch(args[script]):
            return " ".join([_base(args[script]), *_leading(args[script + 1 :], 1)])
    if _SCRIPT.fullmatch(_base(step.words[0])):
        return " ".join([_base(step.words[0]), *_leading(args, 1)])
    leading = _leading(args)
    is_script = program in _SCRIPT_RUNNERS and leading[:1] == ["run"] and len(leading) > 1
    return " ".join(leading if is_script else [program, *leading])


def _program(word: str) -> str:
    """The name of a program without its folder and version: `python` for `/usr/bin/python3.12`."""
    name = _base(word).lower().removesuffix(".exe")
    return name.rstrip("0123456789.") or name


def _base(word: str) -> str:
    return word.replace("\\", "/").rpartition("/")[2]


def _leading(args: Sequence[str], limit: int = 2) -> list[str]:
    """The plain words before the first option: sub-commands, as in `docker compose up`."""
    words: list[str] = []
    for word in args[:limit]:
        if not _WORD.fullmatch(word):
            break
        words.append(word)
    return words


def launcher_of(step: CommandStep) -> str:
    """The text of a command up to the program that does the job, which is named without its
    version."""
    words, program = step.text.split(), step.words[0]
    place = next((at for at, word in enumerate(words) if word.strip("'\"(") == program), -1)
    if place < 0:
        return step.text
    before = words[:place]
    name = program if "/" in program and _base(program) != program else _program(program)
    if _program(program) in _INTERPRETERS and "-m" in step.args:
        return " ".join([*before, name, "-m"])
    return " ".join([*before, name])


def _trial(
    event: SessionEvent, step: CommandStep, folder: str, failure: Failure | None = None
) -> Trial | None:
    core = core_of(step)
    job = job_of(core)
    if (
        not job[:1].isalpha()
        or asks_help(core)
        or step.piped
        or _ASKING & {core.words[0], *core.args[:2]}
    ):
        return None
    launcher, form = (_rooted(text, event.cwd) for text in (launcher_of(core), form_of(step)))
    if not can_be_said(launcher):
        return None
    return Trial(
        job=job,
        launcher=launcher,
        options=tuple(sorted({arg.partition("=")[0] for arg in core.args if arg[:1] == "-"})),
        form=form if can_be_said(form) else "",
        folder=folder,
        name=_base(folder),
        session=event.session,
        at=event.t,
        i=event.i,
        fault=str(failure.fault) if failure else "",
        message=failure.message if failure else "",
        signature=failure.signature if failure else "",
        speaker=failure.speaker if failure else "",
    )


def folder_of(event: SessionEvent) -> str:
    """The folder in which the last command of a script runs: absolute, unless the session's own is
    unknown. A drive letter is in lower case."""
    folder = event.cwd or ""
    for step in steps_of(command_of(event)):
        if step.program == "cd" and len(step.args) == 1:
            target = step.args[0].replace("\\", "/")
            folder = target if target[1:3] == ":/" else posixpath.join(folder, target)
    folder = posixpath.normpath(folder) if folder else ""
    return folder[:1].lower() + folder[1:] if folder[1:2] == ":" else folder


def _rooted(text: str, root: str | None) -> str:
    return text.replace(f"{root}/", "") if root else text


MAX_SHOWN_CHARS = 160
MAX_QUOTE_CHARS = 120
_RISKY = re.compile(
    r"--force\b|--no-verify|--hard\b|(?:^|\s)rm\s|--dangerously|(?:^|\s)sudo\s|"
    r"\b(?:task|p)?kill(?:all)?\b|-f\b"
)
_UNREPEATABLE = re.compile(
    r"/tmp/|/var/folders/|\$\(|`|/private/|[0-9a-f]{12,}|(?i:password|token|secret|api_?key|bearer)"
)
"""Parts of commands that are valid only in one session, or that must not be repeated (secrets)."""


def form_of(step: CommandStep) -> str:
    """The text of a command as it can be quoted. Code and long texts in it are left out."""
    text, words = step.text, step.text.split(" ")
    place = next((at for at, word in enumerate(words) if word in _INLINE), -1)
    if place > 0 and _program(step.words[0]) in _INTERPRETERS:
        return f"{' '.join(words[: place + 1])} {LEFT_OUT}"
    for word in step.args:
        if len(word) > MAX_WORD_CHARS and " " in word:
            text = text.replace(word, LEFT_OUT)
    return text


def can_be_said(text: str) -> bool:
    """Return whether a command can be quoted: it is short, on one line, and has no details of this
    session."""
    return (
        len(text) <= MAX_SHOWN_CHARS
        and "\n" not in text
        and "`" not in text
        and not _UNREPEATABLE.search(text)
    )


def is_risky(text: str) -> bool:
    """Return whether a command deletes, kills or forces something."""
    return bool(_RISKY.search(text))


def quoted(message: str) -> str:
    """Return an error message in quotation marks, cut if it is long."""
    words = message.strip().rstrip(".:").replace('"', "'").replace("`", "'")
    if len(words) > MAX_QUOTE_CHARS:
        words = words[:MAX_QUOTE_CHARS].rpartition(" ")[0] + " …"
    return f'"{words}"'
