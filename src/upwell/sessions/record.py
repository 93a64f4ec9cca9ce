"""The record of a session: what was asked, which files changed, which checks ran with which result,
and the commits, branches, tickets and pull requests.

A record is derived from the turns, without a model. Each turn keeps its own part (`Facts`), so that
a session that goes on only adds to its record.
"""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from upwell.ground.secrets.redact import redact
from upwell.ground.text.anchors import relative_to
from upwell.sessions.commands import worth_repeating
from upwell.sessions.turns import Turn

MAX_CHANGED, MAX_CHECKS, MAX_LANDMARKS = 24, 8, 6
_CHECK = re.compile(
    r"(?:^|[\s:/._-])(?:tests?|check|lint|build|typecheck|type-check|tsc|pytest|mypy|ruff|clippy|"
    r"eslint|vitest|jest|verify|validate|deploy|publish|migrate|compile|e2e|spec)(?:$|[\s:/._-])"
)
"""A command that checks or ships the work, in contrast to one that looks around."""
_CHECK_WORDS = 4
"""Only the first words of a command say what it does, and of these only the first two may be a
script: later ones are the files that it works on."""


class Facts(Struct, frozen=True, omit_defaults=True):
    """A turn's part of the record. `changed` are paths relative to the project. `checks` maps each
    command that checks the work to whether its last run worked."""

    changed: tuple[str, ...] = ()
    checks: dict[str, bool] = msgspec.field(default_factory=dict)
    commits: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    tickets: tuple[str, ...] = ()
    pulls: tuple[str, ...] = ()


class RecordedRequest(Struct, frozen=True):
    """A turn of a record: the masked excerpts of its question and its conclusion."""

    number: int
    at: float
    question: str
    conclusion: str
    facts: Facts


class SessionRecord(Struct, frozen=True):
    """The record of the session `name`, which last did something at `ended` (epoch seconds)."""

    name: str
    host: str
    project: str
    ended: float
    requests: tuple[RecordedRequest, ...]

    @property
    def changed(self) -> tuple[str, ...]:
        """The changed files, those of the last turn first."""
        return _newest([request.facts.changed for request in self.requests])

    @property
    def red(self) -> tuple[str, ...]:
        """The checks that failed and did not work later, newest first."""
        last: dict[str, bool] = {}
        for request in self.requests:
            for check, worked in request.facts.checks.items():
                # A command line that worked is joined by `&&`: so did each command in it.
                for done in (check, *(part.strip() for part in check.split("&&") if worked)):
                    last.pop(done, None)
                last[check] = worked
        return tuple(check for check, worked in reversed(last.items()) if not worked)

    @property
    def commits(self) -> tuple[str, ...]:
        """The commits (hash and subject), newest first."""
        return _newest([request.facts.commits[::-1] for request in self.requests])

    @property
    def branches(self) -> tuple[str, ...]:
        """The branches that the session created or committed to, newest first."""
        return _newest([request.facts.branches[::-1] for request in self.requests])

    @property
    def is_discussion(self) -> bool:
        """True if the session changed, ran and committed nothing. What was said does not go out of
        date as work does."""
        return not any(
            each.facts.changed or each.facts.checks or each.facts.commits for each in self.requests
        )

    @property
    def tickets(self) -> tuple[str, ...]:
        """The tickets that the user or the agent named."""
        return _newest([request.facts.tickets for request in self.requests])

    @property
    def pulls(self) -> tuple[str, ...]:
        """The numbers of the pull requests."""
        return _newest([request.facts.pulls for request in self.requests])


def facts_of(turn: Turn, project: str | None) -> Facts:
    """The part of the record that a turn contributes, with secrets masked."""
    landmarks = turn.landmarks
    root = project or turn.cwd
    paths = (relative_to(path, root) for path in turn.changed if _is_inside(path, root))
    changed = dict.fromkeys(paths)
    return Facts(
        changed=_masked(list(changed)[:MAX_CHANGED]),
        checks=_checks(turn),
        commits=_masked(list(landmarks.commits)[-MAX_LANDMARKS:]),
        branches=_masked(list(landmarks.branches)[-MAX_LANDMARKS:]),
        tickets=tuple(landmarks.tickets)[:MAX_LANDMARKS],
        pulls=tuple(landmarks.pulls)[:MAX_LANDMARKS],
    )


def encoded(facts: Facts) -> bytes:
    """The facts as JSON."""
    return msgspec.json.encode(facts)


def decoded(value: bytes) -> Facts:
    """The facts that `encoded()` wrote."""
    return _DECODER.decode(value)


_DECODER = msgspec.json.Decoder(Facts)


def _is_inside(path: str, root: str | None) -> bool:
    """False for a file of another folder, such as a plan in the agent's own."""
    return root is None or not path.startswith(("/", "~")) or path.startswith(f"{root}/")


def _checks(turn: Turn) -> dict[str, bool]:
    checks: dict[str, bool] = {}
    for run in turn.runs:
        shown = worth_repeating(run.command)
        words = shown.split()[:_CHECK_WORDS]
        if _CHECK.search(" ".join([*words[:2], *(word for word in words[2:] if "/" not in word)])):
            checks.pop(shown, None)
            checks[shown] = run.worked
    return dict(list(checks.items())[-MAX_CHECKS:])


def _masked(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(redact(text)[0] for text in texts)


def _newest(groups: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for group in reversed(groups) for text in group))
