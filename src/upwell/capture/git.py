"""Proposals from a repository's history: commits that give a reason, with the files that they
touch, so that an agent that reads a file learns the reason for its present form."""

import re
import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from upwell.capture.inbox import Proposal
from upwell.capture.rules import gives_reasons
from upwell.ground.errors import UsageError
from upwell.ground.project import repository_of
from upwell.ground.secrets.redact import redact

MAX_TEXT_CHARS = 600
MAX_PATHS = 8
MAX_TOUCHED = 25
MIN_MESSAGE_CHARS = 40
MAX_SINCE = 50
TIMEOUT_SECONDS = 60
_SAFE_OPTIONS = (
    *("-c", "core.fsmonitor=false", "-c", "core.pager=cat", "-c", "log.showSignature=false"),
    *("-c", "core.hooksPath=/dev/null", "-c", "protocol.allow=never", "--no-pager"),
)
"""A repository's own configuration can name programs. These options keep git from running them."""
_SAFE_ENVIRONMENT = {"GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
"""Missing objects are not fetched, since that runs programs of the configuration. Unlike
`protocol.allow`, the variables override the repository's own settings."""
_LATEST = 4e9
"""In 2096. A commit's time is whatever its author wrote."""
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
    """Proposals from the last `commits` commits, oldest first; `environment` is the user's.

    Raises:
        UsageError: the folder is in no repository, or git cannot read it.
    """
    root = repository_of(str(folder))
    if root is None:
        raise UsageError(f"{folder} is in no git repository", hint="upwell learn git PATH")
    return proposals_of(root, commits, environment)


def proposals_of(root: str, commits: int, environment: Mapping[str, str]) -> list[Proposal]:
    """The same for the repository at `root`, which may be bare.

    Raises:
        UsageError: git cannot read it.
    """
    log = _log(root, commits, environment)
    return [proposal for entry in log if (proposal := _proposal(entry, root))][::-1]


def commits_since(
    root: str, paths: Sequence[str], at: float, environment: Mapping[str, str]
) -> list[tuple[str, str, tuple[str, ...]]]:
    """Hash, subject and files of the last commits that touched one of `paths` after the time `at`,
    newest first; none where git cannot tell."""
    try:
        log = _log(root, MAX_SINCE, environment, f"--since=@{at:.0f}", paths=paths)
        return [(sha, message.strip().partition("\n")[0], files) for sha, _, message, files in log]
    except UsageError:
        return []


def _log(
    root: str,
    commits: int,
    environment: Mapping[str, str],
    *limits: str,
    paths: Sequence[str] = (),
) -> Iterator[tuple[str, float, str, tuple[str, ...]]]:
    """Hash, time, message and touched files of each commit, newest first."""
    mark = secrets.token_hex(16)
    command = [
        *("git", *_SAFE_OPTIONS, "-C", root, "log", f"-{commits}", *limits, *_PLAIN),
        *("--name-only", "-z", f"--format={mark}%H %ct %B{mark}", "--", *paths),
    ]
    parts = _output(command, root, environment).split(mark)
    for head, names in zip(parts[1::2], parts[2::2], strict=False):
        sha, seconds, message = head.split(" ", 2)
        files = tuple(name.strip("\n") for name in names.split("\0") if name.strip("\n"))
        yield sha, min(float(seconds), _LATEST) if seconds.isdecimal() else 0.0, message, files


def _output(command: list[str], root: str, environment: Mapping[str, str]) -> str:
    """The output of git, which runs with nothing but the repository's files.

    Raises:
        UsageError: git is not installed, or failed.
    """
    inherited = {name: value for name, value in environment.items() if not _redirects_git(name)}
    try:
        process = subprocess.run(
            command,
            env={**inherited, **_SAFE_ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=True,
        )
    except FileNotFoundError as error:
        raise UsageError("git is not installed", hint="install it to learn from history") from error
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"git cannot read {root}: {error}", hint="try `git log` there") from error
    return process.stdout.decode("utf-8", "replace")


def _redirects_git(name: str) -> bool:
    """Does the variable make git read another repository (as in a git hook) or run a program?"""
    return name.startswith("GIT_") and not name.startswith("GIT_CONFIG")


def _proposal(entry: tuple[str, float, str, tuple[str, ...]], root: str) -> Proposal | None:
    """The proposal of a commit that gives a reason, None for any other."""
    sha, seconds, message, files = entry
    subject, _, body = redact(message.strip())[0].partition("\n")
    details = " ".join(_TRAILER.sub("", body).split())
    text = f"{subject.strip()}. {details}" if details else subject.strip()
    if _DULL.match(subject) or len(text) < MIN_MESSAGE_CHARS or not gives_reasons(text):
        return None
    if len(files) > MAX_TOUCHED:
        files = ()
    return Proposal(
        text=text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…",
        source=f"git:{sha[:12]}",
        why="a commit that says why",
        namespace="learnings" if _LABEL.match(subject) else "decisions",
        paths=files[:MAX_PATHS],
        project=root,
        at=seconds,
    )
