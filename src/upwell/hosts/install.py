"""Writes our entries into agents' configuration files, and removes them again (`Installer`).

The user first sees a plan. Then three files are written in this order, each completely or not at
all, so that a file that upwell has changed is always on record, even after a crash: the record of
the files with our entries (`hooks.json`, or `clients.json` for MCP servers), a backup of the
agent's file beside it, and the agent's file. If the agent's file has not changed since,
uninstalling usually restores the earlier content and deletes the backup. Otherwise it removes only
our entries.

Agents without hooks get an instruction instead (`exported()`), which leaves their configuration
unchanged.
"""

import contextlib
import difflib
import hashlib
import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.errors import ConfigError, UsageError
from upwell.ground.files import (
    exclusively,
    read_regular_file,
    remove_partial_files,
    write_atomically,
    writing,
)
from upwell.ground.names import OWN_SERVER
from upwell.hosts.base import Host
from upwell.hosts.installation import AgentFile, Installation
from upwell.hosts.plugins import Plugin, plugin_of


class Installed(Struct, frozen=True, omit_defaults=True):
    """A file with our entries.

    - `written` is the digest of what upwell wrote. `previous` is the digest of what it wrote before
      that, which is still in the file if upwell was interrupted.
    - `backup` is the path of the copy of the earlier content, or "" if there was no file. `before`
      is the digest of that content. `older` are backups from earlier installations.
    - `moved` are the servers that moved to upwell, as texts in the file's format, the latest first.
      Records of older versions have neither `before` nor `moved`; there, it is None.
    - `folders` are the folders that the installation created, innermost first.
    - `elsewhere` are the agent's other files.
    """

    path: str
    written: str = ""
    previous: str = ""
    backup: str = ""
    before: str = ""
    older: tuple[str, ...] = ()
    moved: tuple[str, ...] | None = None
    folders: tuple[str, ...] = ()
    elsewhere: "tuple[Installed, ...]" = ()

    def wrote(self, digest: str) -> bool:
        """True if upwell wrote the content with this digest."""
        return digest in (self.written, self.previous)


Record = Mapping[str, Installed]
"""The first file of each agent, keyed by agent."""


def read_record(path: Path) -> tuple[Record, str]:
    """The record, and what is wrong with its file, or "". A damaged record is empty."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Installed]), ""
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        return {}, f"{path} cannot be read: {error.strerror}"
    except msgspec.MsgspecError as error:
        return {}, f"{path} is damaged: {error}"


def installed_entries(path: Path) -> Record:
    """The record; empty if it cannot be read."""
    return read_record(path)[0]


def write_record(path: Path, record: Record) -> None:
    """Replace the record. A damaged file is kept as `NAME.corrupt-TIME`.

    Raises:
        StoreUnwritable: the file cannot be written.
    """
    with writing(path):
        if read_record(path)[1]:
            path.replace(path.with_name(f"{path.name}.corrupt-{time.time_ns() // 1_000_000}"))
        write_atomically(path, msgspec.json.format(msgspec.json.encode(record)))


def files_of(record: Record, agent: str) -> list[Installed]:
    """The agent's files. There are several if it has several settings folders."""
    first = record.get(agent)
    return [replace(first, elsewhere=()), *first.elsewhere] if first else []


def split(record: Record, agent: str, path: Path) -> tuple[Installed | None, list[Installed]]:
    """The agent's file at `path`, or None if it is not on record, and the agent's other files."""
    files = files_of(record, agent)
    here = next((file for file in files if file.path == str(path)), None)
    return here, [file for file in files if file is not here]


def joined(record: Record, agent: str, files: Sequence[Installed]) -> Record:
    """The record with these files for the agent."""
    others = {name: file for name, file in record.items() if name != agent}
    if not files:
        return others
    return {**others, agent: replace(files[0], elsewhere=tuple(files[1:]))}


BACKUP = ".upwell-backup"
PARTIAL = ".upwell-partial-"
LOCK = "agents"
"""The lock for changes to agents' files. Hooks and servers share it, because some agents have both
in one file."""
MAX_BACKUPS = 100


class FilePlan(Struct, frozen=True):
    """A change to an agent's file. `before` and `after` are its text, or None if there is no file.
    `next_step` tells the user what to do afterwards. `moved` are the servers that move to upwell,
    as a text in the file's format. `source` names what `after` was made from if the record is lost;
    the file's content is then kept in a backup."""

    agent: str
    path: Path
    before: str | None
    after: str | None
    next_step: str = ""
    installs: bool = False
    moved: str = ""
    source: str = ""

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
    """Installs our entries in the files of several agents. `record` is the file that lists them.

    A method that takes an agent raises `UsageError` if there is no such agent, and `ConfigError` if
    it has to read the agent's file and cannot.
    """

    def __init__(
        self, installation: Installation, record: Path, files: Mapping[str, AgentFile]
    ) -> None:
        self._installation = installation
        self._record = record
        self._files = files

    @property
    def damage(self) -> str:
        """What is wrong with the record's file, or ""."""
        return read_record(self._record)[1]

    def installing(self, agent: str, instead: str | None = None) -> FilePlan:
        """The plan that adds our entries, to the content that the file will have by then, if it is
        not that of now."""
        file = self._file(agent)
        path = _resolved(file.path(self._installation))
        before = read_text(path)
        text = before or "" if instead is None else instead
        after = file.with_ours(text, self._installation)
        moved = file.moved(text)
        return FilePlan(agent, path, before, after, file.next_step, installs=True, moved=moved)

    def uninstalling(self, agent: str, path: Path | None = None) -> FilePlan:
        """The plan that removes our entries from the agent's file, or from another file of the
        agent (see `paths()`)."""
        file = self._file(agent)
        path = _resolved(path or file.path(self._installation))
        before = read_text(path)
        if before is None:
            return FilePlan(agent, path, None, None)
        entry, _ = split(installed_entries(self._record), agent, path)
        if entry and entry.wrote(digest(before)):
            if not entry.backup:
                return FilePlan(agent, path, before, None)
            if (earlier := _earlier_text(entry, file)) is not None:
                return FilePlan(agent, path, before, earlier)
        after = file.without_ours(before, self.moved(agent, path) or ())
        return FilePlan(agent, path, before, after if after == before else after or None)

    def moved(self, agent: str, path: Path) -> tuple[str, ...] | None:
        """The servers that moved away from the agent's file, as texts in its format, the latest
        first; None if that is not known."""
        entry, _ = split(installed_entries(self._record), agent, path)
        return _moved(entry, self._file(agent)) if entry else None

    def apply(self, plan: FilePlan) -> str:
        """Carry out a plan. Returns the path of the backup, or "" if there is none.

        Raises:
            ConfigError: the file has changed since it was read, or has too many backups.
            StoreUnwritable: the file, its backup or the record cannot be written. Unless the plan
                uninstalls and only the record could not be written, the file is unchanged.
        """
        with exclusively(self._record.with_name(LOCK)):
            now = read_text(plan.path)
            if now != plan.before and now == plan.after:
                return ""
            if now != plan.before:
                raise ConfigError(f"{plan.path} has just been changed", hint="try again")
            remove_partial_files(plan.path, PARTIAL + plan.path.name)
            return self._install(plan) if plan.installs else self._uninstall(plan)

    def installed(self) -> dict[str, str]:
        """The agents whose files contain our entries, and the paths of those files."""
        paths: dict[str, str] = {}
        for agent, file in self._files.items():
            path = _resolved(file.path(self._installation))
            try:
                text = read_text(path)
                if text is not None and file.without_ours(text) != text:
                    paths[agent] = str(path)
            except ConfigError:
                continue
        return paths

    def paths(self, agent: str) -> list[Path]:
        """The agent's files that contain our entries according to the record. There are several if
        the user has given the agent several settings folders (`CLAUDE_CONFIG_DIR`)."""
        return [Path(file.path) for file in files_of(installed_entries(self._record), agent)]

    def present(self) -> list[str]:
        """The agents that are installed on this machine."""
        return [name for name, file in self._files.items() if file.is_present(self._installation)]

    def plugin_of(self, agent: str) -> Plugin | None:
        """upwell's plugin in this agent, or None."""
        return plugin_of(agent, self._installation)

    def text_of(self, agent: str) -> str:
        """The content of an agent's file, or "" if there is no file."""
        return read_text(_resolved(self.path_of(agent))) or ""

    def path_of(self, agent: str) -> Path:
        """The path of an agent's file."""
        return self._file(agent).path(self._installation)

    def _install(self, plan: FilePlan) -> str:
        record = installed_entries(self._record)
        earlier, elsewhere = split(record, plan.agent, plan.path)
        entry = self._entry(plan, earlier)
        write_record(self._record, joined(record, plan.agent, [entry, *elsewhere]))
        if plan.before is not None and entry.before == digest(plan.before):
            _back_up(plan, entry.backup)
        _put(plan.path, plan.after)
        return entry.backup

    def _entry(self, plan: FilePlan, earlier: Installed | None) -> Installed:
        """The record's entry for the file once the plan has been carried out."""
        file = self._file(plan.agent)
        before = plan.before
        moved = (_moved(earlier, file) if earlier else ()) or ()
        if earlier and before is not None and file.without_ours(before, moved) == before:
            earlier, moved = None, ()  # never carried out: the file still has everything
        folders = [*_missing_folders(plan.path), *(earlier.folders if earlier else ())]
        entry = Installed(
            str(plan.path),
            written=digest(plan.after or ""),
            moved=moved if before is None else (plan.moved, *moved),
            folders=tuple(dict.fromkeys(folders)),
        )
        if earlier and before is not None and earlier.wrote(digest(before)):
            # The content before the first installation is restored, so its backup is kept.
            return replace(
                entry,
                previous=digest(before),
                backup=earlier.backup,
                before=earlier.before,
                older=earlier.older,
                moved=entry.moved if plan.moved else earlier.moved,
            )
        older = (earlier.backup, *earlier.older) if earlier and earlier.backup else ()
        if before is None:
            return replace(entry, older=older)
        backup = str(_free_backup(plan.path, before))
        return replace(entry, backup=backup, before=digest(before), older=older)

    def _uninstall(self, plan: FilePlan) -> str:
        copy = ""
        if plan.source and plan.before is not None:
            copy = str(_free_backup(plan.path, plan.before))
            _back_up(plan, copy)
        if plan.changes:
            _put(plan.path, plan.after)
        record = installed_entries(self._record)
        earlier, elsewhere = split(record, plan.agent, plan.path)
        # Before the record, so that an interrupted uninstall can be completed.
        _clean_up(plan, earlier.folders if earlier else ())
        if earlier:
            write_record(self._record, joined(record, plan.agent, elsewhere))
        return copy

    def _file(self, agent: str) -> AgentFile:
        if agent not in self._files:
            raise UsageError(
                f"{agent[:40]!r} is not a known host", hint=f"one of {', '.join(self._files)}"
            )
        return self._files[agent]


def backups_of(path: Path) -> list[Path]:
    """The backups beside an agent's file."""
    return [copy for copy in _backup_names(path) if copy.is_file()]


def readable(path: Path) -> str | None:
    """The content of a backup, or None if it cannot be read."""
    try:
        return read_text(path)
    except ConfigError:
        return None


def _earlier_text(entry: Installed, file: AgentFile) -> str | None:
    """The content to restore; None if there are several backups, or if the backup is lost or
    damaged. In a record of an older version, which has no digest, any sound file will do."""
    text = None if entry.older else readable(Path(entry.backup))
    if text is None or entry.moved is not None:
        return text if text is not None and digest(text) == entry.before else None
    return text if _moved_from(text, file) is not None else None


def _moved(entry: Installed, file: AgentFile) -> tuple[str, ...] | None:
    if entry.moved is not None:
        return entry.moved
    texts = [
        _moved_from(readable(Path(path)), file) for path in (entry.backup, *entry.older) if path
    ]
    known = tuple(text for text in texts if text is not None)
    return known if len(known) == len(texts) else None


def _moved_from(backup: str | None, file: AgentFile) -> str | None:
    try:
        return file.moved(backup) if backup and backup.strip() else None
    except ConfigError:
        return None


def _resolved(path: Path) -> Path:
    """Resolve symbolic links in the path, so that writing a linked file (dotfiles) does not replace
    the link."""
    return Path(os.path.realpath(path))


def read_text(path: Path) -> str | None:
    """The content of an agent's file, or None if there is no file.

    Raises:
        ConfigError: the file cannot be read or is not UTF-8.
    """
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


def _backup_names(path: Path) -> Iterator[Path]:
    for number in range(MAX_BACKUPS):
        yield path.with_name(path.name + BACKUP + (f".{number}" if number else ""))


def _free_backup(path: Path, text: str) -> Path:
    """The first name that is free, or whose file already has this content."""
    for copy in _backup_names(path):
        if not os.path.lexists(copy) or (copy.is_file() and readable(copy) == text):
            return copy
    raise ConfigError(f"{path} has {MAX_BACKUPS} backups already", hint="remove some of them")


def _back_up(plan: FilePlan, backup: str) -> None:
    if plan.before is not None and readable(copy := Path(backup)) != plan.before:
        with writing(copy):
            write_atomically(copy, plan.before, prefix=PARTIAL + copy.name)


def _missing_folders(path: Path) -> list[str]:
    """The folders above `path` that do not exist, innermost first."""
    return [str(folder) for folder in path.parents if not folder.exists()]


def _clean_up(plan: FilePlan, folders: Sequence[str]) -> None:
    """After an uninstall, delete the backups with the same content as the file. Also delete the
    folders that the installation created, if they are empty."""
    for copy in backups_of(plan.path):
        if plan.after is not None and readable(copy) == plan.after:
            with contextlib.suppress(OSError):
                copy.unlink()
    with contextlib.suppress(OSError):
        for folder in folders:
            Path(folder).rmdir()


def _put(path: Path, text: str | None) -> None:
    with writing(path):
        if text is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        write_atomically(path, text, mode, PARTIAL + path.name)


_INSTRUCTION = """\
## Memory

At the start of every substantive turn, call `{context}` with the user's message: it gives a short
digest of what is already known, and says so when there is nothing. It answers trivial messages
(greetings, acknowledgements, slash commands) at once with `applicable: false`, so calling it is
always safe. Entries are notes from earlier work: use what helps, ignore what does not.

Use `{search}` directly instead when
- the exact query is known ("what did we decide about retries"),
- more results are wanted than a digest holds,
- something is looked up for a tool's own use and not for the conversation.

`{get}` gives the full text behind a citation.
"""


def exported(host: Host) -> dict[str, str]:
    """The files for this host, keyed by path relative to the project: an instruction to call
    `memory_context` at the start of a turn, with the names that the host uses for tools behind the
    gateway."""
    names = {"context": "memory_context", "search": "memory_search", "get": "memory_get"}
    tools = {
        key: host.export.tool_name.format(f"{OWN_SERVER}__{name}") for key, name in names.items()
    }
    return {host.export.file: host.export.layout.format(_INSTRUCTION.format(**tools))}


def write(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Write the files below `folder`. No existing file is replaced.

    Raises:
        UsageError: a file exists with other content.
    """
    texts = {folder / name: text for name, text in files.items()}
    for path, text in texts.items():
        if path.exists() and path.read_text(encoding="utf-8", errors="replace") != text:
            raise UsageError(
                f"{path} exists already", hint="print it without --apply and insert it by hand"
            )
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(texts)


def shown(files: Mapping[str, str]) -> str:
    """All files as one text, each below a line with its name."""
    return "\n".join(f"==> {shlex.quote(name)} <==\n{text}" for name, text in files.items())
