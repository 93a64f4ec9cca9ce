"""An MCP server that gets everything wrong at random: `wild.py STATE SEED`. STATE is a file for the
number of starts, so that each start makes other mistakes."""

import copy
import json
import random
import sys
from pathlib import Path
from typing import Any

OBJECT = {"type": "object"}
VALID: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {
            "tools": {"listChanged": True},
            "prompts": {},
            "resources": {"subscribe": True},
            "logging": {},
            "completions": {},
        },
        "serverInfo": {"name": "wild", "version": "1"},
        "instructions": "Be careful.",
    },
    "tools/list": {
        "tools": [
            {"name": "x", "description": "a tool", "inputSchema": OBJECT, "outputSchema": OBJECT},
            {"name": "y", "inputSchema": {**OBJECT, "properties": {"a": OBJECT}, "required": []}},
        ],
        "nextCursor": "more",
    },
    "prompts/list": {"prompts": [{"name": "p", "arguments": [{"name": "a", "required": True}]}]},
    "resources/list": {"resources": [{"uri": "wild://a", "name": "a", "size": 1}]},
    "resources/templates/list": {
        "resourceTemplates": [{"uriTemplate": "{+x}", "name": "t", "annotations": {"priority": 1}}]
    },
    "tools/call": {
        "content": [{"type": "text", "text": "fine"}],
        "structuredContent": {"a": 1},
        "isError": False,
        "_meta": {"taskId": "1"},
    },
    "resources/read": {"contents": [{"uri": "wild://a", "text": "a"}]},
    "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "a"}}]},
}
UNASKED: dict[str, Any] = {
    "notifications/tools/list_changed": {},
    "notifications/prompts/list_changed": {},
    "notifications/resources/list_changed": {},
    "notifications/resources/updated": {"uri": "wild://a"},
    "notifications/message": {"level": "info", "logger": "wild", "data": {"a": 1}},
    "notifications/progress": {"progressToken": 1, "progress": 1, "total": 2},
    "notifications/cancelled": {"requestId": 1, "reason": "none"},
    "notifications/unknown": {"a": [1]},
    "sampling/createMessage": {"messages": [], "maxTokens": 1},
    "elicitation/create": {"message": "Who?", "requestedSchema": OBJECT},
    "roots/list": {},
    "ping": {},
    "unknown/method": {"a": 1},
}
LEAVES: list[Any] = [
    *(None, True, False, 0, -1, 1.5, 10**30, "", "x", "object", "\ud800", "x" * 70_000),
    *([], {}, [[]], {"a": None}, float("nan"), float("inf"), "upwell__read_more", "good__echo"),
]


class Wild:
    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def changed(self, value: Any) -> Any:
        """A copy with one to three random changes."""
        value = copy.deepcopy(value)
        for _ in range(self.random.randint(1, 3)):
            value = self.change(value)
        return value

    def change(self, value: Any) -> Any:
        if isinstance(value, dict) and value and self.random.random() < 0.85:
            name = self.random.choice(list(value))
            if self.random.random() < 0.15:
                del value[name]
            else:
                value[name] = self.change(value[name])
            return value
        if isinstance(value, list) and value and self.random.random() < 0.8:
            at = self.random.randrange(len(value))
            value[at] = self.change(value[at])
            return value
        return self.random.choice(LEAVES)

    def line(self, message: dict[str, Any]) -> bytes:
        raw = json.dumps(message).encode()
        way = self.random.random()
        if way < 0.03:
            return raw[: self.random.randrange(len(raw))]
        if way < 0.05:
            at = self.random.randrange(len(raw))
            return raw[:at] + self.random.choice([b"\xff", b"\x00", b"}", b"[", b'"']) + raw[at:]
        if way < 0.06:
            return b"[" * self.random.choice([50, 5_000])
        if way < 0.07:
            return b'{"method":"notifications/message","params":' + b'{"a":' * 9_000 + b"}" * 9_000
        if way < 0.09:
            return b"[" + raw + b"," + raw + b"]"
        return self.random.choice([raw, raw, raw, b"\xef\xbb\xbf" + raw, raw + b"\r", b"\n" + raw])

    def answer(self, method: str, identity: Any) -> list[dict[str, Any]]:
        result = VALID.get(method, {})
        if self.random.random() < 0.6:
            result = self.changed(result)
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": identity, "result": result}
        way = self.random.random()
        if way < 0.04:
            message["id"] = self.random.choice([None, -1, "x", identity + 1, {"a": 1}, [identity]])
        elif way < 0.12:
            message["id"] = self.random.choice([str(identity), float(identity)])
        elif way < 0.15:
            del message["result"]
        elif way < 0.18:
            message["error"] = self.random.choice([None, {"code": -1, "message": "no"}, 5, {}])
        elif way < 0.20:
            message["method"] = self.random.choice(["ping", None, 5])
        elif way < 0.22:
            return []
        elif way < 0.24:
            return [message, message]
        return [message]

    def unasked(self) -> dict[str, Any]:
        method = self.random.choice(list(UNASKED))
        params = UNASKED[method]
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if self.random.random() < 0.7:
            message["params"] = self.changed(params)
        if not method.startswith("notifications/") or self.random.random() < 0.05:
            message["id"] = self.random.choice([1, "1", None, 1.5, "q" * 50, self.random.random()])
        return message

    def take(self, message: dict[str, Any]) -> None:
        if self.random.random() < 0.02:
            sys.exit(self.random.randrange(3))
        for _ in range(self.random.choice([0, 0, 1, 3])):
            self.write(self.line(self.unasked()))
        if "method" in message and "id" in message:
            for answer in self.answer(message["method"], message["id"]):
                self.write(self.line(answer))

    def write(self, line: bytes) -> None:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()


def main() -> None:
    state, seed = Path(sys.argv[1]), sys.argv[2]
    starts = int(state.read_text() or 0) + 1 if state.is_file() else 1
    state.write_text(str(starts))
    wild = Wild(f"{seed} {starts}")
    for line in sys.stdin.buffer:
        wild.take(json.loads(line))


if __name__ == "__main__":
    main()
