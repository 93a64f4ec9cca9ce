"""upwell's own tools and resources, limited to what a principal (a user of the gateway) may use."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache, partial
from typing import Any, Protocol

from upwell.app.results import secret_of
from upwell.config import Config
from upwell.gateway.calls.pipeline import Calls
from upwell.gateway.clients import Client
from upwell.ground.types.principal import OWNER, Principal
from upwell.ground.types.rpc import Reply
from upwell.tools.base import Toolbox
from upwell.tools.resources import Resources
from upwell.web.tokens import shared_token

MAX_TOOLBOXES = 500
NameOf = Callable[[str, str], tuple[str, Sequence[str]]]
"""Returns a server's own name for a tool, and all known names of the server's tools."""


class ToolsAndResources(Protocol):
    """The part of an app that makes the tools and resources of a principal."""

    def toolbox(self, principal: Principal, name_of: NameOf | None) -> Toolbox: ...

    def resources(self, principal: Principal) -> Resources: ...


class OfTenant(Protocol):
    """An app that stays open while it is used."""

    @property
    def app(self) -> ToolsAndResources: ...


class ManyTenants(Calls, Protocol):
    """The apps of a gateway's tenants, and the pipelines through which the tenants' calls go."""

    def of(self, tenant: str) -> AbstractAsyncContextManager[OfTenant]:
        """Open a tenant's app. An empty `tenant` opens the home's own app."""
        ...


class Toolboxes:
    """Lists the same tools for all principals, and runs each call in its caller's toolbox, in the
    app of the caller's tenant."""

    def __init__(
        self,
        own: ToolsAndResources,
        name_of: NameOf,
        tenants: ManyTenants | None = None,
    ) -> None:
        self._own = own
        self._name_of = name_of
        self._tenants = tenants
        self._made: dict[Principal, Toolbox] = {}

    def listed(self) -> Sequence[Mapping[str, Any]]:
        return self._of(OWNER).listed()

    async def call(self, name: str, args: Mapping[str, Any], client: Client) -> Reply:
        principal = client.principal
        if self._tenants is None or not principal.tenant:
            return await self._of(principal).call(name, args, client.session)
        async with self._tenants.of(principal.tenant) as opened:
            toolbox = opened.app.toolbox(principal, self._name_of)
            return await toolbox.call(name, args, client.session)

    def _of(self, principal: Principal) -> Toolbox:
        if principal not in self._made:
            if len(self._made) >= MAX_TOOLBOXES:
                self._made.clear()
            self._made[principal] = self._own.toolbox(principal, self._name_of)
        return self._made[principal]


class SeenResources:
    """Lists the same URIs for all principals; each read returns only what its reader may see."""

    def __init__(self, own: ToolsAndResources, tenants: ManyTenants | None = None) -> None:
        self._own = own
        self._tenants = tenants

    def listed(self) -> Sequence[Mapping[str, Any]]:
        return self._own.resources(OWNER).listed()

    def templates(self) -> Sequence[Mapping[str, Any]]:
        return self._own.resources(OWNER).templates()

    async def read(self, uri: str, client: Client) -> Sequence[Mapping[str, Any]]:
        principal = client.principal
        if self._tenants is None or not principal.tenant:
            return await self._own.resources(principal).read(uri)
        async with self._tenants.of(principal.tenant) as opened:
            return await opened.app.resources(principal).read(uri)


def team_token(config: Config) -> Callable[[], str] | None:
    """A function that returns the owner's token, which is the same on all machines of a team and
    changes with the team's secret. None for a home without a team."""
    if not config.home.is_shared:
        return None
    secret, path = secret_of(config), config.home.team_token_file
    token = lru_cache(maxsize=1)(partial(shared_token, path))
    token(secret())
    return lambda: token(secret())
