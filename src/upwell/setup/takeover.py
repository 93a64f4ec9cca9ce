"""Copies the agents' MCP servers to `config.toml`, for the gateway, and gives back those that an
earlier version moved there.

If a server is the proxy memtomem-stm, the servers behind the proxy are copied instead. A file that
cannot be read is reported; the others are still read.
"""

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit
from msgspec import Struct, field
from msgspec.structs import replace

from upwell.ground.errors import ConfigError, UpwellError, UsageError
from upwell.ground.files import exclusively
from upwell.ground.home import Home
from upwell.ground.names import MAX_SERVER_NAME_CHARS, check_server_name
from upwell.hosts import server_files
from upwell.hosts.entries import ServerEntry
from upwell.hosts.install import FilePlan, Installer, backups_of, readable
from upwell.hosts.installation import Installation
from upwell.hosts.memtomem import servers_behind
from upwell.hosts.servers import ServerFile
from upwell.setup.config_file import read_document, write_document
from upwell.setup.giving_back import GivingBack, Servers, compared, improvised
from upwell.setup.servers import written
from upwell.setup.wrapping import Wrapping


class AgentServer(Struct, frozen=True):
    """A server in an agent's file. `name` is its name behind the gateway, or "" if it cannot be
    there for the reason in `left`. `known` is True if the gateway already has it.
    """

    client: str
    original: str
    table: Mapping[str, Any]
    name: str = ""
    left: str = ""
    known: bool = False


class Addition(Struct):
    """A plan for `config.toml`. `refused` gives the reason for each file that cannot be read."""

    config: FilePlan
    servers: list[AgentServer] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def added(self) -> list[AgentServer]:
        """The servers that are new to the gateway."""
        return [server for server in self.servers if server.name and not server.known]


class Clients:
    """The agents on this machine and their servers. `project` adds the agents' files in that
    folder. `leave` names servers that stay as they are. `wrapping` changes servers in their
    places."""

    def __init__(
        self,
        installation: Installation,
        home: Home,
        project: Path | None = None,
        *,
        leave: Collection[str] = (),
    ) -> None:
        self._home = home
        self._installation = installation
        files = {name: replace(file, leave=leave) for name, file in server_files(project).items()}
        self._all_files = files
        self._files: dict[str, ServerFile] = {}
        places: set[Path] = set()
        for name, client in files.items():
            path = client.path(installation).resolve()
            if path not in places and client.is_present(installation):
                self._files[name] = client
            places.add(path)
        self._installer = Installer(installation, home.clients_file, files)
        wrap = replace(installation, command=(str(home.server_launcher),))
        self.wrapping = Wrapping(wrap, home.wrapped_file, files)

    def adding(self) -> Addition:
        """The plan of `upwell add --from-clients`.

        Raises:
            ConfigError: `config.toml` cannot be read, or no name is free for a server.
        """
        document = read_document(self._home.config_file)
        before = tomlkit.dumps(document) if self._home.config_file.exists() else None
        servers = document.setdefault("server", tomlkit.table(is_super_table=True))
        addition = Addition(FilePlan("config", self._home.config_file, None, None))
        for name, client in self._files.items():
            try:
                entries = client.entries(self._installer.text_of(name))
            except (UpwellError, OSError) as error:
                addition.refused[str(client.path(self._installation))] = str(error)
                continue
            addition.servers += [
                server
                for entry in entries
                if not entry.ours
                for server in self._added(name, client.agent, entry, servers)
            ]
        after = tomlkit.dumps(document) if addition.added else before
        addition.config = FilePlan("config", self._home.config_file, before, after)
        return addition

    def _added(
        self, client: str, agent: str, entry: ServerEntry, servers: Any
    ) -> list[AgentServer]:
        """The agent's server or, for a proxy that upwell replaces, the servers behind it. New ones
        are added to `servers`."""
        user = self._installation
        behind = servers_behind(entry.table, user.environment, user.user_folder)
        return [
            replace(_added(client, agent, inner, servers), original=f"{entry.name}: {inner.name}")
            for inner in behind
        ] or [_added(client, agent, entry, servers)]

    def take(self, config: FilePlan) -> None:
        """Write `config.toml`.

        Raises:
            ConfigError: the file has changed since the plan was made.
            StoreUnwritable: the file cannot be written.
        """
        if not config.changes:
            return
        with exclusively(config.path):
            document = read_document(config.path)
            now = tomlkit.dumps(document) if config.path.exists() else None
            if now == config.after:
                return
            if now != config.before:
                raise ConfigError(f"{config.path} changed in the meantime", hint="try again")
            write_document(config.path, tomlkit.parse(config.after or ""))

    def apply(self, plan: FilePlan) -> str:
        """Write an agent's file. Returns the path of the backup, or "" if there is none."""
        return self._installer.apply(plan)

    def giving_back(
        self, expected: Collection[str] = (), changed: Collection[str] = ()
    ) -> GivingBack:
        """What gives the agents their servers back. Files in an agent's other settings folders are
        included if upwell recorded that it changed them. `expected` names servers that upwell took.
        `changed` are paths of further files that may hold servers by now.

        Raises:
            ConfigError: `config.toml` cannot be read.
        """
        servers = read_document(self._home.config_file).unwrap().get("server", {})
        back = GivingBack(files=self._written())
        absent = [name for name in expected if name not in servers]
        lost = self._lost(absent, back.files)
        for name, path in back.files:
            try:
                plan = self._given_back(name, path, servers, absent, lost)
            except (UpwellError, OSError) as error:
                back.refused[str(path)] = str(error)
                continue
            if plan.changes:
                back.plans.append(plan)
            elif path in self._installer.paths(name):
                back.settled.append(plan)
        files = server_files()
        back.files += [
            (name, Path(path))
            for name, file in files.items()
            for path in changed
            if Path(path).name == file.path(self._installation).name
        ]
        return back

    def _given_back(
        self,
        name: str,
        path: Path,
        servers: Servers,
        absent: Collection[str],
        lost: Collection[str],
    ) -> FilePlan:
        plan, file = self._installer.uninstalling(name, path), self._all_files[name]
        is_known = self._installer.moved(name, path) is not None
        if is_known or plan.before is None or not file.has_ours(plan.before):
            return plan
        return improvised(file, self._installation, plan, servers, absent, lost)

    def _lost(self, names: Sequence[str], files: Sequence[tuple[str, Path]]) -> list[str]:
        """Those of these servers that no agent's file, no backup and no record has."""
        lost = list(names)
        for name, path in files if lost else ():
            file, recorded = self._all_files[name], self._installer.moved(name, path) or ()
            texts = [*map(readable, (path, *backups_of(path))), *recorded]
            for text in filter(None, texts):
                with contextlib.suppress(ConfigError):
                    for entry in file.entries(text):
                        found = set(_names(entry.name, file.agent))
                        lost = [server for server in lost if server not in found]
        return lost

    def missing(self, names: Iterable[str], back: GivingBack, *, done: bool) -> list[str]:
        """Those of these servers of `config.toml` that no agent has, once everything has been given
        back. With `done`, that has happened."""
        after = {} if done else {plan.path: plan.after or "" for plan in back.plans}
        held: list[dict[str, Any]] = []
        for name, path in back.files:
            with contextlib.suppress(ConfigError):
                text = after[path] if path in after else readable(path) or ""
                for entry in replace(self._all_files[name], leave=()).entries(text):
                    user = self._installation
                    behind = servers_behind(entry.table, user.environment, user.user_folder)
                    held += [compared(item.table) for item in (entry, *behind)]
        servers = read_document(self._home.config_file).get("server", {})
        return [name for name in names if name in servers and compared(servers[name]) not in held]

    @property
    def damage(self) -> str:
        """See `Installer.damage`."""
        return self._installer.damage

    def paths(self, agent: str) -> list[Path]:
        """See `Installer.paths()`."""
        return self._installer.paths(agent)

    def _written(self) -> list[tuple[str, Path]]:
        """The files that may have our entries, with their agents. Files in other projects are left
        out."""
        here = [
            (name, client.path(self._installation).resolve())
            for name, client in self._files.items()
        ]
        recorded = [
            (name, path.resolve())
            for name in server_files()
            for path in self._installer.paths(name)
        ]
        return list(dict.fromkeys([*here, *recorded]))


def _added(client: str, agent: str, entry: ServerEntry, servers: Any) -> AgentServer:
    """Add the server to `servers`, unless it cannot be there or already is."""
    table = entry.table
    if not table:
        return AgentServer(client, entry.name, table, left=entry.left)
    name, known = _name(entry.name, agent, table, servers)
    if not known:
        servers[name] = written(table)
    return AgentServer(client, entry.name, table, name, known=known)


def _name(
    original: str, agent: str, table: Mapping[str, Any], servers: Mapping[str, Any]
) -> tuple[str, bool]:
    """A server's name behind upwell, and whether upwell already has this server. If the original
    name is taken, the agent's name is added, then a number."""
    for name in _names(original, agent):
        if name not in servers:
            return name, False
        if compared(servers[name]) == compared(table):
            return name, True
    raise ConfigError(f"no free name for {original!r}", hint="remove some servers")


def _names(original: str, agent: str) -> Iterable[str]:
    base_name = re.sub(r"[^a-zA-Z0-9_-]+", "-", original)
    base_name = re.sub(r"([_-])[_-]+", r"\1", base_name).strip("_-") or agent
    endings = ["", f"-{agent}", *(f"-{agent}-{number}" for number in range(2, 100))]
    for ending in endings:
        name = base_name[: MAX_SERVER_NAME_CHARS - len(ending)].rstrip("_-") + ending
        if _is_allowed(name):
            yield name


def _is_allowed(name: str) -> bool:
    try:
        check_server_name(name)
    except UsageError:
        return False
    return True
