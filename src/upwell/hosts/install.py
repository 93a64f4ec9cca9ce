"""Putting our hooks into an agent's configuration, and taking them out again.

What will be written is shown first. A file is written whole or not at all, beside a copy of what it
was; a note in upwell's home (`hooks.json`) says which bytes we wrote, so that taking the hooks out
restores the old bytes when nobody changed the file since, and takes out only ours when somebody
did.
"""

import difflib
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from upwell.ground.errors import ConfigError, StoreUnwritable, UsageError
from upwell.ground.files import write_whole
from upwell.hosts.agents import AGENTS
from upwell.hosts.base import HostFile, Where

BACKUP = ".upwell-backup"
MAX_BACKUPS = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done to a host's file. `before` and `after` None: there is no file."""

    host: str
    path: Path
    before: str | None
    after: str | None
    todo: str = ""
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


class Hooks:
    """The hooks of every agent, or what else of ours `agents` put into their files. `notes` is the
    file that says what we wrote."""

    def __init__(self, where: Where, notes: Path, agents: Mapping[str, HostFile] = AGENTS) -> None:
        self._where = where
        self._notes = notes
        self._agents = agents

    def installing(self, host: str) -> Plan:
        """What `install` would do.

        Raises:
            UsageError: there is no such host.
            ConfigError: its file cannot be read; it is not touched.
        """
        agent = self._named(host)
        path = _target(agent.path(self._where))
        before = _read(path)
        return Plan(
            host, path, before, agent.added(before or "", self._where), agent.todo, installs=True
        )

    def uninstalling(self, host: str) -> Plan:
        """What `uninstall` would do."""
        agent = self._named(host)
        path = _target(agent.path(self._where))
        before = _read(path)
        if before is None:
            return Plan(host, path, None, None)
        note = self._noted().get(host, {})
        backup = str(note.get("backup", ""))
        olds: list[str] = []
        if note.get("path") == str(path):
            copies = [backup, *note.get("older", ())]
            olds = [old for copy in copies if copy and (old := _read(Path(copy))) is not None]
            if note.get("written") == _digest(before):
                if not backup:
                    return Plan(host, path, before, None)
                if len(copies) == 1 and olds:
                    return Plan(host, path, before, olds[0])
        return Plan(host, path, before, agent.removed(before, olds) or None)

    def apply(self, plan: Plan) -> str:
        """Do it. Gives the path of the copy that was kept, "" for none.

        Raises:
            StoreUnwritable: it cannot be written; nothing was changed.
        """
        try:
            if _read(plan.path) != plan.before:
                raise ConfigError(f"{plan.path} was changed just now", hint="try again")
            return self._apply(plan)
        except OSError as error:
            raise StoreUnwritable(
                f"cannot write {plan.path}: {error.strerror}", hint="check its permissions"
            ) from error

    def installed(self) -> dict[str, str]:
        """The hosts whose files hold our hooks, with those files."""
        found: dict[str, str] = {}
        for name, agent in self._agents.items():
            path = _target(agent.path(self._where))
            try:
                text = _read(path)
                if text is not None and agent.removed(text) != text:
                    found[name] = str(path)
            except ConfigError:
                continue
        return found

    def present(self) -> list[str]:
        """The hosts that are on this machine."""
        return [name for name, agent in self._agents.items() if agent.present(self._where)]

    def text_of(self, host: str) -> str:
        """What is in its file, "" where there is none.

        Raises:
            ConfigError: it is not UTF-8.
        """
        return _read(_target(self.path_of(host))) or ""

    def path_of(self, host: str) -> Path:
        return self._named(host).path(self._where)

    def _apply(self, plan: Plan) -> str:
        notes = self._noted()
        if plan.after is None or not plan.installs:
            notes.pop(plan.host, None)
            _put(plan.path, plan.after)
            self._note(notes)
            return ""
        known = notes.get(plan.host, {})
        kept = str(known.get("backup", "")) if self._is_ours(plan, known) else None
        backup = kept if kept is not None else _backed_up(plan)
        _put(plan.path, plan.after)
        older = list(known.get("older", ())) if known.get("path") == str(plan.path) else []
        if kept is None and known.get("path") == str(plan.path) and known.get("backup"):
            older = [known["backup"], *older]
        notes[plan.host] = {
            "path": str(plan.path),
            "written": _digest(plan.after),
            "backup": backup,
            **({"older": older} if older else {}),
        }
        self._note(notes)
        return backup

    def _is_ours(self, plan: Plan, note: dict[str, Any]) -> bool:
        """Is what stands there what we wrote? Then the copy of before us still holds."""
        return note.get("path") == str(plan.path) and note.get("written") == _digest(
            plan.before or ""
        )

    def _named(self, host: str) -> HostFile:
        return agent_named(host, self._agents)

    def _noted(self) -> dict[str, Any]:
        return noted(self._notes)

    def _note(self, notes: dict[str, Any]) -> None:
        write_whole(self._notes, orjson.dumps(notes, option=orjson.OPT_INDENT_2).decode())


def noted(path: Path) -> dict[str, Any]:
    """What we wrote, by host; nothing where the note cannot be read."""
    try:
        notes = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return notes if isinstance(notes, dict) else {}


def agent_named(host: str, agents: Mapping[str, HostFile] = AGENTS) -> HostFile:
    """The host of that name.

    Raises:
        UsageError: there is none.
    """
    if host not in agents:
        raise UsageError(f"no host is called {host[:40]!r}", hint=f"one of {', '.join(agents)}")
    return agents[host]


def _target(path: Path) -> Path:
    """The file that is meant: a link (dotfiles) is followed, so that it stays one."""
    return Path(os.path.realpath(path))


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8", hint="mend it first; it was not touched"
        ) from error


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _backed_up(plan: Plan) -> str:
    """A copy of the file as it is, under the first name that is free."""
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
    raise ConfigError(f"there are {MAX_BACKUPS} copies of {plan.path}", hint="remove some")


def _put(path: Path, text: str | None) -> None:
    """Write the file whole, with the mode it had; None removes it."""
    if text is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    write_whole(path, text)
    path.chmod(mode)
