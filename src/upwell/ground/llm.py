"""Ask a language model behind an OpenAI-compatible endpoint (Ollama, vLLM, a vendor).

The calls block and belong on worker threads.
"""

import json
from typing import Protocol

from upwell.ground.clock import Deadline
from upwell.ground.endpoint import Answer, Endpoint, post
from upwell.ground.errors import LlmError


class Chat(Protocol):
    """A language model."""

    def chat(self, prompt: str, deadline: Deadline) -> str:
        """Return the answer to `prompt`.

        Raises:
            LlmError: no usable answer arrived before the deadline.
        """
        ...


class OpenAIChat:
    """An endpoint with `/chat/completions`.

    Requests turn streaming off; an endpoint that streams nevertheless is understood.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def chat(self, prompt: str, deadline: Deadline) -> str:
        message = {
            "model": self._endpoint.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "stream": False,
        }
        return _text_of(post(self._endpoint, "/chat/completions", message, deadline))


def _text_of(answer: Answer) -> str:
    try:
        if "event-stream" in answer.content_type:
            return _streamed(answer.body)
        text = json.loads(answer.body)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise LlmError("the language model's answer is not a completion") from error
    if not isinstance(text, str):
        raise LlmError("the language model's answer has no text")
    return text


def _streamed(raw: bytes) -> str:
    parts = []
    for line in raw.decode("utf-8", "replace").splitlines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != "[DONE]":
            parts.append(json.loads(data)["choices"][0].get("delta", {}).get("content") or "")
    return "".join(parts)
