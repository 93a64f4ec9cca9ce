"""Adds a project's folder to `projects.exclude` (`upwell off --project`) and removes it again
(`upwell on --project`).
"""

import glob
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import tomlkit

from upwell.ground.errors import ConfigError, UsageError
from upwell.ground.files import exclusively
from upwell.ground.home import Home, default_home
from upwell.ground.pause import ProjectOptions
from upwell.ground.project import project_of
from upwell.setup.config_file import read_document, write_document


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
