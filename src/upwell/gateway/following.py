"""Requests to be told of something: logs, changed lists, changed resources, in either era."""

import asyncio
from collections.abc import Mapping

from upwell.gateway.audience import Audience
from upwell.gateway.client import LEVELS, Caller, Listener, text_of
from upwell.gateway.desk import Method
from upwell.gateway.directory import Directory
from upwell.gateway.eras import stamped, wishes_of
from upwell.gateway.offerings import uri_of
from upwell.gateway.refusal import Refused
from upwell.gateway.upstream import State
from upwell.ground.errors import UpstreamError
from upwell.ground.trace import LOG
from upwell.ground.types import Reply
from upwell.wire.peer import INVALID_PARAMS, METHOD_NOT_FOUND
from upwell.wire.rawjson import RawObject, dumps

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class Following:
    """Notes who wants to hear what, and has the servers say it."""

    def __init__(self, directory: Directory, audience: Audience) -> None:
        self._directory = directory
        self._audience = audience

    def methods(self) -> Mapping[str, Method]:
        return {
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "logging/setLevel": self._set_level,
            "subscriptions/listen": self._listen,
        }

    async def _subscribe(self, params: RawObject, caller: Caller) -> Reply:
        uri = uri_of(params, "resources/subscribe")
        reply = await self._follow(uri, caller)
        if not reply.error:
            caller.owner.uris.add(uri)
        return reply

    async def _unsubscribe(self, params: RawObject, caller: Caller) -> Reply:
        uri = uri_of(params, "resources/unsubscribe")
        caller.owner.uris.discard(uri)
        return await self._unfollow(uri, caller)

    async def _follow(self, uri: str, caller: Caller) -> Reply:
        """Have whoever has this resource tell of its changes."""
        refusal: Reply | None = None
        for upstream in await self._directory.owners(uri):
            if upstream.about.offers("resources", "subscribe"):
                reply = await upstream.follow(uri, caller)
                if not reply.error:
                    return reply
                refusal = refusal or reply
        if refusal is None:
            raise Refused(METHOD_NOT_FOUND, f"no server tells of changes to {uri!r}")
        return refusal

    async def _unfollow(self, uri: str, caller: Caller) -> Reply:
        reply = Reply(result=b"{}")
        if self._audience.followed(uri):
            return reply
        for upstream in await self._directory.owners(uri):
            if uri in upstream.followed:
                reply = await upstream.follow(uri, caller, wanted=False)
        return reply

    async def _set_level(self, params: RawObject, caller: Caller) -> RawObject:
        level = text_of(params, "level")
        if level not in LEVELS:
            raise Refused(INVALID_PARAMS, f"no such level: {level!r}", {"levels": list(LEVELS)})
        caller.owner.log_level = level
        await self._directory.settled()
        least = RawObject().replaced("level", dumps(self._audience.log_level()))
        for upstream in self._directory.upstreams():
            about = upstream.about
            if upstream.state is State.READY and about.offers("logging") and not about.modern:
                try:
                    await upstream.call("logging/setLevel", least, caller)
                except UpstreamError as error:
                    LOG.warning("%s", error)
        return RawObject()

    async def _listen(self, params: RawObject, caller: Caller) -> RawObject:
        """Stays open, and tells what happens, until the client has heard enough."""
        if caller.envelope is None or caller.identity is None:
            raise Refused(METHOD_NOT_FOUND, "subscriptions/listen is not part of this version")
        wishes = wishes_of(params)
        listener = Listener(caller.channel, wishes, caller.identity)
        said = dumps({"notifications": wishes.shown()})
        self._audience.listeners.add(listener)
        try:
            await caller.tell(ACKNOWLEDGED, stamped(said, caller.identity))
            for uri in sorted(wishes.uris):
                await self._followed(uri, caller)
            await asyncio.Event().wait()
        finally:
            self._audience.listeners.discard(listener)
            for uri in wishes.uris:
                await self._unfollow(uri, caller)
        return RawObject()

    async def _followed(self, uri: str, caller: Caller) -> None:
        try:
            await self._follow(uri, caller)
        except (Refused, UpstreamError) as error:
            LOG.info("nobody tells of changes to %r: %s", uri, error)
