"""What upwell does with the MCP servers of agents: wraps them in their places and unwraps them,
copies them to `config.toml` for the gateway, and gives back those that an earlier version moved
there. If the record of what it took is lost, they come from a backup beside the agent's file, or
else from `config.toml`. A file that cannot be read is reported; the others are still read.
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
from upwell.ground.files import Home, exclusively
from upwell.ground.names import MAX_SERVER_NAME_CHARS, check_server_name
from upwell.hosts import server_files
from upwell.hosts.install import FilePlan, Installer, backups_of, readable
from upwell.hosts.installation import Installation
from upwell.hosts.plugins import WrappedServers
from upwell.hosts.servers import ServerEntry, ServerFile
from upwell.setup.config_file import read_document, write_document, written

_COMPARED = ("command", "args", "env", "cwd", "url", "headers", "transport")
Servers = Mapping[str, Mapping[str, Any]]
"""The servers of `config.toml`, keyed by name."""


class GivingBack(Struct):
    """What gives the agents their servers back. `settled` are files on record that need no change.
    `refused` gives the reason for each file that cannot be changed. `files` are all files that may
    hold servers, with their agents.
    """

    plans: list[FilePlan] = field(default_factory=list)
    settled: list[FilePlan] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    files: list[tuple[str, Path]] = field(default_factory=list)


def compared(server: Any) -> dict[str, Any]:
    """The part of a server by which two are the same."""
    value = server.unwrap() if hasattr(server, "unwrap") else server
    return {key: value[key] for key in _COMPARED if value.get(key)}


class ServerPlace(Struct, frozen=True):
    """A server in an agent's file, and why it is not wrapped there, or ""."""

    client: str
    name: str
    left: str = ""


class WrappingPlan(Struct):
    """Changes of agents' files. `refused` gives the reason for each file that cannot be
    changed."""

    files: list[FilePlan] = field(default_factory=list)
    places: list[ServerPlace] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


class Wrapping(Installer):
    """Wraps the servers in `files`, keyed by name. `installation.command` is upwell's launcher of
    servers."""

    def __init__(
        self, installation: Installation, record: Path, files: Mapping[str, ServerFile]
    ) -> None:
        # In the user's home, a project's file may be that of the user.
        names: dict[Path, str] = {}
        for name, file in files.items():
            names.setdefault(file.path(installation).resolve(), name)
        self._wrapped = {name: WrappedServers(files[name]) for name in names.values()}
        super().__init__(installation, record, self._wrapped)

    def wrapping(self, given_back: Mapping[Path, str] | None = None) -> WrappingPlan:
        """The plan that wraps every server that can be wrapped. `given_back` is the content that
        some files will have by then."""
        plan = WrappingPlan()
        for name in self.present():
            try:
                text = (given_back or {}).get(self.path_of(name).resolve())
                places = self._wrapped[name].places(self.text_of(name) if text is None else text)
                plan.files.append(self.installing(name, text))
                plan.places += [ServerPlace(name, server, left) for server, left in places]
            except (UpwellError, OSError) as error:
                plan.refused[str(self.path_of(name))] = str(error)
        return plan

    def unwrapping(self) -> WrappingPlan:
        """The plan that unwraps every server. It needs no record. Files on record are included even
        if they need no change, so that applying their plans clears the record."""
        plan = WrappingPlan()
        for name in self._wrapped:
            recorded = self.paths(name)
            for path in dict.fromkeys([*recorded, self.path_of(name)]):
                try:
                    change = self.uninstalling(name, path)
                except (UpwellError, OSError) as error:
                    plan.refused[str(path)] = str(error)
                    continue
                if change.changes or path in recorded:
                    plan.files.append(change)
        return plan

    def is_recorded(self, plan: FilePlan) -> bool:
        """True if the record names the file of this plan."""
        return plan.path in self.paths(plan.agent)


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


class Clients(Installer):
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
        files = {name: replace(file, leave=leave) for name, file in server_files(project).items()}
        self._servers = files
        self._here: dict[str, ServerFile] = {}
        places: set[Path] = set()
        for name, client in files.items():
            path = client.path(installation).resolve()
            if path not in places and client.is_present(installation):
                self._here[name] = client
            places.add(path)
        super().__init__(installation, home.clients_file, files)
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
        for name, client in self._here.items():
            try:
                entries = client.entries(self.text_of(name))
            except (UpwellError, OSError) as error:
                addition.refused[str(client.path(self._installation))] = str(error)
                continue
            addition.servers += [
                _added(name, client.agent, entry, servers) for entry in entries if not entry.ours
            ]
        after = tomlkit.dumps(document) if addition.added else before
        addition.config = FilePlan("config", self._home.config_file, before, after)
        return addition

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
            elif path in self.paths(name):
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
        """The plan that gives a file its servers back. If the record is lost, our entry is replaced
        by the servers that were there before, as far as that can still be known. `absent` names
        servers that upwell took from agents and that `config.toml` no longer has, and `lost` those
        of them that no agent's file and no backup has either.

        Raises:
            ConfigError: a server is nowhere to be found, or it is unknown whether there were any.
        """
        plan, file = self.uninstalling(name, path), self._servers[name]
        now = plan.before
        if now is None or not file.has_ours(now) or self.moved(name, path) is not None:
            return plan
        copies: dict[Path, str] = {}
        exact: dict[Path, str] = {}
        for copy in backups_of(plan.path):
            with contextlib.suppress(ConfigError):
                if (text := readable(copy)) and file.moved(text):
                    copies[copy] = text
                    if file.with_ours(text, self._installation) == now:
                        exact[copy] = text
        if len(set(exact.values())) == 1:
            (copy, text), *_ = exact.items()
            return replace(plan, after=text, source=str(copy))
        if lost:
            raise ConfigError(
                f"upwell took {', '.join(lost)} from your agents, and neither a backup nor "
                f"config.toml has {'it' if len(lost) == 1 else 'them'} any more",
                hint="the file was not changed; to go on, remove its entry `upwell` by hand",
            )
        # A backup may be old. What the user has removed since is no longer in config.toml.
        known = None if absent or not servers else list(map(compared, servers.values()))
        moved = {
            copy: file.moved(text, only=lambda table: known is None or compared(table) in known)
            for copy, text in copies.items()
        }
        found = {copy: text for copy, text in moved.items() if text}
        texts, source = list(found.values()), ", ".join(map(str, found))
        if not found and servers:
            texts = [file.holding(servers)]
            source = f"all servers of config.toml: {', '.join(servers)}"
        if not texts:
            raise ConfigError(
                "upwell's record of its servers is lost, and neither a backup nor config.toml has "
                "any",
                hint="the file was not changed; if there were none, remove its entry `upwell` by "
                "hand",
            )
        return replace(plan, after=file.without_ours(now, texts), source=source)

    def _lost(self, names: Sequence[str], files: Sequence[tuple[str, Path]]) -> list[str]:
        """Those of these servers that no agent's file, no backup and no record has."""
        lost = list(names)
        for name, path in files if lost else ():
            file, recorded = self._servers[name], self.moved(name, path) or ()
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
                entries = replace(self._servers[name], leave=()).entries(text)
                held += [compared(entry.table) for entry in entries]
        servers = read_document(self._home.config_file).get("server", {})
        return [name for name in names if name in servers and compared(servers[name]) not in held]

    def _written(self) -> list[tuple[str, Path]]:
        """The files that may have our entries, with their agents. Files in other projects are left
        out."""
        here = [
            (name, client.path(self._installation).resolve()) for name, client in self._here.items()
        ]
        recorded = [(name, path.resolve()) for name in server_files() for path in self.paths(name)]
        return list(dict.fromkeys([*here, *recorded]))


def _added(client: str, agent: str, entry: ServerEntry, servers: Any) -> AgentServer:
    """Add the server to `servers`, unless it cannot be there or already is."""
    table = entry.table
    if not table:
        return AgentServer(client, entry.name, table, left=entry.left)
    for name in _names(entry.name, agent):
        known = name in servers
        if known and compared(servers[name]) != compared(table):
            continue
        if not known:
            servers[name] = written(table)
        return AgentServer(client, entry.name, table, name, known=known)
    raise ConfigError(f"no free name for {entry.name!r}", hint="remove some servers")


def _names(original: str, agent: str) -> Iterable[str]:
    """The names that a server may have behind upwell: its own, with the agent's name, with a
    number."""
    base_name = re.sub(r"[^a-zA-Z0-9_-]+", "-", original)
    base_name = re.sub(r"([_-])[_-]+", r"\1", base_name).strip("_-") or agent
    endings = ["", f"-{agent}", *(f"-{agent}-{number}" for number in range(2, 100))]
    for ending in endings:
        name = base_name[: MAX_SERVER_NAME_CHARS - len(ending)].rstrip("_-") + ending
        with contextlib.suppress(UsageError):
            check_server_name(name)
            yield name
