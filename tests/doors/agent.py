"""A client that can be asked: it answers sampling, elicitation and roots, in either era."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.doors.peer import CLIENT, ENVELOPE, LEGACY, MODERN, PREFIX, Peer, Silence

CAPABILITIES: Mapping[str, Any] = {
    "sampling": {},
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": True},
}
ANSWERS: Mapping[str, Any] = {
    "sampling/createMessage": {
        "role": "assistant",
        "content": {"type": "text", "text": "1.10"},
        "model": "m",
    },
    "elicitation/create": {"action": "accept", "content": {"name": "Ada"}},
    "roots/list": {"roots": [{"uri": "file:///work", "name": "work"}]},
}


class Agent(Peer):
    """`answers` maps each method to the client's answer. `level` is the log level of its requests
    in the modern era, and `folder` is its working directory.
    """

    answers: Mapping[str, Any] = ANSWERS
    level = ""
    folder = Path()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.streams: list[int] = []

    def hello(self, deadline: float | None = None) -> dict[str, Any]:
        if self.modern:
            return self.result("server/discover", {}, deadline)
        params = {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "clientInfo": CLIENT}
        result = self.result("initialize", params, deadline)
        self.send({"method": "notifications/initialized"})
        return result

    def start(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        if not self.modern:
            return super().start(method, params)
        params = dict(params or {})
        envelope: dict[str, Any] = {**ENVELOPE, f"{PREFIX}clientCapabilities": CAPABILITIES}
        if self.level:
            envelope[f"{PREFIX}logLevel"] = self.level
        params["_meta"] = {**params.get("_meta", {}), **envelope}
        self._ids += 1
        self.send({"id": self._ids, "method": method, "params": params})
        assert envelope[f"{PREFIX}protocolVersion"] == MODERN
        return self._ids

    def _take(self, line: bytes) -> None:
        super()._take(line)
        message = json.loads(line)
        if "method" in message and "id" in message and message["method"] in self.answers:
            self.send({"id": message["id"], "result": self.answers[message["method"]]})

    def full(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The final result, after all questions were answered."""
        result = self.result(method, params)
        while result.get("resultType") == "input_required":
            again = dict(params)
            again["inputResponses"] = {
                key: self.answers[asked["method"]]
                for key, asked in result.get("inputRequests", {}).items()
            }
            self.requests += list(result.get("inputRequests", {}).values())
            if "requestState" in result:
                again["requestState"] = result["requestState"]
            result = self.result(method, again)
        return result

    def use(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.full("tools/call", {"name": tool, "arguments": arguments})

    def await_note(self, method: str, deadline: float = 30.0) -> dict[str, Any]:
        """Wait for the first notification of that method."""
        end = time.monotonic() + deadline
        while True:
            for note in self.notifications:
                if note["method"] == method:
                    return note
            if time.monotonic() > end:
                raise Silence(f"no {method} in {self.notifications}")
            self.drain(0.05)

    def wait_until_asked(self, method: str, deadline: float = 30.0) -> None:
        """Wait until the server has asked that question."""
        end = time.monotonic() + deadline
        while not any(request["method"] == method for request in self.requests):
            if time.monotonic() > end:
                raise Silence(f"no {method} in {self.requests}")
            self.drain(0.05)
