"""Wraps the agents' MCP servers in their places, and unwraps them."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from upwell.ground.errors import UpwellError
from upwell.hosts.install import FilePlan, Installer
from upwell.hosts.installation import Installation
from upwell.hosts.servers import ServerFile
from upwell.hosts.wrapped import WrappedServers


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


class Wrapping:
    """Wraps the servers in `files`, keyed by name. `installation.command` is upwell's launcher of
    servers."""

    def __init__(
        self, installation: Installation, record: Path, files: Mapping[str, ServerFile]
    ) -> None:
        self._installation = installation
        # In the user's home, a project's file may be that of the user.
        names: dict[Path, str] = {}
        for name, file in files.items():
            names.setdefault(file.path(installation).resolve(), name)
        self._files = {name: WrappedServers(files[name]) for name in names.values()}
        self._installer = Installer(installation, record, self._files)

    def wrapping(self, given_back: Mapping[Path, str] | None = None) -> WrappingPlan:
        """The plan that wraps every server that can be wrapped. `given_back` is the content that
        some files will have by then."""
        plan = WrappingPlan()
        for name in self._installer.present():
            file, path = self._files[name], self._installer.path_of(name).resolve()
            try:
                text = (given_back or {}).get(path)
                now = self._installer.text_of(name) if text is None else text
                places = file.places(now)
                plan.files.append(self._installer.installing(name, text))
                plan.places += [ServerPlace(name, server, left) for server, left in places]
            except (UpwellError, OSError) as error:
                plan.refused[str(self._installer.path_of(name))] = str(error)
        return plan

    def unwrapping(self) -> WrappingPlan:
        """The plan that unwraps every server. It needs no record. Files on record are included even
        if they need no change, so that applying their plans clears the record."""
        plan = WrappingPlan()
        for name, file in self._files.items():
            recorded = self._installer.paths(name)
            for path in dict.fromkeys([*recorded, file.path(self._installation)]):
                try:
                    change = self._installer.uninstalling(name, path)
                except (UpwellError, OSError) as error:
                    plan.refused[str(path)] = str(error)
                    continue
                if change.changes or path in recorded:
                    plan.files.append(change)
        return plan

    def is_recorded(self, plan: FilePlan) -> bool:
        """True if the record names the file of this plan."""
        return plan.path in self._installer.paths(plan.agent)

    def apply(self, plan: FilePlan) -> str:
        """See `Installer.apply()`."""
        return self._installer.apply(plan)
