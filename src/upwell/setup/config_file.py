"""Reads and changes `config.toml`, keeping its comments and order: single settings, the projects in
which upwell is off, and upstream servers.

Every change raises `ConfigError` if the file is not TOML, which then stays unchanged, and
`StoreUnwritable` if it cannot be written. It returns the file's path.
"""

import glob
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from upwell.ground.errors import ConfigError, UsageError
from upwell.ground.files import (
    Home,
    default_home,
    exclusively,
    read_regular_file,
    write_atomically,
    writing,
)
from upwell.ground.names import check_server_name
from upwell.ground.pause import ProjectOptions
from upwell.ground.project import project_of


@contextmanager
def _changing(home: Path | None) -> Iterator[tuple[Path, tomlkit.TOMLDocument]]:
    """The file and its content, which is written at the end of the block."""
    path = Home(home or default_home()).prepare().config_file
    with exclusively(path):
        document = read_document(path)
        yield path, document
        write_document(path, document)


def set_setting(
    section: str, name: str, value: bool | int | float | str, home: Path | None = None
) -> Path:
    """Write `name = value` to `[section]`."""
    with _changing(home) as (path, document):
        document.setdefault(section, tomlkit.table())[name] = value
    return path


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
    """Add the project to `projects.exclude` (`upwell off --project`).

    Raises:
        ConfigError: `projects.exclude` is not a list.
    """
    return _exclude(home, lambda patterns: [*_without(patterns, project), glob.escape(project)])


def include_project(project: str, home: Path | None = None) -> Path:
    """Remove the project from `projects.exclude` (`upwell on --project`).

    Raises:
        ConfigError: `projects.exclude` is not a list.
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

    return _exclude(home, without)


def _without(patterns: Sequence[str], project: str) -> list[str]:
    """The patterns except those that match only this folder."""
    own = {project, glob.escape(project)}
    return [
        pattern
        for pattern in patterns
        if "/" not in pattern or os.path.normpath(os.path.expanduser(pattern)) not in own
    ]


def _exclude(home: Path | None, change: Callable[[Sequence[str]], list[str]]) -> Path:
    with _changing(home) as (path, document):
        section = document.setdefault("projects", tomlkit.table())
        patterns = section.get("exclude", []) if hasattr(section, "get") else None
        if not isinstance(patterns, list) or not all(isinstance(each, str) for each in patterns):
            raise ConfigError(
                "projects.exclude is not a list of patterns",
                origin=str(path),
                hint="fix it first; upwell did not change it",
            )
        section["exclude"] = change([str(pattern) for pattern in patterns])
    return path


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
    """
    check_server_name(name)
    with _changing(home) as (path, document):
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
    return path


def set_auth(name: str, home: Path | None = None) -> Path:
    """Record that a server needs a login.

    Raises:
        ConfigError: there is no such server.
    """
    with _changing(home) as (path, document):
        _server_in(document, name)["auth"] = "oauth"
    return path


def remove_server(name: str, home: Path | None = None) -> Path:
    """Remove `[server.NAME]`.

    Raises:
        ConfigError: there is no such server.
    """
    with _changing(home) as (path, document):
        _server_in(document, name)
        servers = document["server"]
        del servers[name]
        if not servers:
            del document["server"]
    return path


def _server_in(document: tomlkit.TOMLDocument, name: str) -> Any:
    server = document.get("server", {}).get(name)
    if server is None:
        raise ConfigError(f"no server {name!r}", hint="`upwell list` lists them")
    return server


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
