"""upwell's own tools and resources, limited to what a principal (a user of the gateway) may use."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from upwell.gateway.clients import Client
from upwell.ground.types.principal import OWNER, Principal
from upwell.ground.types.rpc import Reply
from upwell.tools.base import Toolbox
from upwell.tools.resources import Resources

MAX_TOOLBOXES = 500
NameOf = Callable[[str, str], tuple[str, Sequence[str]]]
"""Returns a server's own name for a tool, and all known names of the server's tools."""


class ToolsAndResources(Protocol):
    """The part of an app that makes the tools and resources of a principal."""

    def toolbox(self, principal: Principal, name_of: NameOf | None) -> Toolbox: ...

    def resources(self, principal: Principal) -> Resources: ...


class Toolboxes:
    """Lists the same tools for all principals, and runs each call in its caller's toolbox."""

    def __init__(self, own: ToolsAndResources, name_of: NameOf) -> None:
        self._own = own
        self._name_of = name_of
        self._made: dict[Principal, Toolbox] = {}

    def listed(self) -> Sequence[Mapping[str, Any]]:
        return self._of(OWNER).listed()

    async def call(self, name: str, args: Mapping[str, Any], client: Client) -> Reply:
        return await self._of(client.principal).call(name, args, client.session)

    def _of(self, principal: Principal) -> Toolbox:
        if principal not in self._made:
            if len(self._made) >= MAX_TOOLBOXES:
                self._made.clear()
            self._made[principal] = self._own.toolbox(principal, self._name_of)
        return self._made[principal]


class SeenResources:
    """Lists the same URIs for all principals; each read returns only what its reader may see."""

    def __init__(self, own: ToolsAndResources) -> None:
        self._own = own

    def listed(self) -> Sequence[Mapping[str, Any]]:
        return self._own.resources(OWNER).listed()

    def templates(self) -> Sequence[Mapping[str, Any]]:
        return self._own.resources(OWNER).templates()

    async def read(self, uri: str, client: Client) -> Sequence[Mapping[str, Any]]:
        return await self._own.resources(client.principal).read(uri)
