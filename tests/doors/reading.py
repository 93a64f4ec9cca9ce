"""An agent's handling of replies: read errors, find keys, read originals."""

import re
from collections.abc import Mapping
from typing import Any

from tests.doors.peer import Peer, text_of

FOOTER = "\n---\n[progressive: chars="


def texts(result: Mapping[str, Any]) -> list[str]:
    return [block["text"] for block in result["content"] if block["type"] == "text"]


def everything(result: Mapping[str, Any]) -> str:
    """The full text that a model would read."""
    return "\n".join(texts(result))


def complaint(message: Mapping[str, Any]) -> str:
    """The error that answers a request, as JSON-RPC error or as a result with `isError`."""
    if "error" in message:
        assert isinstance(message["error"]["code"], int), message
        return str(message["error"]["message"])
    assert message["result"].get("isError") is True, str(message)[:500]
    return everything(message["result"])


def key_in(result: Mapping[str, Any]) -> str:
    """The key in the notice of a shortened reply."""
    match = re.search(r'key="([^"]+)"', everything(result))
    assert match, f"no key in {everything(result)[-500:]!r}"
    return match[1]


def read_all(peer: Peer, key: str, length: int, start: int = 0) -> str:
    """Read the original of `length` characters under `key` chunk by chunk, as an agent would."""
    parts, offset = [], start
    while offset < length:
        chunk = text_of(peer.call("upwell__read_more", key=key, offset=offset))
        body, separator, rest = chunk.rpartition(FOOTER)
        assert separator, f"no footer: {chunk[-200:]!r}"
        assert rest.endswith("]"), f"the footer is not the end: {rest!r}"
        assert body, f"an empty chunk at {offset} of {length}"
        parts.append(body)
        offset += len(body)
    return "".join(parts)
