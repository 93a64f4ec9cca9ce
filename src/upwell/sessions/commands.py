"""The commands of a session that are worth repeating."""

from collections.abc import Iterable

from upwell.episodes.failures import real_steps
from upwell.episodes.signatures import Step
from upwell.ground.secrets.redact import has_secret
from upwell.sessions.turns import Run

MAX_SHOWN_CHARS = 160
_PLAIN = frozenset(
    "cat head tail less more ls tree find fd grep rg ag sed awk wc sort uniq diff stat file which "
    "mkdir rm rmdir cp mv touch ln chmod chown pwd date whoami env ps kill pkill open xdg-open "
    "cd echo printf export sleep true test jq tee xargs source for while if read".split()
)
"""Programs that every agent calls without help."""
_GIT = frozenset(
    "add status diff log show commit push pull fetch branch checkout switch stash restore merge "
    "rev-parse rebase reset clone remote tag blame ls-files config worktree mv rm init".split()
)
_INLINE = frozenset({"-c", "-e", "-p", "--eval", "-"})
"""Options by which an interpreter takes a program that is written for the occasion."""


def notable(runs: Iterable[Run]) -> list[Run]:
    """The commands that are more than what every agent knows, each once: as it ran last, the latest
    first. A command that worked after it had failed counts as one that worked."""
    latest: dict[str, Run] = {}
    for run in runs:
        if shown := worth_repeating(run.command):
            latest.pop(shown, None)
            latest[shown] = Run(shown, run.worked)
    return list(latest.values())[::-1]


def worth_repeating(command: str) -> str:
    """The command without what surrounds its work; "" for one that nobody needs to be told."""
    steps = [step for step in real_steps(command) if _is_notable(step)]
    if len(steps) != 1 or "\n" in steps[0].text or len(steps[0].text) > MAX_SHOWN_CHARS:
        return ""
    return "" if has_secret(steps[0].text) else steps[0].text


def _is_notable(step: Step) -> bool:
    if step.program in _PLAIN or len(step.words) < 2 or _INLINE & set(step.args):
        return False
    return step.program != "git" or not step.verbs or step.verbs[0] not in _GIT
