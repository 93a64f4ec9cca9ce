"""The two eras of MCP, and what has to change between them.

Handshake era (to 2025-11-25): `initialize`, then bare requests. Modern era (2026-07-28): no
handshake; every request carries its envelope in `_meta`, every result says `resultType`. Which one
a side speaks is independent of the other side; this file is the only one that knows the words.
"""

from dataclasses import dataclass
from typing import Any

from upwell import __version__
from upwell.wire.rawjson import NotJson, RawObject, dumps

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)
UNSUPPORTED_VERSION = -32022
RESOURCE_NOT_FOUND = -32002
"""In the handshake era; the modern one says invalid params."""

_PREFIX = "io.modelcontextprotocol/"
PROTOCOL_VERSION = _PREFIX + "protocolVersion"
CLIENT_INFO = _PREFIX + "clientInfo"
CLIENT_CAPABILITIES = _PREFIX + "clientCapabilities"
SERVER_INFO = _PREFIX + "serverInfo"
LOG_LEVEL = _PREFIX + "logLevel"
_ENVELOPE = (PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL)

IMPLEMENTATION = {"name": "upwell", "version": __version__}


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a modern request says about its sender."""

    version: str
    capabilities: bytes


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
    return Envelope(version, meta.get(CLIENT_CAPABILITIES) or b"{}")


def bare(params: RawObject) -> RawObject:
    """`params` without the envelope: `_meta` keeps what the sender put there for the receiver."""
    if "_meta" not in params:
        return params
    meta = meta_of(params).without(*_ENVELOPE)
    return params.replaced("_meta", meta.encode()) if meta.members else params.without("_meta")


def enveloped(params: RawObject, version: str, capabilities: bytes = b"{}") -> RawObject:
    """`params` with our envelope for a modern upstream. Other `_meta` keys stay."""
    meta = meta_of(params)
    meta = meta.replaced(PROTOCOL_VERSION, dumps(version))
    meta = meta.replaced(CLIENT_CAPABILITIES, capabilities)
    meta = meta.replaced(CLIENT_INFO, dumps(IMPLEMENTATION))
    return params.replaced("_meta", meta.encode())


def handshake_result(result: RawObject) -> RawObject:
    """A result as a handshake-era client expects it."""
    result = result.without("resultType")
    meta = meta_of(result).without(SERVER_INFO)
    if "_meta" not in result:
        return result
    return result.replaced("_meta", meta.encode()) if meta.members else result.without("_meta")


def modern_result(result: RawObject) -> RawObject:
    """A result as a modern client expects it: complete unless it says otherwise, and ours."""
    if "resultType" not in result:
        result = result.replaced("resultType", b'"complete"')
    meta = meta_of(result).replaced(SERVER_INFO, dumps(IMPLEMENTATION))
    return result.replaced("_meta", meta.encode())


def capabilities() -> dict[str, Any]:
    """What the gateway offers in front."""
    return {"tools": {"listChanged": True}, "resources": {}}


def initialize_params() -> bytes:
    """Our half of the handshake with an upstream."""
    return dumps(
        {
            "protocolVersion": HANDSHAKE_VERSIONS[-1],
            "capabilities": {},
            "clientInfo": IMPLEMENTATION,
        }
    )
