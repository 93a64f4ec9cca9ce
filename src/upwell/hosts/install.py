"""Writes our entries into agents' configuration files, and removes them again.

The user first sees a plan. A file is written completely or not at all, and its earlier content is
kept in a backup beside it. A record in upwell's home (`hooks.json`, or `clients.json` for MCP
servers) holds the digest of each file that upwell has written. If a file has not changed since,
uninstalling usually restores the earlier content and deletes the backup. Otherwise it removes only
our entries.
"""

import contextlib
import difflib
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from msgspec import Struct

from upwell.ground.errors import ConfigError, StoreUnwritable, UsageError
from upwell.ground.files import read_regular_file, write_atomically
from upwell.hosts.installation import ConfigFile, Installation

BACKUP = ".upwell-backup"
MAX_BACKUPS = 100


class Plan(Struct, frozen=True):
    """A change to an agent's file. `before` and `after` are its text, or None if there is no file.
    `next_step` tells the user what to do afterwards."""

    agent: str
    path: Path
    before: str | None
    after: str | None
    next_step: str = ""
    installs: bool = False

    @property
    def changes(self) -> bool:
        return self.before != self.after

    @property
    def diff(self) -> str:
        """The change as a unified diff."""
        lines = difflib.unified_diff(
            (self.before or "").splitlines(keepends=True),
            (self.after or "").splitlines(keepends=True),
            str(self.path) if self.before is not None else "/dev/null",
            str(self.path) if self.after is not None else "/dev/null",
        )
        return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


class Installer:
    """Installs our entries in the files of several agents. `record` is the file that lists them."""

    def __init__(
        self, installation: Installation, record: Path, files: Mapping[str, ConfigFile]
    ) -> None:
        self._installation = installation
        self._record = record
        self._files = files

    def installing(self, agent: str) -> Plan:
        """The plan that adds our entries.

        Raises:
            UsageError: there is no such agent.
            ConfigError: the agent's file cannot be read.
        """
        file = self._file(agent)
        path = _resolved(file.path(self._installation))
        before = _read(path)
        after = file.with_ours(before or "", self._installation)
        return Plan(agent, path, before, after, file.next_step, installs=True)

    def uninstalling(self, agent: str, path: Path | None = None) -> Plan:
        """The plan that removes our entries from the agent's file, or from another file of the
        agent (see `paths()`).

        Raises:
            UsageError: there is no such agent.
            ConfigError: the agent's file cannot be read.
        """
        file = self._file(agent)
        path = _resolved(path or file.path(self._installation))
        before = _read(path)
        if before is None:
            return Plan(agent, path, None, None)
        entry, _ = _split(self._recorded(), agent, path)
        backups: list[str] = []
        if entry:
            copies = [str(entry.get("backup", "")), *entry.get("older", ())]
            backups = [old for copy in copies if copy and (old := _read(Path(copy))) is not None]
            if entry.get("written") == digest(before):
                if not copies[0]:
                    return Plan(agent, path, before, None)
                if len(copies) == 1 and backups:
                    return Plan(agent, path, before, backups[0])
        return Plan(agent, path, before, file.without_ours(before, backups) or None)

    def apply(self, plan: Plan) -> str:
        """Carry out a plan. Returns the path of the backup, or "" if there is none.

        Raises:
            ConfigError: the file has changed since it was read, or has too many backups.
            StoreUnwritable: the file or the record cannot be written. In the latter case, the file
                has already been changed.
        """
        try:
            if _read(plan.path) != plan.before:
                raise ConfigError(f"{plan.path} has just been changed", hint="try again")
            return self._apply(plan)
        except OSError as error:
            raise StoreUnwritable(
                f"cannot write {plan.path}: {error.strerror}", hint="check its permissions"
            ) from error

    def installed(self) -> dict[str, str]:
        """The agents whose files contain our entries, and the paths of those files."""
        paths: dict[str, str] = {}
        for agent, file in self._files.items():
            path = _resolved(file.path(self._installation))
            try:
                text = _read(path)
                if text is not None and file.without_ours(text) != text:
                    paths[agent] = str(path)
            except ConfigError:
                continue
        return paths

    def paths(self, agent: str) -> list[Path]:
        """The agent's files that contain our entries according to the record. There are several if
        the user has given the agent several settings folders (`CLAUDE_CONFIG_DIR`)."""
        return [Path(str(entry["path"])) for entry in _entries(self._recorded(), agent)]

    def _recorded(self) -> dict[str, Any]:
        return installed_entries(self._record)

    def present(self) -> list[str]:
        """The agents that are installed on this machine."""
        return [name for name, file in self._files.items() if file.is_present(self._installation)]

    def text_of(self, agent: str) -> str:
        """The content of an agent's file, or "" if there is no file.

        Raises:
            UsageError: there is no such agent.
            ConfigError: the file cannot be read or is not UTF-8.
        """
        return _read(_resolved(self.path_of(agent))) or ""

    def path_of(self, agent: str) -> Path:
        """The path of an agent's file.

        Raises:
            UsageError: there is no such agent.
        """
        return self._file(agent).path(self._installation)

    def _apply(self, plan: Plan) -> str:
        record = self._recorded()
        earlier, elsewhere = _split(record, plan.agent, plan.path)
        if plan.after is None or not plan.installs:
            _put(plan.path, plan.after)
            self._write_record(_joined(record, plan.agent, elsewhere))
            _clean_up(plan, earlier)
            return ""
        is_unchanged = earlier.get("written") == digest(plan.before or "")
        # If the file is as upwell wrote it, it contains our entries, so no new backup is made.
        backup = str(earlier.get("backup", "")) if is_unchanged else _backed_up(plan)
        folders = _missing_folders(plan.path) or earlier.get("folders", [])
        _put(plan.path, plan.after)
        older = list(earlier.get("older", ()))
        if not is_unchanged and earlier.get("backup"):
            older = [earlier["backup"], *older]
        entry = {
            "path": str(plan.path),
            "written": digest(plan.after),
            "backup": backup,
            **({"older": older} if older else {}),
            **({"folders": folders} if folders else {}),
        }
        self._write_record(_joined(record, plan.agent, [entry, *elsewhere]))
        return backup

    def _file(self, agent: str) -> ConfigFile:
        if agent not in self._files:
            raise UsageError(
                f"{agent[:40]!r} is not a known host", hint=f"one of {', '.join(self._files)}"
            )
        return self._files[agent]

    def _write_record(self, record: Mapping[str, Any]) -> None:
        write_atomically(self._record, orjson.dumps(record, option=orjson.OPT_INDENT_2).decode())


def installed_entries(record: Path) -> dict[str, Any]:
    """The record of our entries, keyed by agent; empty if the record cannot be read. If an agent
    has several files, `elsewhere` lists the entries of all but the first."""
    try:
        entries = orjson.loads(record.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _entries(record: Mapping[str, Any], agent: str) -> list[dict[str, Any]]:
    first = dict(record.get(agent, {}))
    entries = [first, *first.pop("elsewhere", ())]
    return [entry for entry in entries if entry.get("path")]


def _split(
    record: Mapping[str, Any], agent: str, path: Path
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The entry for the agent's file at `path` ({} if there is none), and the entries for its other
    files."""
    entries = _entries(record, agent)
    here = next((entry for entry in entries if entry["path"] == str(path)), {})
    return here, [entry for entry in entries if entry is not here]


def _joined(
    record: Mapping[str, Any], agent: str, entries: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    others = {name: entry for name, entry in record.items() if name != agent}
    if not entries:
        return others
    first, *elsewhere = entries
    return {**others, agent: {**first, **({"elsewhere": elsewhere} if elsewhere else {})}}


def _resolved(path: Path) -> Path:
    """Resolve symbolic links in the path, so that writing a linked file (dotfiles) does not replace
    the link."""
    return Path(os.path.realpath(path))


def _read(path: Path) -> str | None:
    try:
        return read_regular_file(path).decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8", hint="fix the file first; it was not changed"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}", hint="fix the file first; it was not changed"
        ) from error


def digest(text: str) -> str:
    """The SHA-256 digest of a file's content."""
    return hashlib.sha256(text.encode()).hexdigest()


def _backed_up(plan: Plan) -> str:
    """Save the earlier content under the first free name."""
    if plan.before is None:
        return ""
    for number in range(MAX_BACKUPS):
        copy = plan.path.with_name(plan.path.name + BACKUP + (f".{number}" if number else ""))
        try:
            descriptor = os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            continue
        with os.fdopen(descriptor, "wb") as file:
            file.write(plan.before.encode())
            file.flush()
            os.fsync(file.fileno())
        return str(copy)
    raise ConfigError(f"{plan.path} has {MAX_BACKUPS} backups already", hint="remove some of them")


def _missing_folders(path: Path) -> list[str]:
    """The folders above `path` that do not exist, innermost first."""
    return [str(folder) for folder in path.parents if not folder.exists()]


def _clean_up(plan: Plan, entry: Mapping[str, Any]) -> None:
    """After an uninstall, delete the backup if the file has the same content again. Also delete the
    folders that the installation created, if they are empty."""
    copy = Path(str(entry.get("backup", "")))
    with contextlib.suppress(OSError, ConfigError):
        if copy.name.startswith(plan.path.name + BACKUP) and _read(copy) == plan.after:
            copy.unlink()
    with contextlib.suppress(OSError):
        for folder in entry.get("folders", ()):
            Path(folder).rmdir()


def _put(path: Path, text: str | None) -> None:
    if text is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    write_atomically(path, text)
    path.chmod(mode)
