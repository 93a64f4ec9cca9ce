"""The two eras of MCP, and what has to change between them.

Handshake era (to 2025-11-25): `initialize`, then bare requests. Modern era (2026-07-28): no
handshake; every request carries its envelope in `_meta`, every result says `resultType`. Which one
a side speaks is independent of the other side; this file is the only one that knows the words.

What differs between the two, and how one becomes the other:

    handshake                              modern
    logging/setLevel                   ↔   logLevel in each request's envelope
    resources/subscribe, unsubscribe   ↔   subscriptions/listen, one stream for everything
    a request of the server            ↔   a result `input_required`, and the call again
    ttlMs and cacheScope are unknown   ↔   required of lists and of resources/read
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from upwell import __version__
from upwell.wire.rawjson import NotJson, RawObject, dumps, loads

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)
UNSUPPORTED_VERSION = -32022
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
RESOURCE_NOT_FOUND = -32002
"""In the handshake era; the modern one says invalid params."""

_PREFIX = "io.modelcontextprotocol/"
PROTOCOL_VERSION = _PREFIX + "protocolVersion"
CLIENT_INFO = _PREFIX + "clientInfo"
CLIENT_CAPABILITIES = _PREFIX + "clientCapabilities"
SERVER_INFO = _PREFIX + "serverInfo"
LOG_LEVEL = _PREFIX + "logLevel"
SUBSCRIPTION_ID = _PREFIX + "subscriptionId"
_ENVELOPE = (PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL)

IMPLEMENTATION = {"name": "upwell", "version": __version__}


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a modern request says about its sender."""

    version: str
    capabilities: bytes
    log_level: str = ""


def negotiated(asked: object) -> str:
    """The handshake version to answer `initialize` with: the asked one, or our latest."""
    return asked if isinstance(asked, str) and asked in HANDSHAKE_VERSIONS else "2025-11-25"


def meta_of(params: RawObject) -> RawObject:
    """The `_meta` of a request or result, empty when there is none or it is no object."""
    raw = params.get("_meta")
    try:
        return RawObject.parse(raw) if raw else RawObject()
    except NotJson:
        return RawObject()


def envelope_of(params: RawObject) -> Envelope | None:
    """The modern envelope of a request, None when it has none."""
    meta = meta_of(params)
    version = meta.value(PROTOCOL_VERSION)
    if not isinstance(version, str):
        return None
    level = meta.value(LOG_LEVEL)
    named = level if isinstance(level, str) else ""
    return Envelope(version, meta.get(CLIENT_CAPABILITIES) or b"{}", named)


def bare(params: RawObject) -> RawObject:
    """`params` without the envelope: `_meta` keeps what the sender put there for the receiver."""
    return _without_meta(params, *_ENVELOPE)


def enveloped(
    params: RawObject, version: str, capabilities: bytes = b"{}", log_level: str = ""
) -> RawObject:
    """`params` with our envelope for a modern upstream. Other `_meta` keys stay."""
    meta = meta_of(params).without(LOG_LEVEL)
    if log_level:
        meta = meta.replaced(LOG_LEVEL, dumps(log_level))
    meta = meta.replaced(PROTOCOL_VERSION, dumps(version))
    meta = meta.replaced(CLIENT_CAPABILITIES, capabilities)
    meta = meta.replaced(CLIENT_INFO, dumps(IMPLEMENTATION))
    return params.replaced("_meta", meta.encode())


def handshake_result(result: RawObject) -> RawObject:
    """A result as a handshake-era client expects it."""
    return _without_meta(result.without("resultType"), SERVER_INFO)


def modern_result(result: RawObject) -> RawObject:
    """A result as a modern client expects it: complete unless it says otherwise, and ours."""
    if "resultType" not in result:
        result = result.replaced("resultType", b'"complete"')
    meta = meta_of(result).replaced(SERVER_INFO, dumps(IMPLEMENTATION))
    return result.replaced("_meta", meta.encode())


def modern_error(error: bytes) -> bytes:
    """An error of `resources/read` as a modern client expects it."""
    opened = RawObject.parse(error)
    if opened.value("code") != RESOURCE_NOT_FOUND:
        return error
    return opened.replaced("code", b"-32602").encode()


def fresh_only(result: RawObject) -> RawObject:
    """A list, or what was read, from a server that says nothing about keeping it: nobody may."""
    if "ttlMs" not in result:
        result = result.replaced("ttlMs", b"0")
    return result if "cacheScope" in result else result.replaced("cacheScope", b'"private"')


def initialize_params(capabilities: bytes = b"{}") -> bytes:
    """Our half of the handshake with an upstream; `capabilities` are those of our client."""
    return b'{"protocolVersion":%b,"capabilities":%b,"clientInfo":%b}' % (
        dumps(HANDSHAKE_VERSIONS[-1]),
        capabilities,
        dumps(IMPLEMENTATION),
    )


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a server said of itself. `version` is "" before it said anything; `also` is the modern
    version that it answers beside that."""

    version: str = ""
    also: str = ""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    instructions: str = ""

    @property
    def modern(self) -> bool:
        return self.version in MODERN_VERSIONS

    def version_for(self, *, modern: bool) -> str:
        """The version to speak for a client of that era."""
        return self.also if modern and self.also else self.version

    def offers(self, kind: str, name: str = "") -> bool:
        """Did it say that it has `kind` (`resources`), and of that `name` (`subscribe`)?"""
        return flag(self.capabilities, kind, name) if name else kind in self.capabilities


def introduction(greeting: RawObject, version: str = "") -> Introduction:
    """The answer to `initialize`, or to `server/discover` in `version`."""
    said = version or greeting.value("protocolVersion")
    known = said if said in HANDSHAKE_VERSIONS + MODERN_VERSIONS else HANDSHAKE_VERSIONS[-1]
    capabilities = greeting.value("capabilities", {})
    instructions = greeting.value("instructions", "")
    return Introduction(
        known,
        capabilities=capabilities if isinstance(capabilities, dict) else {},
        instructions=instructions if isinstance(instructions, str) else "",
    )


# -- a request of the server, and `input_required`


def wants_input(result: bytes) -> bool:
    """Is this a result that asks the client for something first?"""
    if b"input_required" not in result[:4096] and b"input_required" not in result[-4096:]:
        return False
    try:
        return bool(RawObject.parse(result).value("resultType") == "input_required")
    except NotJson:
        return False


def input_requests(result: RawObject) -> Mapping[str, tuple[str, bytes]]:
    """What is asked: by the server's own key, a method and raw params.

    Raises:
        NotJson: it cannot be read.
    """
    found: dict[str, tuple[str, bytes]] = {}
    for key, raw in RawObject.parse(result.get("inputRequests") or b"{}").members:
        request = RawObject.parse(raw)
        found[loads(key)] = (str(request.value("method")), request.get("params") or b"{}")
    return found


def answered(params: RawObject, result: RawObject, answers: Mapping[str, bytes]) -> RawObject:
    """The call again, with what was asked for and the server's state as it came."""
    raw = RawObject(tuple((dumps(key), value) for key, value in answers.items()))
    params = params.replaced("inputResponses", raw.encode())
    state = result.get("requestState")
    return (
        params.without("requestState") if state is None else params.replaced("requestState", state)
    )


def input_required(requests: Mapping[str, tuple[str, bytes]], state: str) -> RawObject:
    """A result that asks a modern client what a handshake-era server asked by a request."""
    asked = RawObject(
        tuple(
            (dumps(key), b'{"method":%b,"params":%b}' % (dumps(method), params))
            for key, (method, params) in requests.items()
        )
    )
    return RawObject(
        (
            (b'"resultType"', b'"input_required"'),
            (b'"inputRequests"', asked.encode()),
            (b'"requestState"', dumps(state)),
        )
    )


# -- what a client hears of unasked


def listen_params(capabilities: Mapping[str, Any], uris: Iterable[str]) -> RawObject | None:
    """What to ask of a modern upstream's `subscriptions/listen`; None where it offers nothing."""
    wanted: dict[str, Any] = {
        f"{kind}ListChanged": True
        for kind in ("tools", "prompts", "resources")
        if flag(capabilities, kind, "listChanged")
    }
    if followed := sorted(uris):
        wanted["resourceSubscriptions"] = followed
    return RawObject.parse(dumps({"notifications": wanted})) if wanted else None


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a modern client wants to hear on one stream; `methods` for everything but updates."""

    methods: frozenset[str] = frozenset()
    uris: frozenset[str] = frozenset()

    def shown(self) -> dict[str, Any]:
        """As the acknowledgement says it."""
        said: dict[str, Any] = {
            f"{kind}ListChanged": True
            for kind in ("tools", "prompts", "resources")
            if f"notifications/{kind}/list_changed" in self.methods
        }
        if self.uris:
            said["resourceSubscriptions"] = sorted(self.uris)
        return said


def wishes_of(params: RawObject) -> Wishes:
    """What a `subscriptions/listen` asks for.

    Raises:
        NotJson: it cannot be read.
    """
    asked = params.value("notifications", {})
    if not isinstance(asked, dict):
        raise NotJson("notifications must be an object")
    kinds = [kind for kind in ("tools", "prompts", "resources") if asked.get(f"{kind}ListChanged")]
    uris = asked.get("resourceSubscriptions") or []
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
        raise NotJson("resourceSubscriptions must be a list of addresses")
    return Wishes(
        frozenset(f"notifications/{kind}/list_changed" for kind in kinds), frozenset(uris)
    )


def stamped(params: bytes, subscription: bytes) -> bytes:
    """The params of a notification on a listen stream; `subscription` is the raw id of its
    request."""
    opened = RawObject.parse(params)
    meta = meta_of(opened).replaced(SUBSCRIPTION_ID, subscription)
    return opened.replaced("_meta", meta.encode()).encode()


def unstamped(params: RawObject) -> RawObject:
    """The params of a notification without the stream it came on."""
    return _without_meta(params, SUBSCRIPTION_ID)


def _without_meta(body: RawObject, *names: str) -> RawObject:
    """`body` without these keys of its `_meta`, or without a `_meta` that would be empty."""
    if "_meta" not in body:
        return body
    meta = meta_of(body).without(*names)
    return body.replaced("_meta", meta.encode()) if meta.members else body.without("_meta")


# -- capabilities


def flag(capabilities: Mapping[str, Any], kind: str, name: str) -> bool:
    found = capabilities.get(kind)
    return isinstance(found, dict) and bool(found.get(name))


OURS: Mapping[str, Any] = {"tools": {"listChanged": True}, "resources": {"listChanged": True}}
EVERYTHING: Mapping[str, Any] = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}
"""What is said as long as nobody knows what the servers offer: an empty list disappoints nobody."""


EVERY_CLIENT = (
    b'{"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}},'
    b'"roots":{"listChanged":true}}'
)
"""What servers are told that our clients can do where that is not known beforehand."""


def united(offers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What all servers offer together, ours included; prompts and lists are announced by us."""
    union: dict[str, Any] = {}
    for offer in (OURS, *offers):
        union = _merged(union, offer)
    if "prompts" in union:
        union["prompts"] = {**union["prompts"], "listChanged": True}
    return union


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(one)
    for name, value in other.items():
        known = found.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            found[name] = _merged(known, value)
        else:
            found[name] = known or value
    return found
