"""Gives an agent its servers back if the record of what upwell took from it is lost: from a backup
beside the agent's file, or else from `config.toml`."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from upwell.ground.errors import ConfigError
from upwell.hosts.install import FilePlan, backups_of, readable
from upwell.hosts.installation import Installation
from upwell.hosts.servers import ServerFile

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


def improvised(
    file: ServerFile,
    installation: Installation,
    plan: FilePlan,
    servers: Servers,
    absent: Collection[str] = (),
    lost: Collection[str] = (),
) -> FilePlan:
    """The plan that replaces our entry by the servers that were there before, as far as that can
    still be known. `plan` would only remove our entry. `absent` names servers that upwell took
    from agents and that `config.toml` no longer has, and `lost` those of them that no agent's file
    and no backup has either.

    Raises:
        ConfigError: a server is nowhere to be found, or it is unknown whether there were any.
    """
    now = plan.before or ""
    copies = {path: text for path in backups_of(plan.path) if (text := readable(path))}
    exact = {
        path: text for path, text in copies.items() if _leads_to(file, installation, text, now)
    }
    if len(set(exact.values())) == 1:
        (path, text), *_ = exact.items()
        return replace(plan, after=text, source=str(path))
    if lost:
        raise ConfigError(
            f"upwell took {', '.join(lost)} from your agents, and neither a backup nor config.toml "
            f"has {'it' if len(lost) == 1 else 'them'} any more",
            hint="the file was not changed; to go on, remove its entry `upwell` by hand",
        )
    # A backup may be old. What the user has removed since is no longer in config.toml.
    known = None if absent or not servers else [compared(server) for server in servers.values()]
    moved = {path: _moved(file, text, known) for path, text in copies.items()}
    found = {path: text for path, text in moved.items() if text}
    texts, source = list(found.values()), ", ".join(map(str, found))
    if not found and servers:
        texts, source = [file.holding(servers)], f"all servers of config.toml: {', '.join(servers)}"
    if not texts:
        raise ConfigError(
            "upwell's record of its servers is lost, and neither a backup nor config.toml has any",
            hint="the file was not changed; if there were none, remove its entry `upwell` by hand",
        )
    return replace(plan, after=file.without_ours(now, texts), source=source)


def compared(server: Any) -> dict[str, Any]:
    """The part of a server by which two are the same."""
    value = server.unwrap() if hasattr(server, "unwrap") else server
    return {key: value[key] for key in _COMPARED if value.get(key)}


def _leads_to(file: ServerFile, installation: Installation, earlier: str, now: str) -> bool:
    """True if upwell would turn `earlier`, which has servers, into exactly `now`."""
    try:
        return bool(file.moved(earlier)) and file.with_ours(earlier, installation) == now
    except ConfigError:
        return False


def _moved(file: ServerFile, earlier: str, known: Collection[Mapping[str, Any]] | None) -> str:
    """The servers in a backup that are among `known`, or all."""
    try:
        return file.moved(earlier, only=lambda table: known is None or compared(table) in known)
    except ConfigError:
        return ""
