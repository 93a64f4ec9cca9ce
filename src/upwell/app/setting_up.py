"""`upwell setup`: sets up every agent on this machine, and undoes the setup. It wraps the agents'
servers in their places, installs hooks, and records its changes in `setup.json`. Servers that an
earlier version moved behind the gateway are first given back. Hooks are written after servers and
removed before them, so that undoing restores the original bytes of a file that contains both.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

import tomlkit
from msgspec import Struct, field
from msgspec.structs import asdict

from upwell.app.capture import Holdings
from upwell.ground.errors import ConfigError, StoreUnwritable, UpwellError
from upwell.ground.files import Home, exclusively, read_regular_file, write_atomically, writing
from upwell.hook import control
from upwell.hook.control import daemon_at, end
from upwell.hook.options import REPLACING
from upwell.hosts import HOSTS
from upwell.hosts.install import FilePlan, Installer, digest
from upwell.setup.config_file import read_document
from upwell.setup.proof import Proof, prove
from upwell.setup.record import (
    CAPTURE,
    LESSONS,
    SHORTEN,
    ConfigChange,
    SetupRecord,
    add_to_record,
    config_plan,
    read_record,
    reduce_record,
    switches_on,
)
from upwell.setup.takeover import Clients, GivingBack, WrappingPlan

Report = Callable[[str, str], None]
"""Receives the path of a file and the reason why it could not be changed, or "" if it was
changed.
"""


class SetupPart(StrEnum):
    """What setup can set up."""

    HOOKS = "hooks"
    SERVERS = "servers"
    SHORTEN = "shorten"
    LESSONS = "lessons"


USUAL = frozenset({SetupPart.HOOKS, SetupPart.SERVERS})
"""The parts that setup sets up unless it is told otherwise."""


class SetupPlan(Struct):
    """Everything that setup would change: `config.toml`, the files with the agents' servers
    (`wrapping`), and the agents' `hooks`. `back` gives the agents the servers back that an earlier
    setup moved behind the gateway; `wrapping` then starts from there. `plugins` are the agents that
    have upwell's plugin and therefore need no hooks. `refused` gives the reason for each file that
    cannot be changed.
    """

    config: FilePlan
    back: GivingBack
    wrapping: WrappingPlan
    hooks: list[FilePlan] = field(default_factory=list)
    plugins: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def files(self) -> list[FilePlan]:
        """The files that configure servers, with `config.toml` first."""
        return [self.config, *self.wrapping.files]

    @property
    def changes(self) -> bool:
        return any(plan.changes for plan in (*self.files, *self.hooks, *self.back.plans))


class UndoPlan(Struct):
    """Everything that undoing the setup would change: `hooks` contains the agents' hooks, and
    `files` contains the agents' servers and `config.toml`. `refused` is as in `SetupPlan`. `kept`
    names the servers that stay in `config.toml`, because no agent has them. `others` are files that
    use upwell although this setup did not change them, and the commands that change them back.
    `is_recorded`: the record names changes, even if none of them is left to be undone.
    """

    hooks: list[FilePlan] = field(default_factory=list)
    files: list[FilePlan] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    others: list[tuple[str, str]] = field(default_factory=list)
    is_recorded: bool = False


class SettingUp:
    """Plans a setup, writes it, tries it out and undoes it. `clients` changes the agents' servers,
    and `installer` changes their hooks.
    """

    def __init__(self, clients: Clients, installer: Installer, home: Home) -> None:
        self._clients = clients
        self._installer = installer
        self.home = home

    @property
    def damage(self) -> list[str]:
        """What is wrong with the records of hooks and servers."""
        return [fault for fault in (self._installer.damage, self._clients.damage) if fault]

    def plan(self, parts: Collection[SetupPart] = USUAL, *, lessons: str = "") -> SetupPlan:
        """The changes that are still to be made. Hooks come with learning at the end of each turn.
        Shortening is that of results from the agents' own tools, for the agents that allow it.
        `lessons` is the value for `lessons.model`, "" to leave it as it is.

        Raises:
            ConfigError: `config.toml` cannot be read.
        """
        path = self.home.config_file
        text = tomlkit.dumps(read_document(path)) if path.exists() else None
        present = self._installer.present() if SetupPart.SHORTEN in parts else ()
        shorten = [agent for agent in present if agent in REPLACING]
        capture = SetupPart.HOOKS in parts
        config = config_plan(path, text, text, capture=capture, shorten=shorten, lessons=lessons)
        plan = SetupPlan(config, GivingBack(), WrappingPlan())
        if SetupPart.SERVERS in parts:
            plan.back = self._given_back(self._record())
            given_back = {file.path.resolve(): file.after or "" for file in plan.back.plans}
            plan.wrapping = self._clients.wrapping.wrapping(given_back)
            plan.refused = plan.back.refused | plan.wrapping.refused
        for agent in self._installer.present() if SetupPart.HOOKS in parts else ():
            if self._installer.plugin_of(agent) and agent not in self._installer.installed():
                plan.plugins.append(agent)
                continue
            try:
                plan.hooks.append(self._installer.installing(agent))
            except (UpwellError, OSError) as error:
                plan.refused[str(self._installer.path_of(agent))] = str(error)
        return plan

    def write(self, plan: SetupPlan, report: Report) -> None:
        """Carry out the plan, file by file. A file that cannot be written is reported, and the
        others are still written.

        Raises:
            ConfigError, StoreUnwritable: `config.toml` or the record cannot be written; no agent's
                file was changed.
        """
        # Before the first change, so that even an interrupted setup can be undone, and no agent
        # calls a launcher that does not exist.
        control.write_launchers(self.home)
        add_to_record(self.home.setup_file, self._record_of(plan))
        if plan.config.changes:
            self._clients.take(plan.config)
            report(str(self.home.config_file), "")
            self._end_daemon()
        self._apply((*plan.back.plans, *plan.back.settled), self._clients.apply, (), report)
        # Planned again, because servers may just have been given back.
        wrapping = self._clients.wrapping.wrapping() if plan.back.plans else plan.wrapping
        changed = [wrapped for wrapped in wrapping.files if wrapped.changes]
        self._apply(changed, self._clients.wrapping.apply, (), report)
        for hook_plan in plan.hooks:
            if hook_plan.changes:
                # Planned again, because some agents have servers and hooks in one file.
                with _reporting(hook_plan.path, report):
                    self._installer.apply(self._installer.installing(hook_plan.agent))

    def keep_learned(self, holdings: Holdings) -> None:
        """Record what setup learned from past sessions."""
        learned = {kind: tuple(sorted(keys)) for kind, keys in asdict(holdings).items()}
        add_to_record(self.home.setup_file, SetupRecord(learned=learned))

    def proofs(self, folder: str, environment: Mapping[str, str]) -> Iterator[Proof]:
        """Try upwell's hooks in each agent that has them, as if a session started in `folder`."""
        for agent in self._installer.installed():
            text = self._installer.text_of(agent)
            yield prove(HOSTS[agent], text, folder, environment, self._events_answered)

    def undoing(self, *, only_servers: bool = False) -> UndoPlan:
        """The changes that remove everything that setup wrote or, with `only_servers`, what
        concerns servers, in whichever way they came to upwell. If an agent has hooks and servers in
        one file, both plans start from its current content.

        Raises:
            ConfigError: `config.toml` is not TOML.
            StoreUnwritable: the record is damaged.
        """
        record = self._record(tolerant=only_servers)
        plan = UndoPlan(is_recorded=bool(record.hooks or record.clients or record.config))
        for agent, path in () if only_servers else self._hook_files(record):
            try:
                plan.hooks.append(self._installer.uninstalling(agent, path))
            except (UpwellError, OSError) as error:
                plan.refused[str(path)] = str(error)
        back = self._given_back(record, every=only_servers)
        unwrapping = self._unwrapping(record, every=only_servers)
        plan.refused |= back.refused | unwrapping.refused
        plan.kept = self._kept(record, back, done=False)
        config: list[FilePlan] = []
        if (change := record.config) and not only_servers:
            path = self.home.config_file
            before = read_regular_file(path).decode() if path.exists() else None
            config = [FilePlan("config", path, before, change.after(path, plan.kept))]
        plan.hooks = [hooks for hooks in plan.hooks if hooks.changes]
        plan.files = [file for file in (*back.plans, *unwrapping.files, *config) if file.changes]
        plan.others = [] if only_servers else self._others(record)
        plan.is_recorded = not only_servers and plan.is_recorded
        plan.is_recorded = plan.is_recorded or bool(plan.hooks or plan.files)
        return plan

    def _others(self, record: SetupRecord) -> list[tuple[str, str]]:
        hook_files = {str(path) for _, path in self._hook_files(record)}
        hooks = [
            (path, f"upwell hook uninstall {agent} --apply")
            for agent, path in self._installer.installed().items()
            if path not in hook_files
        ]
        back = self._clients.giving_back()
        servers = [str(plan.path) for plan in back.plans if not self._took_over(record, plan)]
        unwrapping = self._clients.wrapping.unwrapping()
        own = [plan.path for plan in self._unwrapping(record).files]
        servers += [str(p.path) for p in unwrapping.files if p.changes and p.path not in own]
        undoing = "upwell setup --undo --only servers"
        return [*hooks, *((path, undoing) for path in dict.fromkeys(servers))]

    def undo(self, report: Report, *, only_servers: bool = False) -> None:
        """Remove what `undoing()` plans. If that is everything and nothing fails, only the part of
        the record that concerns past sessions stays.

        Raises:
            StoreUnwritable: the record is damaged, or cannot be written.
        """
        record = self._record(tolerant=only_servers)
        faulty: set[Path] = set()

        def reported(path: str, why: str) -> None:
            faulty.update([Path(path).resolve()] if why else [])
            report(path, why)

        # In reverse order: if two agents share a folder, it was created for the first one, which
        # must therefore be undone last.
        for agent, file in () if only_servers else self._hook_files(record):
            # Even without a change, the record is updated: it may be that of an interrupted setup.
            with _reporting(file, reported):
                self._installer.apply(self._installer.uninstalling(agent, file))
        back = self._given_back(record, every=only_servers)
        self._apply((*back.plans, *back.settled), self._clients.apply, faulty, reported)
        # Planned now, because a file may have held upwell and wrapped servers.
        unwrapping = self._unwrapping(record, every=only_servers)
        self._apply(unwrapping.files, self._clients.wrapping.apply, faulty, reported)
        for path, why in (back.refused | unwrapping.refused).items():
            reported(path, why)
        if only_servers:
            return
        if record.config:
            with _reporting(self.home.config_file, reported):
                self._write_config(record, back)
        if not self._installer.installed():
            self._end_daemon()
        if not faulty:
            reduce_record(self.home.setup_file, undone=True)

    def _apply(
        self,
        plans: Sequence[FilePlan],
        apply: Callable[[FilePlan], object],
        faulty: Collection[Path],
        report: Report,
    ) -> None:
        """Undo changes of servers, except in files whose hooks could not be removed: while a file
        still has our hooks, its earlier content cannot be restored."""
        for plan in plans:
            if plan.path not in faulty:
                with _reporting(plan.path, report):
                    apply(plan)

    def learned(self) -> Holdings:
        """What setup learned from past sessions, according to its record.

        Raises:
            StoreUnwritable: the record is damaged.
        """
        learned = self._record().learned
        kinds = Holdings.__struct_fields__
        return Holdings(**{kind: frozenset(learned.get(kind, ())) for kind in kinds})

    @property
    def has_lessons(self) -> bool:
        """True if setup switched lessons on, and they were not forgotten since.

        Raises:
            StoreUnwritable: the record is damaged.
        """
        return self._record().lessons

    def forgot_learned(self) -> None:
        """Remove what setup learned from past sessions from the record, because it was dropped."""
        reduce_record(self.home.setup_file, forgotten=True)

    def _record(self, *, tolerant: bool = False) -> SetupRecord:
        try:
            return read_record(self.home.setup_file) or SetupRecord()
        except StoreUnwritable:
            if tolerant:
                return SetupRecord()
            raise

    def _hook_files(self, record: SetupRecord) -> list[tuple[str, Path]]:
        """The files whose hooks setup changed, the latest first, and those that are in no record,
        as in `_unwrapping()`."""
        files = [
            (agent, Path(path))
            for agent, path in self._installer.installed().items()
            if agent not in record.hooks
            and str(self.home.hook_launcher) in self._installer.text_of(agent)
            and Path(path) not in self._installer.paths(agent)
        ]
        for agent in reversed(record.hooks):
            recorded = [path for path in self._installer.paths(agent) if str(path) in record.files]
            files += [(agent, path) for path in recorded or [self._installer.path_of(agent)]]
        return files

    def _given_back(self, record: SetupRecord, *, every: bool = False) -> GivingBack:
        """What gives the agents of this record or, with `every`, all agents their servers back."""
        back = self._clients.giving_back(
            record.config.servers if record.config else (), record.files
        )
        if every:
            return back
        back.plans = [plan for plan in back.plans if self._took_over(record, plan)]
        back.settled = [plan for plan in back.settled if self._took_over(record, plan)]
        if not record.clients:
            back.refused = {}
        return back

    def _took_over(self, record: SetupRecord, plan: FilePlan) -> bool:
        """True if an earlier version moved the servers of this file, by `setup` or by `init`."""
        return _changed(record, plan) or plan.path in self._clients.paths(plan.agent)

    def _unwrapping(self, record: SetupRecord, *, every: bool = False) -> WrappingPlan:
        """What unwraps the servers in the files of this record, and in those of no record that run
        this home's launcher: they were set up before this home was lost. With `every`, those of all
        files."""
        wrapping = self._clients.wrapping
        plan = wrapping.unwrapping()
        if every:
            return plan
        plan.files = [
            file
            for file in plan.files
            if _changed(record, file)
            or (
                file.changes
                and str(self.home.server_launcher) in (file.before or "")
                and not wrapping.is_recorded(file)
            )
        ]
        plan.refused = plan.refused if record.clients else {}
        return plan

    def _kept(self, record: SetupRecord, back: GivingBack, *, done: bool) -> list[str]:
        """The servers that setup took and that no agent has, so that they stay in `config.toml`."""
        names = record.config.servers if record.config else ()
        return self._clients.missing(names, back, done=done)

    def _record_of(self, plan: SetupPlan) -> SetupRecord:
        config, change = plan.config, None
        if config.changes:
            change = ConfigChange(
                before=config.before,
                written=digest(config.after or ""),
                capture=switches_on(config, CAPTURE),
                shorten=switches_on(config, SHORTEN),
                lessons=switches_on(config, LESSONS),
            )
        files = plan.wrapping.files
        changed = [item for item in (*plan.hooks, *files) if item.changes]
        return SetupRecord(
            hooks=tuple(item.agent for item in plan.hooks if item.changes),
            clients=tuple(item.agent for item in files if item.changes),
            files=tuple(str(item.path) for item in changed),
            config=change,
            lessons=bool(change and change.lessons),
        )

    def _write_config(self, record: SetupRecord, back: GivingBack) -> None:
        path = self.home.config_file
        with exclusively(path), writing(path):
            kept = self._kept(record, back, done=True)
            text = record.config.after(path, kept) if record.config else None
            if text is None:
                path.unlink(missing_ok=True)
            else:
                write_atomically(path, text)
        if kept:
            stays = "this server stays" if len(kept) == 1 else "these servers stay"
            raise ConfigError(
                f"no agent has {', '.join(kept)}, so {stays} in config.toml",
                hint="add what you need to your agents; `upwell remove NAME` then removes it here",
            )

    def _events_answered(self) -> int:
        daemon = daemon_at(str(self.home.root))
        return int(daemon.state.get("answered", 0)) if daemon else 0

    def _end_daemon(self) -> None:
        """End the daemon. The next event starts a new one with the current configuration."""
        if daemon := daemon_at(str(self.home.root)):
            end(daemon)


def _changed(record: SetupRecord, plan: FilePlan) -> bool:
    return plan.agent in record.clients and (not record.files or str(plan.path) in record.files)


@contextmanager
def _reporting(path: Path, report: Report) -> Iterator[None]:
    try:
        yield
    except (UpwellError, OSError) as error:
        report(str(path), str(error))
    else:
        report(str(path), "")
