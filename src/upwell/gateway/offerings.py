"""Requests about prompts, resources and completions."""

from collections.abc import Mapping

from upwell.gateway.client import Caller, text_of
from upwell.gateway.desk import Desk, Method
from upwell.gateway.directory import OWN_SCHEME, Directory, LocalResources
from upwell.gateway.eras import RESOURCE_NOT_FOUND
from upwell.gateway.refusal import Refused
from upwell.gateway.upstream import Upstream
from upwell.ground.errors import UsageError
from upwell.ground.types import Reply
from upwell.wire.peer import INVALID_PARAMS
from upwell.wire.rawjson import RawObject, dumps, kind_of

NO_COMPLETIONS = b'{"completion":{"values":[],"total":0,"hasMore":false}}'


class Offerings:
    """Answers them out of the directory; `desk` lets a server ask the client in between."""

    def __init__(self, desk: Desk, directory: Directory, own: LocalResources) -> None:
        self._desk = desk
        self._directory = directory
        self._own = own

    def methods(self) -> Mapping[str, Method]:
        return {
            "prompts/list": self._prompts,
            "prompts/get": self._prompt,
            "resources/list": self._resources,
            "resources/templates/list": self._templates,
            "resources/read": self._read,
            "completion/complete": self._complete,
        }

    async def _prompts(self, _: RawObject, caller: Caller) -> RawObject:
        return RawObject(((b'"prompts"', await self._directory.prompts(caller)),))

    async def _resources(self, _: RawObject, caller: Caller) -> RawObject:
        return RawObject(((b'"resources"', await self._directory.resources(caller)),))

    async def _templates(self, _: RawObject, caller: Caller) -> RawObject:
        return RawObject(((b'"resourceTemplates"', await self._directory.templates(caller)),))

    async def _prompt(self, params: RawObject, caller: Caller) -> Reply:
        upstream, bare = await self._named(text_of(params, "name"), caller)
        sent = params.replaced("name", dumps(bare))
        return await self._desk.put(
            upstream, caller, lambda: upstream.call("prompts/get", sent, caller, again=True)
        )

    async def _named(self, name: str, caller: Caller) -> tuple[Upstream, str]:
        found = await self._directory.prompt(name, caller)
        if found is None:
            raise Refused(INVALID_PARAMS, f"Unknown prompt: {name}")
        return found

    async def _read(self, params: RawObject, caller: Caller) -> RawObject | Reply:
        uri = uri_of(params, "resources/read")
        if uri.startswith(OWN_SCHEME):
            return await self._own_resource(uri, caller)
        holders = await self._directory.owners(uri)
        if len(holders) == 1:
            [upstream] = holders
            return await self._desk.put(
                upstream,
                caller,
                lambda: upstream.call("resources/read", params, caller, again=True),
            )
        reply = await self._directory.asked(uri, "resources/read", params, caller)
        if reply is None:
            raise _not_found(uri, f"no server has a resource {uri!r}", caller)
        return reply

    async def _own_resource(self, uri: str, caller: Caller) -> RawObject:
        try:
            contents = await self._own.read(uri, caller)
        except UsageError as error:
            raise _not_found(uri, str(error), caller) from error
        return RawObject.parse(dumps({"contents": list(contents)}))

    async def _complete(self, params: RawObject, caller: Caller) -> Reply:
        raw = params.get("ref") or b""
        if kind_of(raw) != "object":
            raise Refused(INVALID_PARAMS, "completion/complete needs a ref")
        ref = RawObject.parse(raw)
        if text_of(ref, "type") == "ref/prompt":
            upstream, bare = await self._named(text_of(ref, "name"), caller)
            sent = params.replaced("ref", ref.replaced("name", dumps(bare)).encode())
            return await upstream.call("completion/complete", sent, caller, again=True)
        uri = text_of(ref, "uri")
        reply = None
        if not uri.startswith(OWN_SCHEME):
            reply = await self._directory.asked(uri, "completion/complete", params, caller)
        return reply or Reply(result=NO_COMPLETIONS)


def uri_of(params: RawObject, method: str) -> str:
    """The address that a request is about.

    Raises:
        Refused: it has none.
    """
    uri = text_of(params, "uri")
    if not uri:
        raise Refused(INVALID_PARAMS, f"{method} needs the uri of a resource")
    return uri


def _not_found(uri: str, message: str, caller: Caller) -> Refused:
    code = INVALID_PARAMS if caller.modern else RESOURCE_NOT_FOUND
    return Refused(code, message, {"uri": uri})
