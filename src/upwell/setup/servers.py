"""Adding and removing upstream servers in `config.toml`, comments and order kept."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from upwell.ground.errors import ConfigError, UsageError
from upwell.ground.files import exclusively, read_whole, write_whole, writing
from upwell.ground.home import Home, default_home
from upwell.ground.names import check_server_name


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
    """Write `[server.NAME]`: a command with its environment, or an address with its headers. Gives
    the file.

    Raises:
        UsageError: the name will not do, or is taken.
        ConfigError: the file is not TOML; it is left alone.
    """
    check_server_name(name)
    files = Home(home or default_home()).prepare()
    with exclusively(files.config_file):
        document = read_document(files.config_file)
        servers = document.setdefault("server", tomlkit.table(is_super_table=True))
        if name in servers:
            raise UsageError(
                f"there is a server {name!r} already", hint=f"upwell remove {name} first"
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
    """Write that a server is let in by a login. Gives the file.

    Raises:
        ConfigError: there is no such server.
    """
    files = Home(home or default_home()).prepare()
    with exclusively(files.config_file):
        document = read_document(files.config_file)
        server = document.get("server", {}).get(name)
        if server is None:
            raise ConfigError(f"there is no server {name!r}", hint="`upwell list` shows them")
        server["auth"] = "oauth"
        write_document(files.config_file, document)
    return files.config_file


def written(server: Mapping[str, Any]) -> tomlkit.items.Table:
    """A server as it stands in the file: what is empty is left out, tables are on one line."""
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
    """Take `[server.NAME]` out. Gives the file.

    Raises:
        ConfigError: there is no such server.
    """
    files = Home(home or default_home()).prepare()
    with exclusively(files.config_file):
        document = read_document(files.config_file)
        servers = document.get("server", {})
        if name not in servers:
            raise ConfigError(f"there is no server {name!r}", hint="`upwell list` shows them")
        del servers[name]
        if not servers:
            del document["server"]
        write_document(files.config_file, document)
    return files.config_file


def read_document(path: Path) -> tomlkit.TOMLDocument:
    """`config.toml` with its comments, empty where there is none.

    Raises:
        ConfigError: it is not TOML.
    """
    try:
        return tomlkit.parse(read_whole(path))
    except FileNotFoundError:
        return tomlkit.document()
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} is not TOML: {error}",
            origin=str(path),
            hint="mend it first; it was not touched",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", origin=str(path), hint="check what it is"
        ) from error


def write_document(path: Path, document: tomlkit.TOMLDocument) -> None:
    """Write it whole.

    Raises:
        StoreUnwritable: it cannot be written.
    """
    with writing(path):
        write_whole(path, tomlkit.dumps(document))
