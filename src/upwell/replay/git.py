"""A repository in an earlier state, read object by object.

Nothing that the repository configures is run: `cat-file` and `ls-tree` apply neither filters nor
textconv, and settings that name programs are overridden. Missing objects are not fetched, so a
shallow, partial or damaged clone is read as far as it goes.
"""

import os
import subprocess
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from upwell.ground.errors import UsageError
from upwell.ground.project import real_folder

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
