"""The commands of a session that are worth repeating."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from upwell.episodes.failures import asks_help, real_steps
from upwell.episodes.signatures import CommandStep, statuses, steps_of
from upwell.ground.secrets.redact import has_secret
from upwell.ground.text.tokens import count
from upwell.sessions.turns import Run

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
    if has_secret(steps[0].text) or not _is_told(steps[0], command):
        return ""
    return steps[0].text


def _is_told(step: CommandStep, command: str) -> bool:
    """True unless the status of the step is lost: `make || true`, `make; echo done`, `make &`."""
    named = [told for text, told in statuses(command) if step.words[0] in text.split()]
    return bool(named) and all(named)


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
