"""The first exchange on stdio. We reply to `initialize` before anything else is loaded or opened,
because the agent waits for this reply when it starts.

At that moment, we do not know yet what the servers offer. Each run therefore saves their combined
offer (their capabilities and instructions). The next run presents it, unless the configuration file
has changed. If no offer was saved for the current state of this file, the gateway waits a moment
for the servers. Without a configuration file, it does not wait.
"""

import os
from collections.abc import AsyncIterator
from contextlib import suppress

from msgspec import Struct

from upwell.gateway.eras import EVERYTHING, GatewayOffer, envelope_of, united
from upwell.gateway.shapes import accepted_capabilities
from upwell.ground.errors import UpwellError
from upwell.ground.files import Home, default_home, stamp
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import Reply
from upwell.wire.lines import Line, Sink
from upwell.wire.peer import INTERNAL_ERROR, answer_line, error_body, read_message
from upwell.wire.rawjson import NotJson, RawObject, dumps, loads


class Hello(Struct, frozen=True):
    """The agent's era, and its client capabilities as raw JSON."""

    modern: bool = False
    capabilities: bytes = b"{}"


def save_offer(home: Home, offer: GatewayOffer) -> None:
    """Save the offer for the next start, without secrets. Write errors are only logged."""
    # Imported here, because loading the redaction rules takes longer than the handshake may take.
    from upwell.ground.secrets.redact import has_secret, redact

    is_secret = has_secret(dumps(dict(offer.capabilities)).decode(errors="replace"))
    public = GatewayOffer(
        united([EVERYTHING]) if is_secret else offer.capabilities, redact(offer.instructions)[0]
    )
    members = {"capabilities": dict(public.capabilities), "instructions": public.instructions}
    body = dumps({"of": _configuration_state(home), **members})
    path = home.offer_file
    try:
        if path.is_file() and path.read_bytes() == body:
            return
        fresh = path.with_suffix(f".{os.getpid()}")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
        fresh.replace(path)
    except OSError as error:
        LOG.warning("the servers' offer cannot be saved: %s", error)


def load_offer(home: Home) -> GatewayOffer | None:
    """Return the offer that an earlier run saved for the current configuration. If none was saved,
    return None: the reply must then wait for the servers. Without a configuration file, return an
    offer of `EVERYTHING` instead."""
    everything = GatewayOffer(united([EVERYTHING]))
    unknown = None if home.config_file.is_file() else everything
    if not home.offer_file.is_file():
        return unknown
    try:
        saved = loads(home.offer_file.read_bytes())
        if isinstance(saved, dict) and saved.get("of") == _configuration_state(home):
            return GatewayOffer(
                accepted_capabilities(saved["capabilities"]), str(saved["instructions"])
            )
    except (OSError, NotJson, KeyError, TypeError, ValueError) as error:
        LOG.info("the saved offer cannot be read: %s", error)
    return unknown


def _configuration_state(home: Home) -> list[int]:
    return list(stamp(home.config_file) or ())


async def read_hello(lines: AsyncIterator[Line], sink: Sink) -> tuple[AsyncIterator[Line], Hello]:
    """Read the agent's first message. If it is `initialize` and `load_offer()` returns an offer,
    send the reply and return the lines after the message. Otherwise, return all lines."""
    first = await anext(lines, None)
    if first is None:
        return lines, Hello()
    try:
        message = read_message(first.data)
        params = RawObject.parse(message.params)
        if message.method == "initialize" and message.id is not None and not first.oversize:
            hello = Hello(capabilities=params.get("capabilities") or b"{}")
            offer = load_offer(Home(default_home()))
            if offer is None:
                return _chained(first, lines), hello
            result = dumps(offer.initialize_result(params))
            await sink.write(answer_line(message.id, Reply(result=result)))
            return lines, hello
        envelope = envelope_of(params)
        hello = Hello(modern=True, capabilities=envelope.capabilities) if envelope else Hello()
    except NotJson:
        hello = Hello()
    return _chained(first, lines), hello


async def answer_with_error(lines: AsyncIterator[Line], sink: Sink, error: UpwellError) -> None:
    """Reply to every request except `initialize` with `error`, so that the agent learns why the
    gateway cannot start. Returns when the agent disconnects.
    """
    refusal = Reply(error=error_body(INTERNAL_ERROR, str(error)))
    async for line in lines:
        try:
            message = read_message(line.data)
        except NotJson:
            continue
        if message.method is None or message.id is None:
            continue
        reply = refusal
        if message.method == "initialize":
            with suppress(NotJson):
                offer = GatewayOffer(united([EVERYTHING]))
                result = offer.initialize_result(RawObject.parse(message.params))
                reply = Reply(result=dumps(result))
        await sink.write(answer_line(message.id, reply))


async def _chained(first: Line, lines: AsyncIterator[Line]) -> AsyncIterator[Line]:
    yield first
    async for line in lines:
        yield line
