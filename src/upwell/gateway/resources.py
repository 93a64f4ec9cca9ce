"""Resources in front: ours now. Those of upstreams are to be merged in here, by their addresses."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from upwell.gateway.eras import RESOURCE_NOT_FOUND, Envelope
from upwell.gateway.front import Method, Refused
from upwell.ground.errors import UsageError
from upwell.wire.peer import INVALID_PARAMS, Message
from upwell.wire.rawjson import RawObject, dumps


class LocalResources(Protocol):
    """Our own resources, as the gateway sees them: one more server."""

    def listed(self) -> Sequence[Mapping[str, Any]]:
        """MCP resource objects."""
        ...

    def templates(self) -> Sequence[Mapping[str, Any]]:
        """MCP resource templates."""
        ...

    async def read(self, uri: str) -> Sequence[Mapping[str, Any]]:
        """The contents of one.

        Raises:
            UsageError: there is none under this address.
        """
        ...


class ResourceFront:
    """Answers what an agent asks about resources, in either era."""

    def __init__(self, own: LocalResources) -> None:
        self._own = own

    def methods(self) -> Mapping[str, Method]:
        return {
            "resources/list": self._list,
            "resources/templates/list": self._templates,
            "resources/read": self._read,
        }

    async def _list(self, _: Message, envelope: Envelope | None) -> RawObject:
        return _listing("resources", self._own.listed(), envelope)

    async def _templates(self, _: Message, envelope: Envelope | None) -> RawObject:
        return _listing("resourceTemplates", self._own.templates(), envelope)

    async def _read(self, message: Message, envelope: Envelope | None) -> RawObject:
        uri = RawObject.parse(message.params).value("uri")
        if not isinstance(uri, str):
            raise Refused(INVALID_PARAMS, "resources/read needs the uri of a resource")
        try:
            contents = await self._own.read(uri)
        except UsageError as error:
            code = INVALID_PARAMS if envelope else RESOURCE_NOT_FOUND
            raise Refused(code, str(error), {"uri": uri}) from error
        return _listing("contents", contents, envelope)


def _listing(name: str, items: Sequence[Mapping[str, Any]], envelope: Envelope | None) -> RawObject:
    """A result of these items; the modern era says that nobody else may keep it, and not at all."""
    caching = {"ttlMs": 0, "cacheScope": "private"} if envelope else {}
    return RawObject.parse(dumps({name: list(items), **caching}))
