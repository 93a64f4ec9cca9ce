"""Candidates from a repository's history: commits that say why, with the files they touched, so
that reading a file brings up why it is as it is."""

import re
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from upwell.capture.inbox import Proposal
from upwell.capture.rules import gives_reasons
from upwell.ground.errors import UsageError
from upwell.ground.project import repository_of

MAX_TEXT_CHARS = 600
MAX_PATHS = 8
MAX_TOUCHED = 25
MIN_SAID_CHARS = 40
SECONDS = 60
_SAFE = (
    *("-c", "core.fsmonitor=false", "-c", "core.pager=cat", "-c", "log.showSignature=false"),
    *("-c", "core.hooksPath=/dev/null", "-c", "protocol.allow=never", "--no-pager"),
)
"""A repository's own configuration can name programs: none of them is run."""
_ALONE = {"GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
"""Objects that are not there stay away: fetching them runs what the configuration names. Unlike
`protocol.allow` this outweighs what the repository allows itself."""
_LATEST = 4e9
"""No commit is from after 2096; its time is whatever its author wrote."""
_PLAIN = (
    *("--no-merges", "--no-ext-diff", "--no-textconv", "--no-show-signature"),
    *("--no-notes", "--no-color", "--encoding=UTF-8"),
)
_TRAILER = re.compile(r"^[A-Z][A-Za-z-]+(?:-by|-to)?: .*$|^\(?cherry picked from .*$", re.MULTILINE)
_DULL = re.compile(
    r"^(?:merge\b|bump\b|wip\b|fixup!|squash!|release\b|v?\d+\.\d+|"
    r"update (?:changelog|dependenc|lock)|chore\(deps|build\(deps|typo|format|lint\b)",
    re.IGNORECASE,
)
_LABEL = re.compile(r"^(?:fix|bug|hotfix|revert)\b", re.IGNORECASE)


def proposals_from(folder: Path, commits: int, environment: Mapping[str, str]) -> list[Proposal]:
    """What the last `commits` commits propose, oldest first; `environment` is the user's.

    Raises:
        UsageError: it is no repository, or git cannot read it.
    """
    root = repository_of(str(folder))
    if root is None:
        raise UsageError(f"{folder} lies in no git repository", hint="upwell learn git PATH")
    found = [one for entry in _log(root, commits, environment) if (one := _proposal(entry, root))]
    return found[::-1]


def _log(
    root: str, commits: int, environment: Mapping[str, str]
) -> Iterator[tuple[str, float, str, tuple[str, ...]]]:
    """Commit, time, message and touched files of each, newest first."""
    mark = secrets.token_hex(16)
    command = [
        *("git", *_SAFE, "-C", root, "log", f"-{commits}", *_PLAIN),
        *("--name-only", "-z", f"--format={mark}%H %ct %B{mark}", "--"),
    ]
    parts = _output(command, root, environment).split(mark)
    for said, rest in zip(parts[1::2], parts[2::2], strict=False):
        sha, at, message = said.split(" ", 2)
        files = tuple(name.strip("\n") for name in rest.split("\0") if name.strip("\n"))
        yield sha, min(float(at), _LATEST) if at.isdecimal() else 0.0, message, files


def _output(command: list[str], root: str, environment: Mapping[str, str]) -> str:
    """What git prints, alone with the repository's files.

    Raises:
        UsageError: it is not installed, or failed.
    """
    own = {name: value for name, value in environment.items() if not _leads_astray(name)}
    try:
        done = subprocess.run(
            command,
            env={**own, **_ALONE},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=True,
        )
    except FileNotFoundError as error:
        raise UsageError("git is not installed", hint="install it to learn from history") from error
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"git cannot read {root}: {error}", hint="try `git log` there") from error
    return done.stdout.decode("utf-8", "replace")


def _leads_astray(name: str) -> bool:
    """Would it have git read another repository, as it does in a hook, or start a program?"""
    return name.startswith("GIT_") and not name.startswith("GIT_CONFIG")


def _proposal(entry: tuple[str, float, str, tuple[str, ...]], root: str) -> Proposal | None:
    """A commit that says why; None for the others."""
    sha, at, message, files = entry
    subject, _, body = message.strip().partition("\n")
    said = " ".join(_TRAILER.sub("", body).split())
    whole = f"{subject.strip()}. {said}" if said else subject.strip()
    if _DULL.match(subject) or len(whole) < MIN_SAID_CHARS or not gives_reasons(whole):
        return None
    if len(files) > MAX_TOUCHED:
        files = ()
    return Proposal(
        text=whole if len(whole) <= MAX_TEXT_CHARS else whole[: MAX_TEXT_CHARS - 1] + "…",
        source=f"git:{sha[:12]}",
        why="a commit that says why",
        namespace="learnings" if _LABEL.match(subject) else "decisions",
        paths=files[:MAX_PATHS],
        project=root,
        at=at,
    )
