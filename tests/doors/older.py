"""Homes as older versions of upwell left them."""

import hashlib
import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from upwell.ground.files import Home
from upwell.hosts import server_files
from upwell.hosts.install import Installer
from upwell.hosts.installation import Installation
from upwell.setup.takeover import Clients

PROGRAM = str(Path(sys.executable).with_name("upwell"))


def moved_by_init(
    home: Path,
    environment: Mapping[str, str],
    project: Path | None = None,
    command: tuple[str, ...] = (PROGRAM, "serve"),
) -> None:
    """Move the servers of every agent behind the gateway, as `upwell init` of version 0.2.0 did."""
    user = Path(environment["HOME"])
    installation = Installation(user_folder=user, environment=environment, command=command)
    files = Home(home).prepare()
    clients = Clients(installation, files, project)
    clients.take(clients.adding().config)
    installer = Installer(installation, files.clients_file, server_files(project))
    done: set[Path] = set()
    for agent in installer.present():
        path = installer.path_of(agent).resolve()
        if path not in done:
            installer.apply(installer.installing(agent))
        done.add(path)


def moved_by_setup(
    home: Path, files: Sequence[Path], agents: Sequence[str] = ("claude", "codex")
) -> None:
    """Record that it was `setup` of upwell 0.2.0 that moved the servers in these files of agents
    behind the gateway, and not `init`."""
    config = (home / "config.toml").read_text()
    change = {
        "before": None,
        "written": hashlib.sha256(config.encode()).hexdigest(),
        "servers": list(tomllib.loads(config)["server"]),
    }
    record = {
        "hooks": [],
        "clients": list(agents),
        "files": [str(file) for file in files],
        "config": change,
        "learned": {},
    }
    (home / "setup.json").write_text(json.dumps(record))
