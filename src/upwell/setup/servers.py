"""Adds and removes upstream servers in `config.toml`, keeping its comments and order."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit

from upwell.ground.errors import ConfigError, UsageError
from upwell.ground.files import exclusively
from upwell.ground.home import Home, default_home
from upwell.ground.names import check_server_name
from upwell.setup.config_file import read_document, write_document


def add_server(
    name: str,
    command: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    home: Path | None = None,
    *,
    url: str = "",
    headers: Mapping[str, str] | None = None,
    transport: str = "",
    auth: str = "",
) -> Path:
    """Write `[server.NAME]`: a command with its environment, or a URL with its headers.

    Raises:
        UsageError: the name is invalid or taken.
        ConfigError: the file is not TOML. It stays unchanged.
        StoreUnwritable: the file cannot be written.
    """
    check_server_name(name)
    files = Home(home or default_home()).prepare()
    with exclusively(files.config_file):
        document = read_document(files.config_file)
        servers = document.setdefault("server", tomlkit.table(is_super_table=True))
        if name in servers:
            raise UsageError(
                f"server {name!r} already exists", hint=f"run `upwell remove {name}` first"
            )
        servers[name] = written(
            {
                "url": url,
                "command": "" if url else command[0],
                "args": list(command[1:]),
                "transport": transport,
                "auth": auth,
                "env": dict(env or {}),
                "headers": dict(headers or {}),
            }
        )
        write_document(files.config_file, document)
    return files.config_file


def set_auth(name: str, home: Path | None = None) -> Path:
    """Record that a server needs a login.

    Raises:
        ConfigError: there is no such server, or the file is not TOML.
        StoreUnwritable: the file cannot be written.
    """
    files = Home(home or default_home()).prepare()
    with exclusively(files.config_file):
        document = read_document(files.config_file)
        server = document.get("server", {}).get(name)
        if server is None:
            raise ConfigError(f"no server {name!r}", hint="`upwell list` lists them")
        server["auth"] = "oauth"
        write_document(files.config_file, document)
    return files.config_file


def written(server: Mapping[str, Any]) -> tomlkit.items.Table:
    """The server as a TOML table without empty values. Nested tables are inline."""
    entry = tomlkit.table()
    for key, value in server.items():
        if isinstance(value, Mapping) and value:
            table = tomlkit.inline_table()
            table.update(value)
            entry[key] = table
        elif value:
            entry[key] = value
    return entry


def remove_server(name: str, home: Path | None = None) -> Path:
    """Remove `[server.NAME]`.

    Raises:
        ConfigError: there is no such server, or the file is not TOML.
        StoreUnwritable: the file cannot be written.
    """
    files = Home(home or default_home()).prepare()
    with exclusively(files.config_file):
        document = read_document(files.config_file)
        servers = document.get("server", {})
        if name not in servers:
            raise ConfigError(f"no server {name!r}", hint="`upwell list` lists them")
        del servers[name]
        if not servers:
            del document["server"]
        write_document(files.config_file, document)
    return files.config_file
