"""Reads and changes `config.toml`, keeping its comments and order.

Adds a project's folder to `projects.exclude` (`upwell off --project`) and removes it again
(`upwell on --project`).

Adds and removes upstream servers in `config.toml`, keeping its comments and order.
"""

import glob
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from upwell.ground.errors import ConfigError, UsageError
from upwell.ground.files import exclusively, read_regular_file, write_atomically, writing
from upwell.ground.home import Home, default_home
from upwell.ground.names import check_server_name
from upwell.ground.pause import ProjectOptions
from upwell.ground.project import project_of


def set_setting(
    section: str, name: str, value: bool | int | float | str, home: Path | None = None
) -> Path:
    """Write `name = value` to `[section]`.

    Raises:
        ConfigError: the file is not TOML. It stays unchanged.
        StoreUnwritable: the file cannot be written.
    """
    files = Home(home or default_home()).prepare()
    with exclusively(files.config_file):
        document = read_document(files.config_file)
        document.setdefault(section, tomlkit.table())[name] = value
        write_document(files.config_file, document)
    return files.config_file


def read_document(path: Path) -> tomlkit.TOMLDocument:
    """`config.toml` with its comments; empty if the file does not exist.

    Raises:
        ConfigError: the file is not TOML or cannot be read.
    """
    try:
        return tomlkit.parse(read_regular_file(path))
    except FileNotFoundError:
        return tomlkit.document()
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} is not TOML: {error}",
            origin=str(path),
            hint="fix it first; upwell did not change it",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}",
            origin=str(path),
            hint="check its permissions",
        ) from error


def write_document(path: Path, document: tomlkit.TOMLDocument) -> None:
    """Replace the file atomically.

    Raises:
        StoreUnwritable: the file cannot be written.
    """
    with writing(path):
        write_atomically(path, tomlkit.dumps(document))


def project_here(folder: str) -> str:
    """The project that contains a folder.

    Raises:
        UsageError: the project is the home folder or the root.
    """
    project = project_of(folder) or folder
    if project in ("/", str(Path.home()), os.path.realpath(Path.home())):
        raise UsageError(
            f"{project} is not a project",
            hint="run this in a project's folder; `upwell off` pauses upwell everywhere",
        )
    return project


def exclude_project(project: str, home: Path | None = None) -> Path:
    """Add the project to `projects.exclude`.

    Raises:
        ConfigError: the file is not TOML, or `projects.exclude` is not a list. The file stays
            unchanged.
        StoreUnwritable: the file cannot be written.
    """
    return _change(home, lambda patterns: [*_without(patterns, project), glob.escape(project)])


def include_project(project: str, home: Path | None = None) -> Path:
    """Remove the project from `projects.exclude`.

    Raises:
        ConfigError, StoreUnwritable: as in `exclude_project()`.
        UsageError: another pattern excludes the project.
    """

    def without(patterns: Sequence[str]) -> list[str]:
        rest = _without(patterns, project)
        if pattern := ProjectOptions(exclude=tuple(rest)).pattern_of(project):
            raise UsageError(
                f"projects.exclude has {pattern!r}, which matches {project} and perhaps others",
                hint="edit it in config.toml; `upwell config check` prints the file's path",
            )
        return rest

    return _change(home, without)


def _without(patterns: Sequence[str], project: str) -> list[str]:
    """The patterns except those that match only this folder."""
    own = {project, glob.escape(project)}
    return [
        pattern
        for pattern in patterns
        if "/" not in pattern or os.path.normpath(os.path.expanduser(pattern)) not in own
    ]


def _change(home: Path | None, change: Callable[[Sequence[str]], list[str]]) -> Path:
    files = Home(home or default_home()).prepare()
    with exclusively(files.config_file):
        document = read_document(files.config_file)
        section = document.setdefault("projects", tomlkit.table())
        patterns = section.get("exclude", []) if hasattr(section, "get") else None
        if not isinstance(patterns, list) or not all(isinstance(each, str) for each in patterns):
            raise ConfigError(
                "projects.exclude is not a list of patterns",
                origin=str(files.config_file),
                hint="fix it first; upwell did not change it",
            )
        section["exclude"] = change([str(pattern) for pattern in patterns])
        write_document(files.config_file, document)
    return files.config_file


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
