"""upwell's own tools and resources, as each principal may use them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from upwell.app.files import secret_of
from upwell.config import Config
from upwell.gateway.clients import Client
from upwell.ground.types.principal import OWNER, Principal
from upwell.ground.types.rpc import Reply
from upwell.tools.base import Toolbox
from upwell.tools.resources import Resources
from upwell.web.tokens import shared_token


class Toolboxes:
    """The same list of tools for all principals; each call runs in its caller's toolbox."""

    def __init__(self, make: Callable[[Principal], Toolbox]) -> None:
        self._make = make
        self._made: dict[Principal, Toolbox] = {}

    def listed(self) -> Sequence[Mapping[str, Any]]:
        return self._of(OWNER).listed()

    async def call(self, name: str, args: Mapping[str, Any], client: Client) -> Reply:
        return await self._of(client.principal).call(name, args, client.session)

    def _of(self, principal: Principal) -> Toolbox:
        if principal not in self._made:
            self._made[principal] = self._make(principal)
        return self._made[principal]


class SeenResources:
    """The same URIs for all principals; each read returns the content that its reader may see."""

    def __init__(self, make: Callable[[Principal], Resources]) -> None:
        self._make = make

    def listed(self) -> Sequence[Mapping[str, Any]]:
        return self._make(OWNER).listed()

    def templates(self) -> Sequence[Mapping[str, Any]]:
        return self._make(OWNER).templates()

    async def read(self, uri: str, client: Client) -> Sequence[Mapping[str, Any]]:
        return await self._make(client.principal).read(uri)


def team_token(config: Config) -> str:
    """The owner's token on all machines of a team, "" for a home without a team."""
    if not config.home.is_shared:
        return ""
    return shared_token(config.home.team_token_file, secret_of(config))
