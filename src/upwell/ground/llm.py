"""A language model behind an OpenAI-compatible endpoint (Ollama, vLLM, a vendor): one question,
one answer, within a deadline.

Blocking, for use in worker threads; speaks HTTP with the standard library, so it needs nothing
installed. Streams are asked for off, and read if they come all the same.
"""

import http.client
import json
import ssl
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from upwell.ground.errors import LlmError
from upwell.ground.limits import Deadline

_MAX_REPLY_BYTES = 4_000_000
_READ = 65_536


class Chat(Protocol):
    """Something that answers."""

    def chat(self, prompt: str, deadline: Deadline) -> str:
        """The answer to `prompt`.

        Raises:
            LlmError: no usable answer came in time.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`base_url` up to and with the version (`http://localhost:11434/v1`), "" for no model."""

    base_url: str = ""
    model: str = ""
    api_key: str = ""


class OpenAIChat:
    """Any endpoint that knows `/chat/completions`."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def chat(self, prompt: str, deadline: Deadline) -> str:
        body = json.dumps(
            {
                "model": self._options.model,
                "messages": [{"role": "user", "content": prompt}],
                "temperature": 0,
                "stream": False,
            }
        ).encode("utf-8", "replace")
        try:
            raw, kind = self._post(body, deadline)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise LlmError(
                f"the language model at {self._options.base_url} failed: "
                f"{error or type(error).__name__}",
                hint="check llm.base_url, or set compress.strategy to auto",
            ) from error
        return _answer(raw, kind)

    def _post(self, body: bytes, deadline: Deadline) -> tuple[bytes, str]:
        parts = urlsplit(self._options.base_url)
        seconds = max(0.05, deadline.remaining())
        port = parts.port
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(
                parts.hostname or "", port, timeout=seconds, context=context
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname or "", port, timeout=seconds)
        try:
            headers = {"content-type": "application/json"}
            if self._options.api_key:
                headers["authorization"] = f"Bearer {self._options.api_key}"
            connection.request("POST", f"{parts.path.rstrip('/')}/chat/completions", body, headers)
            reply = connection.getresponse()
            return self._read(connection, reply, deadline), reply.getheader("content-type", "")
        finally:
            connection.close()

    def _read(
        self,
        connection: http.client.HTTPConnection,
        reply: http.client.HTTPResponse,
        deadline: Deadline,
    ) -> bytes:
        """The body, however slowly it drips, within the deadline and the size limit."""
        raw = bytearray()
        while not deadline.passed():
            if connection.sock is not None:
                connection.sock.settimeout(max(0.05, deadline.remaining()))
            piece = reply.read1(_READ)
            if not piece:
                break
            raw += piece
            if len(raw) > _MAX_REPLY_BYTES:
                raise LlmError("the language model's answer is too long")
        else:
            raise TimeoutError("no answer in time")
        if reply.status != http.HTTPStatus.OK:
            raise LlmError(
                f"the language model answered {reply.status} {reply.reason}",
                hint="check llm.model and the key",
            )
        return bytes(raw)


def _answer(raw: bytes, kind: str) -> str:
    try:
        if "event-stream" in kind:
            return _streamed(raw)
        message = json.loads(raw)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise LlmError("the language model answered something that is no completion") from error
    if not isinstance(message, str):
        raise LlmError("the language model answered without text")
    return message


def _streamed(raw: bytes) -> str:
    parts = []
    for line in raw.decode("utf-8", "replace").splitlines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != "[DONE]":
            piece = json.loads(data)["choices"][0].get("delta", {}).get("content")
            parts.append(piece or "")
    return "".join(parts)
