"""The first words: `initialize` is answered before anything else is loaded or opened, since the
agent waits for nothing longer than for this.

What the servers offer is not known by then. So it is written down at each start, beside the state
of the configuration, and said again at the next; where that is not to be had, everything that a
server could offer is offered, and lists are empty where it is not there.
"""

import os
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from upwell.gateway.eras import (
    EVERYTHING,
    IMPLEMENTATION,
    Introduction,
    envelope_of,
    negotiated,
    united,
)
from upwell.ground.errors import UpwellError
from upwell.ground.files import stamp
from upwell.ground.home import Home, default_home
from upwell.ground.trace import LOG
from upwell.ground.types import Reply
from upwell.wire.lines import Line, Sink
from upwell.wire.peer import INTERNAL_ERROR, answer_line, error_body, read_message
from upwell.wire.rawjson import NotJson, RawObject, dumps, loads

INSTRUCTIONS = (
    "Tools of several servers, each named server__tool. Long results are shortened to fit; their "
    "notice names a key, and upwell__read_more(key, offset) gives the rest. "
    "Blocks marked upwell-memories are notes from earlier work."
)


class Introduced(Protocol):
    """An upstream, as far as it is introduced here."""

    name: str
    about: Introduction


@dataclass(frozen=True, slots=True)
class Known:
    """What all servers together offer and say."""

    capabilities: Mapping[str, Any]
    instructions: str = INSTRUCTIONS

    def said(self) -> dict[str, Any]:
        return {"capabilities": dict(self.capabilities), "instructions": self.instructions}


@dataclass(frozen=True, slots=True)
class Hello:
    """What the agent said first: which era it is of, and what it can be asked, as raw JSON."""

    modern: bool = False
    capabilities: bytes = b"{}"


def known_now(upstreams: Iterable[Introduced]) -> Known:
    """What is known of these servers; what has not said anything yet may offer everything."""
    servers = list(upstreams)
    silent = any(not one.about.version for one in servers)
    offered = united(one.about.capabilities for one in servers)
    told = [
        f"## Server {one.name}\n\n{one.about.instructions}"
        for one in servers
        if one.about.instructions
    ]
    return Known(
        united([offered, EVERYTHING]) if silent else offered, "\n\n".join([INSTRUCTIONS, *told])
    )


def remember(home: Home, known: Known) -> None:
    """Write down what to say at the next start, where that can be done; no secrets."""
    from upwell.ground.redact import has_secret, redact

    secret = has_secret(dumps(dict(known.capabilities)).decode(errors="replace"))
    told = Known(
        united([EVERYTHING]) if secret else known.capabilities,
        redact(known.instructions)[0],
    )
    said = dumps({"of": _state(home), **told.said()})
    path = home.greeting_file
    try:
        if path.is_file() and path.read_bytes() == said:
            return
        fresh = path.with_suffix(f".{os.getpid()}")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(said)
        fresh.replace(path)
    except OSError as error:
        LOG.warning("what the servers offer cannot be written down: %s", error)


def remembered(home: Home) -> Known:
    """What was said last, if the configuration is still the same."""
    if not home.greeting_file.is_file():
        return Known(united([EVERYTHING]))
    try:
        found = loads(home.greeting_file.read_bytes())
        if isinstance(found, dict) and found.get("of") == _state(home):
            return Known(dict(found["capabilities"]), str(found["instructions"]))
    except (OSError, NotJson, KeyError, TypeError, ValueError):
        pass
    return Known(united([EVERYTHING]))


def _state(home: Home) -> list[int]:
    """What tells one configuration from another."""
    return list(stamp(home.config_file) or ())


def handshake(params: RawObject, known: Known) -> dict[str, Any]:
    """The result of `initialize`.

    Raises:
        NotJson: its params cannot be read.
    """
    return {
        "protocolVersion": negotiated(params.value("protocolVersion")),
        "serverInfo": IMPLEMENTATION,
        **known.said(),
    }


async def greeted(lines: AsyncIterator[Line], sink: Sink) -> tuple[AsyncIterator[Line], Hello]:
    """`lines` without the `initialize` that they begin with: it is answered here; and what the
    agent said of itself."""
    first = await anext(lines, None)
    if first is None:
        return lines, Hello()
    try:
        message = read_message(first.data)
        params = RawObject.parse(message.params)
        if message.method == "initialize" and message.id is not None and not first.oversize:
            result = dumps(handshake(params, remembered(Home(default_home()))))
            hello = Hello(capabilities=params.get("capabilities") or b"{}")
            await sink.write(answer_line(message.id, Reply(result=result)))
            return lines, hello
        envelope = envelope_of(params)
        hello = Hello(modern=True, capabilities=envelope.capabilities) if envelope else Hello()
    except NotJson:
        hello = Hello()
    return _again(first, lines), hello


async def refused(lines: AsyncIterator[Line], sink: Sink, error: UpwellError) -> None:
    """Answer every request with `error`, until the agent closes its side: a gateway that cannot
    start tells its agent why."""
    reply = Reply(error=error_body(INTERNAL_ERROR, str(error)))
    async for line in lines:
        try:
            message = read_message(line.data)
        except NotJson:
            continue
        if message.method is not None and message.id is not None:
            await sink.write(answer_line(message.id, reply))


async def _again(first: Line, lines: AsyncIterator[Line]) -> AsyncIterator[Line]:
    yield first
    async for line in lines:
        yield line
