"""A language model behind an OpenAI-compatible endpoint (Ollama, vLLM, a vendor): one question,
one answer, within a deadline. Blocking, for worker threads."""

import json
from typing import Protocol

from upwell.ground.endpoint import Answer, Endpoint, post
from upwell.ground.errors import LlmError
from upwell.ground.limits import Deadline


class Chat(Protocol):
    """Something that answers."""

    def chat(self, prompt: str, deadline: Deadline) -> str:
        """The answer to `prompt`.

        Raises:
            LlmError: no usable answer came in time.
        """
        ...


class OpenAIChat:
    """Any endpoint that knows `/chat/completions`. Streams are asked for off, and read if they
    come all the same."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def chat(self, prompt: str, deadline: Deadline) -> str:
        message = {
            "model": self._endpoint.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "stream": False,
        }
        return _said(post(self._endpoint, "/chat/completions", message, deadline))


def _said(answer: Answer) -> str:
    try:
        if "event-stream" in answer.content_type:
            return _streamed(answer.body)
        text = json.loads(answer.body)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise LlmError("the language model answered something that is no completion") from error
    if not isinstance(text, str):
        raise LlmError("the language model answered without text")
    return text


def _streamed(raw: bytes) -> str:
    parts = []
    for line in raw.decode("utf-8", "replace").splitlines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != "[DONE]":
            parts.append(json.loads(data)["choices"][0].get("delta", {}).get("content") or "")
    return "".join(parts)
