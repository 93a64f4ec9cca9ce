"""Subscriptions to resources, log messages and list changes, for clients of both eras."""

import asyncio
from collections.abc import Mapping

from upwell.gateway.clients import (
    LEVELS,
    Audience,
    Method,
    RequestContext,
    RequestRefused,
    SubscriptionStream,
    text_of,
)
from upwell.gateway.eras import listen_filter, stamped
from upwell.gateway.routing.resources import UpstreamResources, uri_of
from upwell.gateway.upstreams.supervisor import ServerState
from upwell.ground.errors import UpstreamError
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import Reply
from upwell.wire.peer import INVALID_PARAMS, METHOD_NOT_FOUND
from upwell.wire.rawjson import RawObject, dumps

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class Subscriptions:
    """Records the clients' subscriptions, and forwards them to the upstreams."""

    def __init__(self, upstreams: UpstreamResources, audience: Audience) -> None:
        self._upstreams = upstreams
        self._audience = audience

    def methods(self) -> Mapping[str, Method]:
        return {
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "logging/setLevel": self._set_level,
            "subscriptions/listen": self._listen,
        }

    async def _subscribe(self, params: RawObject, context: RequestContext) -> Reply:
        uri = uri_of(params, "resources/subscribe")
        reply = await self._subscribe_upstream(uri, context)
        if not reply.error:
            context.owner.uris.add(uri)
        return reply

    async def _unsubscribe(self, params: RawObject, context: RequestContext) -> Reply:
        uri = uri_of(params, "resources/unsubscribe")
        context.owner.uris.discard(uri)
        return await self._unsubscribe_upstream(uri, context)

    async def _subscribe_upstream(self, uri: str, context: RequestContext) -> Reply:
        first_error: Reply | None = None
        for upstream in await self._upstreams.owners(uri):
            if upstream.about.offers("resources", "subscribe"):
                reply = await upstream.subscribe(uri, context)
                if not reply.error:
                    return reply
                first_error = first_error or reply
        if first_error is None:
            raise RequestRefused(METHOD_NOT_FOUND, f"no server reports changes to {uri!r}")
        return first_error

    async def _unsubscribe_upstream(self, uri: str, context: RequestContext) -> Reply:
        """Unsubscribe from a resource, unless another client is still subscribed to it."""
        reply = Reply(result=b"{}")
        if self._audience.is_subscribed(uri):
            return reply
        for upstream in await self._upstreams.owners(uri):
            if uri in upstream.subscribed_uris:
                reply = await upstream.unsubscribe(uri, context)
        return reply

    async def _set_level(self, params: RawObject, context: RequestContext) -> RawObject:
        level = text_of(params, "level")
        if level not in LEVELS:
            raise RequestRefused(
                INVALID_PARAMS, f"no such level: {level!r}", {"levels": list(LEVELS)}
            )
        context.owner.log_level = level
        await self._upstreams.settled()
        lowest = RawObject().replaced("level", dumps(self._audience.log_level()))
        for upstream in self._upstreams.upstreams():
            about, is_ready = upstream.about, upstream.state is ServerState.READY
            if is_ready and about.offers("logging") and not about.modern:
                try:
                    await upstream.call("logging/setLevel", lowest, context)
                except UpstreamError as error:
                    LOG.warning("%s", error)
        return RawObject()

    async def _listen(self, params: RawObject, context: RequestContext) -> RawObject:
        """Keep the stream open until the client cancels it."""
        if context.envelope is None or context.identity is None:
            raise RequestRefused(
                METHOD_NOT_FOUND, "subscriptions/listen is not part of this version"
            )
        requested = listen_filter(params)
        listener = SubscriptionStream(context.channel, requested, context.identity)
        acknowledgement = dumps({"notifications": requested.acknowledged()})
        self._audience.listeners.add(listener)
        try:
            await context.notify(ACKNOWLEDGED, stamped(acknowledgement, context.identity))
            for uri in sorted(requested.uris):
                await self._try_subscribe(uri, context)
            await asyncio.Event().wait()
        finally:
            self._audience.listeners.discard(listener)
            for uri in requested.uris:
                await self._unsubscribe_upstream(uri, context)
        return RawObject()

    async def _try_subscribe(self, uri: str, context: RequestContext) -> None:
        try:
            await self._subscribe_upstream(uri, context)
        except (RequestRefused, UpstreamError) as error:
            LOG.info("changes to %r will not be reported: %s", uri, error)
