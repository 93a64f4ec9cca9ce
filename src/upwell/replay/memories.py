"""The memories that existed at a given time. Notes and commits are selected by their dates, and
documents are read in their state at that time, from the repository, object by object. They are
written to a `Checkout`, and `PathRelocation` moves the paths in the events of sessions there.

Nothing that the repository configures is run: `cat-file` and `ls-tree` apply neither filters nor
textconv, and settings that name programs are overridden. Missing objects are not fetched, so a
shallow, partial or damaged clone is read as far as it goes.
"""

import os
import re
import shutil
import subprocess
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from upwell.episodes.events import ROOT, SessionEvent
from upwell.ground.errors import UsageError
from upwell.ground.project import link_into, real_folder, repository_of
from upwell.ground.trace import LOG
from upwell.ground.types.memory import Memory

SECONDS = 120
MAX_FILE_BYTES = 1_000_000
"""Larger files count as empty."""
MAX_RESTARTS = 50
"""git is started again this often at most after an object that it cannot read."""
_SAFE = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat"),
    *("-c", "protocol.allow=never", "-c", "core.quotePath=false", "-c", "log.showSignature=false"),
    "--no-pager",
    "--no-optional-locks",
)
_ALONE = {
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
}
_REGULAR = ("100644", "100755")


class Repository:
    """The repository around `folder`, which may itself be a bare repository. `is_incomplete` is
    True if the clone is shallow, or if objects were missing in what was read so far.

    Raises:
        UsageError: git is not installed, or there is no repository with commits around `folder`.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        clean_environment = {
            name: value for name, value in environment.items() if not name.startswith("GIT_")
        }
        self._environment = {**clean_environment, **_ALONE}
        self._folder = str(folder)
        bare = self._run("rev-parse", "--is-bare-repository").strip() == b"true"
        shown = (
            folder if bare else Path(os.fsdecode(self._run("rev-parse", "--show-toplevel")[:-1]))
        )
        self.root = real_folder(str(shown))
        self.is_incomplete = self._run("rev-parse", "--is-shallow-repository").strip() == b"true"
        self._commits = self._main_line()

    def commit_at(self, at: float) -> str | None:
        """The newest commit on the main line at the time `at`, or None if there was none yet."""
        index = bisect_right(self._commits, at, key=lambda commit: commit[0])
        return self._commits[index - 1][1] if index else None

    def changed(self, old: str | None, new: str) -> tuple[dict[str, str], list[str]]:
        """The objects of the files that are new or changed between two commits, and the removed
        paths. Links and submodules are left out.

        Raises:
            UsageError: the folders of a commit are missing.
        """
        if old is None:
            return self._tree(new), []
        raw = self._run("diff-tree", "-r", "-z", "--no-renames", "--no-ext-diff", old, new)
        parts = os.fsdecode(raw).split("\0")
        changed: dict[str, str] = {}
        removed: list[str] = []
        for described, path in zip(parts[::2], parts[1::2], strict=False):
            _, mode, _, name, _ = described.split(" ")
            if mode in _REGULAR:
                changed[path] = name
            else:
                removed.append(path)
        return changed, removed

    def blobs(self, objects: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
        """The content of each object, keyed by path. Missing objects are left out, and those larger
        than `MAX_FILE_BYTES` are empty."""
        left = list(objects.items())
        for _ in range(MAX_RESTARTS):
            answered = 0
            for path, content in self._batch(left):
                answered += 1
                if content is None:
                    self.is_incomplete = True
                else:
                    yield path, content
            if answered == len(left):
                return
            # git ends at an object that is damaged.
            self.is_incomplete = True
            left = left[answered + 1 :]

    def _batch(self, objects: Sequence[tuple[str, str]]) -> Iterator[tuple[str, bytes | None]]:
        """The content of each object, or None if it is missing, until git ends."""
        command = ["git", *_SAFE, "-C", self._folder, "cat-file", "--batch"]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
        ) as git:
            assert git.stdin is not None
            assert git.stdout is not None
            for path, name in objects:
                try:
                    git.stdin.write(name.encode() + b"\n")
                    git.stdin.flush()
                except BrokenPipeError:
                    return
                header = git.stdout.readline().split()
                if not header:
                    return
                if len(header) < len(("name", "type", "size")):
                    yield path, None
                    continue
                size = int(header[2])
                content = git.stdout.read(size)
                if len(content) < size:
                    return
                git.stdout.read(1)
                yield path, content if size <= MAX_FILE_BYTES else b""
            git.stdin.close()

    def times(self, old: str | None, new: str) -> dict[str, float]:
        """The time of each file's last change between two commits, in seconds since the epoch, as
        far as git can read them."""
        span = f"{old}..{new}" if old else new
        raw = self._run_in_part(
            *("log", "--format=%x00@%ct", "--name-only", "--no-renames", "--no-merges"),
            *("--no-ext-diff", "--no-textconv", "-z", span, "--"),
        )
        times: dict[str, float] = {}
        at = 0.0
        for part in os.fsdecode(raw).split("\0"):
            name = part.lstrip("\n")
            if name.startswith("@") and name[1:].isdecimal():
                at = float(name[1:])
            elif name:
                times.setdefault(name, at)
        return times

    def _tree(self, commit: str) -> dict[str, str]:
        entries = os.fsdecode(self._run("ls-tree", "-r", "-z", commit)).split("\0")
        objects: dict[str, str] = {}
        for entry in filter(None, entries):
            described, path = entry.split("\t", 1)
            mode, _, name = described.split(" ")
            if mode in _REGULAR:
                objects[path] = name
        return objects

    def _main_line(self) -> list[tuple[float, str]]:
        """The times and names of the commits on the line of first parents, oldest first. A commit
        dated before its predecessor gets the predecessor's time."""
        rows = self._run_in_part("log", "--first-parent", "--format=%ct %H", "--")
        commits = [row.split(" ") for row in reversed(rows.decode().splitlines())]
        times = accumulate((float(at) for at, _ in commits), max)
        return list(zip(times, (name for _, name in commits), strict=True))

    def _run_in_part(self, *args: str) -> bytes:
        """The output of git, even if it ends at an object that is missing. An error without any
        output is raised like those of `_run()`."""
        try:
            return self._run(*args)
        except UsageError as error:
            cause = error.__cause__
            if not isinstance(cause, subprocess.CalledProcessError) or not cause.stdout:
                raise
            self.is_incomplete = True
            return bytes(cause.stdout)

    def _run(self, *args: str) -> bytes:
        try:
            done = subprocess.run(
                ["git", *_SAFE, "-C", self._folder, *args],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SECONDS,
                check=True,
            )
        except FileNotFoundError as error:
            raise UsageError("git is not installed", hint="replay without --repo") from error
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise UsageError(
                f"git cannot read {self._folder}", hint="--repo takes a git repository"
            ) from error
        return done.stdout


class With(StrEnum):
    """The kinds of memory for `--with`."""

    MEMORY = "memory"
    GIT = "git"
    DOCS = "docs"
    LEARNED = "learned"


class Arrivals:
    """Memories sorted by date. Those without a date come first."""

    def __init__(self, memories: Iterable[Memory] = ()) -> None:
        self._memories = sorted(memories, key=_date_of)
        self._dates = [_date_of(memory) for memory in self._memories]
        self._returned = 0

    def until(self, at: float) -> Sequence[Memory]:
        """The memories dated up to `at` that have not been returned before."""
        first, self._returned = self._returned, max(self._returned, bisect_right(self._dates, at))
        return self._memories[first : self._returned]

    @property
    def left(self) -> int:
        """The number of memories that have not been returned yet."""
        return len(self._memories) - self._returned


class Checkout:
    """A repository's files in an earlier state, in a folder of upwell's own."""

    def __init__(self, repository: Repository, folder: Path) -> None:
        self._repository = repository
        self._folder = folder
        self._commit: str | None = None
        self._unreadable = ""
        self.files: set[str] = set()
        (folder / ".git").mkdir(parents=True)

    def move(self, at: float) -> bool:
        """Update the files to their state at the time `at`. Returns whether the commit changed. If
        git cannot read the commit's folders, the files stay as they are."""
        commit = self._repository.commit_at(at)
        if commit is None or commit in (self._commit, self._unreadable):
            return False
        try:
            changed, removed = self._repository.changed(self._commit, commit)
        except UsageError:
            self._unreadable, self._repository.is_incomplete = commit, True
            return False
        try:
            times = self._repository.times(self._commit, commit)
        except UsageError:
            times, self._repository.is_incomplete = {}, True
        for path in removed:
            self.files.discard(path)
            (self._folder / path).unlink(missing_ok=True)
        for path, content in self._repository.blobs(changed):
            self._write(path, content, times.get(path, at))
        self._commit = commit
        return True

    def _write(self, path: str, content: bytes, changed_at: float) -> None:
        """Write a file, unless its path leads outside the folder or into `.git`."""
        parts = path.split("/")
        if ".." in parts or ".git" in parts or "" in parts:
            return
        target = self._folder / path
        try:
            if target.parent.is_file():
                target.parent.unlink()
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir():
                shutil.rmtree(target)
            target.write_bytes(content)
        except OSError as error:
            # git can store file names that this system does not allow.
            LOG.debug("a file of a commit is left out: %s", error)
            return
        os.utime(target, (changed_at, changed_at))
        self.files.add(path)


class Project(Struct):
    """A repository, its checkout in `folder`, and its commits as memories."""

    repository: Repository
    checkout: Checkout
    folder: str
    commits: Arrivals


class ReplayProjects:
    """The repositories of the sessions. If `named` (`--repo`) is given, all sessions belong to it.
    Otherwise a session belongs to the repository around its folder, if this repository still
    exists."""

    def __init__(
        self, scratch: Path, environment: Mapping[str, str], named: Path | None = None
    ) -> None:
        self._scratch = scratch
        self._environment = environment
        self._named = Repository(named, environment) if named else None
        self._known: dict[str, Project | None] = {}

    def root_of(self, cwd: str | None) -> str | None:
        """The root of the repository for a session in the folder `cwd`."""
        if self._named is not None:
            return self._named.root
        return repository_of(cwd) if cwd else None

    def knows(self, root: str) -> bool:
        """True if an earlier session belonged to this repository."""
        return root in self._known

    def at(self, root: str) -> Project | None:
        """The project with this root; None if git cannot read the repository."""
        if root in self._known:
            return self._known[root]
        project = None
        try:
            repository = self._named or Repository(Path(root), self._environment)
            folder = self.folder_of(root)
            checkout = Checkout(repository, Path(folder))
            project = Project(repository, checkout, folder, Arrivals())
        except UsageError as error:
            LOG.warning("%s is replayed without its history: %s", root, error)
        self._known[root] = project
        return project

    def incomplete(self) -> list[str]:
        """The roots of the repositories that lack objects."""
        known = self._known.items()
        return [root for root, project in known if project and project.repository.is_incomplete]

    def folder_of(self, root: str) -> str:
        """The folder of a repository's checkout. Its path below the scratch folder is the same in
        every run."""
        name = Path(root).name or "repository"
        return str(self._scratch / sha256(root.encode()).hexdigest()[:6] / name)

    def moved(self, memory: Memory) -> Memory:
        """The memory with its paths changed from the repository to the checkout."""
        if memory.project is None or self.root_of(memory.project) != memory.project:
            return memory
        folder = self.folder_of(memory.project)
        root_prefix = f"{memory.project}/"
        paths = tuple(
            f"{folder}/{path.removeprefix(root_prefix)}" if path.startswith(root_prefix) else path
            for path in memory.paths
        )
        return replace(memory, project=folder, paths=paths)

    def shown(self, text: str) -> str:
        """`text` with the folder of each checkout replaced by that of its repository."""
        for root, project in self._known.items():
            if project is not None:
                text = text.replace(project.folder, root)
        return text


_AFTER_ROOT = r"""(?=[/\s"'`:,;)\]}]|$)"""
_MIN_PARTS = 2
"""If at least this many of a path's last parts name a file in the repository, the parts before them
count as the repository's folder. One is not enough, because every repository has a README.md.
"""
_MAX_ROOTS = 8


class PathRelocation:
    """Moves the paths in a session's events into the checkout.

    The session may have run on another machine. The repository's location there is inferred from
    the session's folder, and from paths whose last parts name a file in the repository.
    """

    def __init__(self, project: Project, cwd: str | None) -> None:
        self._project = project
        self._roots: list[str] = [ROOT, project.repository.root]
        if cwd is not None and not self._inside(cwd):
            link = link_into(project.repository.root, cwd) or ("", "")
            is_root = link[1] == project.repository.root
            self._learn(link[0] if is_root else self._root_above(cwd))
        self._pattern = self._compiled()

    @property
    def folder(self) -> str:
        """The folder of the checkout."""
        return self._project.folder

    def cwd(self, cwd: str | None) -> str:
        """The folder in the checkout that corresponds to `cwd`. For a folder outside the
        repository, the checkout itself."""
        moved = self._text(cwd) if cwd else ""
        return moved if moved.startswith(self._project.folder) else self._project.folder

    def event(self, event: SessionEvent) -> SessionEvent:
        """The event with its paths moved into the checkout."""
        values = (event.args.get(name) for name in ("file_path", "path", "notebook_path"))
        for path in values:
            if not isinstance(path, str) or not path.startswith("/") or self._inside(path):
                continue
            if root := self._root_before(path):
                self._learn(root)
        return replace(
            event,
            text=self._text(event.text),
            args=self._value(event.args),
            out=self._text(event.out),
            cwd=self.cwd(event.cwd),
        )

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self._value(item) for item in value]
        if isinstance(value, Mapping):
            return {name: self._value(item) for name, item in value.items()}
        return value

    def _text(self, text: str) -> str:
        if not any(root in text for root in self._roots):
            return text
        return self._pattern.sub(lambda _: self._project.folder, text)

    def _compiled(self) -> re.Pattern[str]:
        longest = sorted(self._roots, key=len, reverse=True)
        return re.compile(f"(?:{'|'.join(map(re.escape, longest))}){_AFTER_ROOT}")

    def _learn(self, root: str) -> None:
        if root.count("/") >= _MIN_PARTS and len(self._roots) < _MAX_ROOTS:
            self._roots.append(root)
            self._pattern = self._compiled()

    def _inside(self, path: str) -> bool:
        return any(path == root or path.startswith(f"{root}/") for root in self._roots)

    def _root_above(self, cwd: str) -> str:
        """`cwd` without its last parts, if these name a folder in the repository."""
        files = self._project.checkout.files
        folders = {
            "/".join(file.split("/")[:n]) for file in files for n in range(1, file.count("/") + 1)
        }
        parts = cwd.rstrip("/").split("/")
        for length in range(_MIN_PARTS + 1, len(parts)):
            if "/".join(parts[length:]) in folders:
                return "/".join(parts[:length])
        return cwd.rstrip("/")

    def _root_before(self, path: str) -> str | None:
        parts = path.split("/")
        for length in range(_MIN_PARTS, len(parts) - _MIN_PARTS + 1):
            if "/".join(parts[length:]) in self._project.checkout.files:
                return "/".join(parts[:length])
        return None


def _date_of(memory: Memory) -> float:
    return memory.created_at or 0.0
