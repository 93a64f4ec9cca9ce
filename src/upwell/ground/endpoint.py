"""Posting JSON to an OpenAI-compatible endpoint within a deadline, with the standard library.

Blocking, for worker threads. Whatever goes wrong comes out as one `LlmError`.
"""

import http.client
import json
import ssl
from contextlib import closing
from dataclasses import dataclass
from socket import socket as Socket
from typing import Any
from urllib.parse import urlsplit

from upwell.ground.errors import LlmError
from upwell.ground.limits import Deadline
from upwell.ground.veil import veiled_address

_MAX_REPLY_BYTES = 16_000_000
_READ = 65_536
_LEAST_SECONDS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`base_url` up to and with the version (`http://localhost:11434/v1`), "" for none."""

    base_url: str = ""
    model: str = ""
    api_key: str = ""

    @property
    def shown(self) -> str:
        """The address without what lets somebody in."""
        return veiled_address(self.base_url)


@dataclass(frozen=True, slots=True)
class Answer:
    """The body of a reply with status 200, and its content type."""

    body: bytes
    content_type: str


def post(endpoint: Endpoint, path: str, message: Any, deadline: Deadline) -> Answer:
    """POST `message` as JSON to `path` below the endpoint.

    Raises:
        LlmError: no connection, no answer in time, a status other than 200, or too long.
    """
    body = json.dumps(message).encode("utf-8", "replace")
    try:
        return _exchange(endpoint, path, body, deadline)
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = "no answer in time" if isinstance(error, TimeoutError) else str(error)
        raise LlmError(
            f"the endpoint {endpoint.shown} failed: {reason or type(error).__name__}",
            hint="check its base_url and that it is running",
        ) from error


def _exchange(endpoint: Endpoint, path: str, body: bytes, deadline: Deadline) -> Answer:
    parts = urlsplit(endpoint.base_url)
    connection = _connect(parts.scheme, parts.hostname or "", parts.port, deadline)
    headers = {"content-type": "application/json"}
    if endpoint.api_key:
        headers["authorization"] = f"Bearer {endpoint.api_key}"
    try:
        connection.request("POST", parts.path.rstrip("/") + path, body, headers)
        socket = connection.sock
        with closing(connection.getresponse()) as reply:
            raw = _read(reply, socket, endpoint, deadline)
        if reply.status != http.client.OK:
            raise LlmError(
                f"the endpoint {endpoint.shown} answered {reply.status} {reply.reason}",
                hint="check the model's name and the key",
            )
        return Answer(raw, reply.getheader("content-type") or "")
    finally:
        connection.close()


def _read(
    reply: http.client.HTTPResponse, socket: Socket, endpoint: Endpoint, deadline: Deadline
) -> bytes:
    raw = bytearray()
    while True:
        if deadline.passed():
            raise TimeoutError
        socket.settimeout(max(_LEAST_SECONDS, deadline.remaining()))
        piece = reply.read1(_READ)
        if not piece:
            return bytes(raw)
        raw += piece
        if len(raw) > _MAX_REPLY_BYTES:
            raise LlmError(f"the endpoint {endpoint.shown} answers without end")


def _connect(
    scheme: str, host: str, port: int | None, deadline: Deadline
) -> http.client.HTTPConnection:
    seconds = max(_LEAST_SECONDS, deadline.remaining())
    if scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=seconds, context=context)
    return http.client.HTTPConnection(host, port, timeout=seconds)
