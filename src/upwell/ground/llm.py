"""Ask a language model behind an OpenAI-compatible endpoint (Ollama, vLLM or a vendor's).

Calls block, so make them on worker threads.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec import Struct

from upwell.ground.clock import Deadline
from upwell.ground.endpoint import Endpoint, EndpointAnswer, post
from upwell.ground.errors import LlmError
from upwell.ground.text.tokens import count

MAX_TOKENS = 10**9
"""If an endpoint reports more tokens than this, the count is ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmOptions(Endpoint):
    """The `llm.*` settings."""


class Completion(Struct, frozen=True):
    """A model's answer. The token counts are estimates if the endpoint does not report them."""

    text: str
    tokens_in: int
    tokens_out: int


class Chat(Protocol):
    """A language model."""

    def complete(self, system: str, user: str, deadline: Deadline) -> Completion:
        """Return the answer to a user message, given a system message.

        Raises:
            LlmError: no usable answer arrived before the deadline.
        """
        ...

    def chat(self, prompt: str, deadline: Deadline) -> str:
        """Return the answer to `prompt`.

        Raises:
            LlmError: no usable answer arrived before the deadline.
        """
        ...


class OpenAIChat:
    """A language model at an endpoint with `/chat/completions`.

    Requests turn streaming off, but a streamed answer is also accepted.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def chat(self, prompt: str, deadline: Deadline) -> str:
        return _text_of(self._ask([{"role": "user", "content": prompt}], deadline))

    def complete(self, system: str, user: str, deadline: Deadline) -> Completion:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        answer = self._ask(messages, deadline)
        text = _text_of(answer)
        usage = _usage_in(answer)
        return Completion(
            text,
            _tokens(usage.get("prompt_tokens"), count(system) + count(user)),
            _tokens(usage.get("completion_tokens"), count(text)),
        )

    def _ask(self, messages: Sequence[object], deadline: Deadline) -> EndpointAnswer:
        message = {
            "model": self._endpoint.model,
            "messages": messages,
            "temperature": 0,
            "stream": False,
        }
        return post(self._endpoint, "/chat/completions", message, deadline)


def _text_of(answer: EndpointAnswer) -> str:
    try:
        if "event-stream" in answer.content_type:
            return _streamed(answer.body)
        text = json.loads(answer.body)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise LlmError("the language model's answer is not a completion") from error
    if not isinstance(text, str):
        raise LlmError("the language model's answer has no text")
    return text


def _usage_in(answer: EndpointAnswer) -> dict[str, Any]:
    try:
        usage = json.loads(answer.body).get("usage")
    except (ValueError, AttributeError):
        return {}
    return usage if isinstance(usage, dict) else {}


def _tokens(reported: object, estimated: int) -> int:
    if isinstance(reported, int) and not isinstance(reported, bool) and 0 < reported < MAX_TOKENS:
        return reported
    return estimated


def _streamed(raw: bytes) -> str:
    parts = []
    for line in raw.decode("utf-8", "replace").splitlines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != "[DONE]":
            parts.append(json.loads(data)["choices"][0].get("delta", {}).get("content") or "")
    return "".join(parts)
