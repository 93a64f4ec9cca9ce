"""Proposals from a repository's history: commits that give a reason, with the files that they
touched.
"""

import re
import secrets
import subprocess
import tempfile
from codecs import iterdecode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from threading import Timer

from msgspec import Struct

from upwell.capture.inbox import WHY_COMMIT, Proposal
from upwell.ground.errors import UsageError
from upwell.ground.project import main_worktree_of, repository_of
from upwell.ground.secrets.redact import redact
from upwell.ground.text.words import counted

MAX_TEXT_CHARS = 600
MAX_PATHS = 8
MAX_TOUCHED = 25
MIN_MESSAGE_CHARS = 40
MAX_SINCE = 50
TIMEOUT_SECONDS = 600
CHUNK_BYTES = 65_536
MAX_ERROR_BYTES = 500
SHOWN_EVERY = 200
MAX_ALONE = 20
"""If git cannot list the files of more commits than this, the rest is read without files at once,
because each such commit costs two runs of git."""
UNKNOWN = 2**31 - 1
"""Stands for the number of commits if git cannot count them."""
_SAFE_OPTIONS = (
    *("-c", "core.fsmonitor=false", "-c", "core.pager=cat", "-c", "log.showSignature=false"),
    *("-c", "core.hooksPath=/dev/null", "-c", "protocol.allow=never", "--no-pager"),
)
"""Options that keep git from running programs that the repository's own configuration names."""
_SAFE_ENVIRONMENT = {"GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
"""Variables that keep git from fetching missing objects, because a fetch would run programs that
the repository's configuration names. The option `protocol.allow` is not enough, because that
configuration can override it."""
_LATEST = 4e9
"""Commit times are capped at this time (in 2096), because a commit can claim any time."""
_PLAIN = (
    *("--no-merges", "--no-ext-diff", "--no-textconv", "--no-show-signature"),
    *("--no-notes", "--no-color", "--encoding=UTF-8"),
)
_TRAILER = re.compile(r"^[A-Z][A-Za-z-]+(?:-by|-to)?: .*$|^\(?cherry picked from .*$", re.MULTILINE)
_REASON = re.compile(
    r"\b(?:because|so that|since|instead of|otherwise|to avoid|avoids?|prevents?|must|never|"
    r"workaround|work around|regression|root cause|race|deadlock|breaks?|broke|revert|too slow|"
    r"compatib\w+|security|fails? (?:when|if|on)|on purpose|deliberately|decided|due to|"
    r"hence|therefore|which is why|that is why|as a result)\b|"
    r"[,;] (?:and )?so (?!far\b|on\b|forth\b|long\b|what\b|please\b)\w+(?: \w+){2}",
    re.IGNORECASE,
)
_DULL = re.compile(
    r"^(?:merge\b|bump\b|wip\b|fixup!|squash!|release\b|v?\d+\.\d+|"
    r"update (?:changelog|dependenc|lock)|chore\(deps|build\(deps|typo|format|lint\b)",
    re.IGNORECASE,
)
"""Matches the subject of a commit that is not worth remembering."""
_CLEAR_REASON = re.compile(
    r"\b(?:because|so that|since|instead of|otherwise|to avoid|prevent(?:s|ed)?|due to|root cause|"
    r"on purpose|deliberately|decided|therefore|hence|as a result|which is why|that is why|caused?)"
    r"\b|, so (?:that|the|it|we|they|a|an)\b",
    re.IGNORECASE,
)
"""Words that give a reason for certain. `_REASON` also matches words that often do."""
_CHORE = re.compile(r"^(?:style|chore|docs?|tests?|ci|build|format|lint)\b", re.IGNORECASE)
_ITEM = re.compile(r"(?:^|\s)[-*•] ")
_LABEL = re.compile(r"^(?:fix|bug|hotfix|revert)\b", re.IGNORECASE)
"""Matches the subject of a commit that corrects a mistake. Such a commit becomes a learning instead
of a decision."""


type Commit = tuple[str, float, str, tuple[str, ...]]
"""Hash, time, message and touched files."""


class HistoryGap(Struct):
    """What git could not read of a history, because objects are missing. `fault` is git's message,
    or "" if it read everything. `bare` commits were read without their files."""

    fault: str = ""
    bare: int = 0
    is_shallow: bool = False

    @property
    def is_open(self) -> bool:
        return self.is_shallow or bool(self.fault)

    def in_words(self, read: int) -> str:
        """The gap on one line, if `read` commits were read; "" if there is none."""
        if self.fault:
            bare = f", {self.bare:,} of them without files" if self.bare else ""
            return f"objects are missing; read {counted(read, 'commit')}{bare} ({self.fault})"
        return "this clone is shallow: older commits are missing" if self.is_shallow else ""


class HistoryReading(Struct, frozen=True, kw_only=True):
    """The proposals from a repository, oldest first. Of its `total` commits, the latest `read` were
    read. Merge commits are not counted. `redacted` contains the names of the rules that masked a
    secret. `gap` says on one line what could not be read."""

    proposals: list[Proposal]
    read: int
    total: int
    redacted: tuple[str, ...] = ()
    gap: str = ""


def proposals_from(
    folder: Path,
    commits: int | None,
    environment: Mapping[str, str],
    *,
    since: float = 0.0,
    show: Callable[[int, int], None] = lambda done, total: None,
) -> HistoryReading:
    """Read proposals from the last `commits` commits (None for all). Commits before the time
    `since` (in seconds since the epoch) are left out. `show` receives the number of commits read
    and the number to read. Raises UsageError if the folder is not in a repository, or git cannot
    read any of its commits."""
    root = repository_of(str(folder))
    if root is None:
        raise UsageError(f"{folder} is in no git repository", hint="upwell learn git PATH")
    number = _asked(root, environment, "rev-list", "--count", "--no-merges", "HEAD")
    total = UNKNOWN  # One of the commits is missing.
    if number is not None:
        total = int(number) if number.isdecimal() else 0
    total_to_read = total if commits is None else min(commits, total)
    proposals, read = [], 0
    redacted: dict[str, None] = {}
    gap = HistoryGap(is_shallow=_is_shallow(root, environment))
    for entry in _log(root, total_to_read, since, environment, gap=gap):
        read += 1
        if read % SHOWN_EVERY == 0:
            show(read, total_to_read)
        masked, rules = _masked(entry)
        if proposal := _proposal(masked, root):
            proposals.append(proposal)
            redacted |= dict.fromkeys(rules)
    return HistoryReading(
        proposals=proposals[::-1],
        read=read,
        total=read if total == UNKNOWN else total,
        redacted=tuple(redacted),
        gap=gap.in_words(read),
    )


def proposals_of(
    root: str, commits: int, environment: Mapping[str, str]
) -> tuple[list[Proposal], bool]:
    """Read proposals from the last `commits` commits of the repository at `root`, which may be
    bare. The second value says whether the history is complete. Raises UsageError if git cannot
    read any of the commits."""
    gap = HistoryGap(is_shallow=_is_shallow(root, environment))
    log = _log(root, commits, 0.0, environment, gap=gap)
    proposals = [proposal for entry in log if (proposal := _proposal(_masked(entry)[0], root))]
    return proposals[::-1], not gap.is_open


def commits_since(
    root: str, paths: Sequence[str], at: float, environment: Mapping[str, str]
) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the latest commits after the time `at` that touched one of `paths`, newest first. For
    each commit, return its hash, its subject, and the files in `paths` that it touched. Returns an
    empty list if git fails.
    """
    try:
        log = list(_log(root, MAX_SINCE, at, environment, paths))
    except UsageError:
        return []
    return [(sha, message.strip().partition("\n")[0], files) for sha, _, message, files in log]


def _is_shallow(root: str, environment: Mapping[str, str]) -> bool:
    return _asked(root, environment, "rev-parse", "--is-shallow-repository") == "true"


def _asked(root: str, environment: Mapping[str, str], *words: str) -> str | None:
    """What git answers to a short question; None if it fails."""
    command = ["git", *_SAFE_OPTIONS, "-C", root, *words]
    try:
        return "".join(_output(command, root, environment)).strip()
    except UsageError:
        return None


def _log(
    root: str,
    commits: int,
    since: float,
    environment: Mapping[str, str],
    paths: Sequence[str] = (),
    gap: HistoryGap | None = None,
) -> Iterator[Commit]:
    """Yield the latest commits. If objects are missing, the files of renamed files are listed under
    both names, and a commit whose files git cannot list is read without them. Raises UsageError if
    git cannot read any commit."""
    gap = gap or HistoryGap()
    form, read, left_alone = _Form.NAMES, 0, 0
    while read < commits:
        is_alone = form is _Form.BARE and left_alone <= MAX_ALONE
        start, limit = read, 1 if is_alone else commits - read
        try:
            for commit in _commits(root, (read, limit), form, since, environment, paths):
                read += 1
                gap.bare += form is _Form.BARE
                yield commit
            if not is_alone or read == start:
                return
            form = _Form.BOTH_NAMES
        except UsageError as error:
            gap.fault = gap.fault or error.message
            if form is _Form.BARE:
                if read == 0:
                    raise
                return
            form = _Form.BARE if form is _Form.BOTH_NAMES else _Form.BOTH_NAMES
            left_alone += form is _Form.BARE


class _Form(Enum):
    """The options by which git lists the files of a commit. It needs the content of renamed files
    to find their new names, the folders of both commits to list files, and neither for the rest."""

    NAMES = ("--name-only",)
    BOTH_NAMES = ("--name-only", "--no-renames")
    BARE = ("--no-patch",)


def _commits(
    root: str,
    span: tuple[int, int],
    form: _Form,
    since: float,
    environment: Mapping[str, str],
    paths: Sequence[str],
) -> Iterator[Commit]:
    """Yield the commits of a span: how many are skipped, and how many follow at most."""
    mark = secrets.token_hex(16)
    command = [
        *("git", *_SAFE_OPTIONS, "-C", root, "log", f"-{span[1]}", f"--skip={span[0]}", *_PLAIN),
        *([f"--max-age={since:.0f}"] if since else []),
        *(*form.value, "-z", f"--format={mark}%H %ct %B{mark}", "--", *paths),
    ]
    parts = _parts(_output(command, root, environment), mark)
    next(parts, "")
    for head, names in zip(parts, parts, strict=False):
        sha, seconds, message = head.split(" ", 2)
        files = tuple(name.strip("\n") for name in names.split("\0") if name.strip("\n"))
        yield sha, min(float(seconds), _LATEST) if seconds.isdecimal() else 0.0, message, files


def _parts(chunks: Iterable[str], mark: str) -> Iterator[str]:
    rest = ""
    try:
        for chunk in chunks:
            *parts, rest = (rest + chunk).split(mark)
            yield from parts
    except UsageError:
        # The last commit before a missing object is complete.
        yield rest
        raise
    yield rest


def _output(command: list[str], root: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the output of git as it arrives. Raises UsageError if git is not installed, failed, or
    took too long."""
    # Variables such as `GIT_DIR` in a hook could make git run a program or read another
    # repository.
    inherited = {
        name: value
        for name, value in environment.items()
        if not name.startswith("GIT_") or name.startswith("GIT_CONFIG")
    }
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command,
                env={**inherited, **_SAFE_ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        except FileNotFoundError as error:
            raise UsageError(
                "git is not installed", hint="install it to learn from history"
            ) from error
        assert process.stdout is not None
        timer = Timer(TIMEOUT_SECONDS, process.kill)
        timer.start()
        try:
            chunks = iter(partial(process.stdout.read, CHUNK_BYTES), b"")
            yield from iterdecode(chunks, "utf-8", "replace")
            if status := process.wait():
                errors.seek(0)
                fault = errors.read(MAX_ERROR_BYTES).decode("utf-8", "replace")
                raise UsageError(
                    f"git cannot read {root}: {' '.join(fault.split()) or f'status {status}'}",
                    hint="try `git log` there",
                )
        finally:
            timer.cancel()
            process.kill()
            process.wait()
            process.stdout.close()


def _masked(entry: Commit) -> tuple[Commit, tuple[str, ...]]:
    """Mask the secrets in a commit's message. This must happen before the message is truncated,
    because half a secret would not be recognised."""
    sha, seconds, message, files = entry
    masked, rules = redact(message.strip())
    return (sha, seconds, masked, files), rules


def _proposal(entry: Commit, root: str) -> Proposal | None:
    sha, seconds, message, files = entry
    subject, _, body = message.partition("\n")
    details = " ".join(_TRAILER.sub("", body).split())
    text = f"{subject.strip()}. {details}" if details else subject.strip()
    if _DULL.match(subject) or len(text) < MIN_MESSAGE_CHARS or not gives_reasons(text):
        return None
    if len(files) > MAX_TOUCHED:
        files = ()
    return Proposal(
        text=text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…",
        source=f"git:{sha[:12]}",
        why=WHY_COMMIT,
        namespace="learnings" if _LABEL.match(subject) else "decisions",
        paths=files[:MAX_PATHS],
        project=main_worktree_of(root) or root,
        at=seconds,
    )


def worthiest(proposals: Sequence[Proposal], most: int) -> list[Proposal]:
    """Return at most `most` proposals, whose commits say best why, oldest first. Of commits that
    give as many reasons, the later are preferred."""
    reasons = {place: _reasons(proposal.text) for place, proposal in enumerate(proposals)}
    order = sorted(filter(reasons.__getitem__, reasons), key=lambda place: (reasons[place], place))
    return [proposals[place] for place in sorted(order[-most:])]


def _reasons(text: str) -> int:
    """Return how many different reasons stand in a message's sentences. The items of a list say
    what was done. Labels such as `style:` mark work without a decision."""
    if _CHORE.match(text):
        return 0
    prose = _ITEM.split(text)[0]
    return len({match[0].lower() for match in _CLEAR_REASON.finditer(prose)})


def gives_reasons(text: str) -> bool:
    """Return whether the text gives a reason."""
    return bool(_REASON.search(text))
