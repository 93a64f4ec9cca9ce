"""Finds the project of a memory if the other program stored only the project's name."""

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeGuard

from msgspec import Struct, field

from upwell.ground.errors import UsageError
from upwell.ground.foreign import read_text
from upwell.ground.project import project_of, repository_of
from upwell.migration.base import StorePlace

NO_PROJECT = ("", "unknown-project", "default")


class Projects(Struct, frozen=True):
    """The folders of projects, keyed by name. `given` comes from the user. `known` holds the
    folders on this machine, each under the last part of its path and under Claude Code's name for
    the project. With `everywhere`, a name with no known folder, or with several, means every
    project.
    """

    given: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    everywhere: bool = False

    def place(self, name: str) -> tuple[str | None, str]:
        """Return the folder of the project `name` and "". If the folder is unknown or ambiguous,
        return None and the reason. The pair `(None, "")` means every project.
        """
        if name in NO_PROJECT:
            return None, ""
        if name in self.given:
            return self.given[name], ""
        folders = self.known.get(name, ())
        if len(folders) == 1:
            return folders[0], ""
        if self.everywhere:
            return None, ""
        count = f"{len(folders)} folders are called" if folders else "no known folder is called"
        return None, f"{count} {name}: pass --project {name}=FOLDER, or --everywhere"


def projects_at(
    place: StorePlace, given: Iterable[str] = (), *, everywhere: bool = False
) -> Projects:
    """The projects that the user gave as NAME=FOLDER, the repository around the working directory,
    and the folders in which Claude Code has worked.

    Raises:
        UsageError: an item of `given` is not NAME=FOLDER, or the folder does not exist.
    """
    known: dict[str, dict[str, None]] = defaultdict(dict)
    for folder in (repository_of(str(place.folder)), *_folders_of_claude(place)):
        if folder and os.path.isdir(folder):
            root = project_of(folder) or folder
            known[os.path.basename(root)].setdefault(root)
            # Claude Code keeps the project's files in a folder with this name.
            known[re.sub("[^a-zA-Z0-9]", "-", folder)].setdefault(root)
    return Projects(
        given=dict(map(_assignment, given)),
        known={name: tuple(roots) for name, roots in known.items()},
        everywhere=everywhere,
    )


def _folders_of_claude(place: StorePlace) -> list[str]:
    try:
        listed = json.loads(read_text(place.folder_named("CLAUDE_CONFIG_DIR", "") / ".claude.json"))
    except (UsageError, ValueError, RecursionError):
        return []
    projects = listed.get("projects") if isinstance(listed, dict) else None
    return [name for name in projects if name.startswith("/")] if _is_table(projects) else []


def _is_table(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def _assignment(item: str) -> tuple[str, str]:
    name, _, folder = item.partition("=")
    path = Path(os.path.expanduser(folder))
    if not name or not folder or not path.is_dir():
        raise UsageError(
            f"--project {item!r} is not NAME=FOLDER with an existing folder",
            hint="for example --project shop=~/shop",
        )
    return name, project_of(str(path.resolve())) or ""
