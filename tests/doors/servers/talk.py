"""An MCP server with every feature besides plain tools: requests to its client, logs, progress,
changes, prompts, resources, completions, and unspecified methods."""

import json
import os
import threading
from collections.abc import Mapping
from typing import Any

from frame import LEGACY, MODERN, Call, RpcError, Server, Tool, declare, options, pause, text

STAMP = "io.modelcontextprotocol/subscriptionId"
ASKED = {
    "sample": (
        "sampling/createMessage",
        '{"messages":[{"role":"user","content":{"type":"text","text":"Say 1.10"}}],"maxTokens":10,'
        '"temperature":0.10}',
    ),
    "elicit": (
        "elicitation/create",
        '{"mode":"form","message":"Who?","requestedSchema":{"type":"object","properties":'
        '{"name":{"type":"string"}}}}',
    ),
    "roots": ("roots/list", "{}"),
}
STATE = "opaque \\u00e9 1.10 state"
RESOURCES = {"talk://one": "The first", "talk://two": "The second", "shared://x": "Mine"}
HIDDEN = "talk://hidden/page"
PROMPT = '{"name":"hello","title":"Hello","arguments":[{"name":"who","required":true}],"x":1.10}'
TEMPLATE = '{"uriTemplate":"talk://item/{id}","name":"item","x":1.10}'


def answered(call: Call, reply: Any) -> str:
    return text(json.dumps(reply))


class Talker(Server):
    """Speaks either era. `replies` holds the answers to its own requests."""

    def __init__(self, tools: list[Tool], arguments: Any) -> None:
        super().__init__(tools, arguments)
        self.replies: dict[str, Any] = {}
        self.arrived = threading.Condition()
        self.level = ""
        self.followed: set[str] = set()
        self.listens: dict[Any, Mapping[str, Any]] = {}
        self.cancelled: list[Any] = []
        self.client: Mapping[str, Any] = {}
        self.notes: list[Mapping[str, Any]] = []
        self.later: list[Any] = []
        self.waiting = 0

    def serve(self) -> None:
        import sys

        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "method" not in message:
                with self.arrived:
                    self.replies[message["id"]] = message.get("result", message.get("error"))
                    self.arrived.notify_all()
            elif "id" in message:
                self.take(message, line)
            else:
                self.noticed(message)

    def noticed(self, message: Mapping[str, Any]) -> None:
        if message["method"] == "notifications/cancelled":
            identity = message["params"]["requestId"]
            self.cancelled.append(identity)
            self.listens.pop(identity, None)
        self.notes.append(message)
        if message["method"] == "notifications/vendor/ask":
            threading.Thread(target=self.ask_later, daemon=True).start()

    def ask_later(self) -> None:
        """Ask while no call is in flight."""
        self.later.append(self.request(f"later-{len(self.notes)}", "roots/list", "{}"))

    def take(self, message: Mapping[str, Any], line: bytes) -> None:
        if message["method"] == "subscriptions/listen":
            expected = message["params"]["notifications"]
            self.listens[message["id"]] = expected
            stamp = f'"_meta":{{"{STAMP}":{json.dumps(message["id"])}}}'
            content = f'{{"notifications":{json.dumps(expected)},{stamp}}}'
            self.notify("notifications/subscriptions/acknowledged", content)
            return
        super().take(message, line)

    def request(self, identity: str, method: str, params: str) -> Any:
        """Ask the client, and wait for its answer."""
        self.send(f'{{"jsonrpc":"2.0","id":"{identity}","method":"{method}","params":{params}}}')
        with self.arrived:
            self.arrived.wait_for(lambda: identity in self.replies, 30)
            return self.replies.pop(identity, "nothing")

    def tell(self, method: str, params: Mapping[str, Any], uri: str = "") -> None:
        """Notify the client. In the modern era, it must have subscribed to the change. In the
        handshake era, only a change of a resource (`uri`) needs a subscription.
        """
        if self.era == LEGACY:
            if not uri or uri in self.followed:
                self.notify(method, json.dumps(params))
            return
        kind = method.split("/")[1]
        for identity, expected in list(self.listens.items()):
            if (
                uri in expected.get("resourceSubscriptions", [])
                if uri
                else expected.get(f"{kind}ListChanged")
            ):
                stamped = {**params, "_meta": {STAMP: identity}}
                self.notify(method, json.dumps(stamped))

    def offered(self) -> str:
        return (
            '{"tools":{"listChanged":true},"prompts":{"listChanged":true},"completions":{},'
            '"resources":{"subscribe":true,"listChanged":true},"logging":{},'
            '"extensions":{"vendor/thing":{"v":1}}}'
        )

    def initialize(self, params: Mapping[str, Any]) -> str:
        if self.options.era == "modern":
            return super().initialize(params)
        self.era = LEGACY
        self.client = params["capabilities"]
        return (
            f'{{"protocolVersion":"{LEGACY}","capabilities":{self.offered()},"serverInfo":'
            '{"name":"talk","version":"1"},"instructions":"Talk softly."}'
        )

    def discover(self, params: Mapping[str, Any]) -> str:
        if self.options.era == "legacy" or self.era == LEGACY:
            return super().discover(params)
        self.era = MODERN
        return self.modern(
            f'{{"supportedVersions":["{MODERN}"],"capabilities":{self.offered()},"ttlMs":0,'
            '"cacheScope":"private","instructions":"Talk softly."}'
        )

    def answer(self, method: str, params: Mapping[str, Any]) -> str:
        known = {
            "prompts/list": self.prompts,
            "prompts/get": self.prompt,
            "resources/list": self.resources,
            "resources/templates/list": lambda _: f'{{"resourceTemplates":[{TEMPLATE}]}}',
            "resources/read": self.read,
            "resources/subscribe": self.subscribe,
            "resources/unsubscribe": self.unsubscribe,
            "completion/complete": self.complete,
            "logging/setLevel": self.set_level,
            "vendor/echo": lambda params: json.dumps({"echo": params.get("x")}),
            "tasks/get": self.task,
        }
        if method in known:
            self.check_era(params)
            return self.modern(known[method](params))
        return super().answer(method, params)

    def prompts(self, _: Mapping[str, Any]) -> str:
        return f'{{"prompts":[{PROMPT}]}}'

    def prompt(self, params: Mapping[str, Any]) -> str:
        if params["name"] != "hello":
            raise RpcError('{"code":-32602,"message":"no such prompt","data":{"n":1.10}}')
        who = params["arguments"]["who"]
        content = f'{{"type":"text","text":{json.dumps("Hello " + who)}}}'
        return f'{{"messages":[{{"role":"user","content":{content}}}],"x":1.10}}'

    def resources(self, params: Mapping[str, Any]) -> str:
        """One entry per page."""
        names = list(RESOURCES)
        at = int(params.get("cursor", "0"))
        more = f',"nextCursor":"{at + 1}"' if at + 1 < len(names) else ""
        return f'{{"resources":[{{"uri":"{names[at]}","name":"{names[at]}","size":1.0}}]{more}}}'

    def read(self, params: Mapping[str, Any]) -> str:
        uri = params["uri"]
        result = RESOURCES.get(uri)
        if uri == HIDDEN or uri.startswith("talk://item/"):
            result = f"This is {uri}"
        if result is None:
            raise RpcError('{"code":-32002,"message":"not here","data":{"n":1.10}}')
        body = json.dumps(f"{result} of {self.options.name}")
        return f'{{"contents":[{{"uri":"{uri}","text":{body},"x":1.10}}]}}'

    def subscribe(self, params: Mapping[str, Any]) -> str:
        self.followed.add(params["uri"])
        return "{}"

    def unsubscribe(self, params: Mapping[str, Any]) -> str:
        self.followed.discard(params["uri"])
        return "{}"

    def complete(self, params: Mapping[str, Any]) -> str:
        ref, asked = params["ref"], params["argument"]
        named = ref.get("name") or ref.get("uri")
        values = json.dumps([named, asked["value"] + "!"])
        return f'{{"completion":{{"values":{values},"total":2,"hasMore":false}}}}'

    def set_level(self, params: Mapping[str, Any]) -> str:
        self.level = params["level"]
        return "{}"

    def task(self, params: Mapping[str, Any]) -> str:
        if params["taskId"] != f"task-of-{self.options.name}":
            raise RpcError('{"code":-32602,"message":"no such task"}')
        return f'{{"taskId":"{params["taskId"]}","status":"working"}}'


def ask(call: Call) -> str:
    """Ask the client in the form of its era, after a delay, and return its answer."""
    server = call.server
    assert isinstance(server, Talker)
    pause(float(call.args.get("after", 0)))
    method, params = ASKED[call.name]
    if server.era == LEGACY:
        return answered(call, server.request(f"{call.name}-{call.id}", method, params))
    if "inputResponses" in call.params:
        right = call.params.get("requestState") == json.loads(f'"{STATE}"')
        return answered(call, call.params["inputResponses"]["q"] if right else "wrong state")
    question = f'{{"q":{{"method":"{method}","params":{params}}}}}'
    return f'{{"resultType":"input_required","inputRequests":{question},"requestState":"{STATE}"}}'


def log(call: Call) -> str:
    for level in ("debug", "info", "error"):
        content = f'{{"level":"{level}","logger":"talk","data":{{"n":1.10,"level":"{level}"}}}}'
        call.server.notify("notifications/message", content)
    return text("logged")


def change(call: Call) -> str:
    server = call.server
    assert isinstance(server, Talker)
    kind = str(call.args.get("what"))
    if kind.startswith("talk://"):
        server.tell("notifications/resources/updated", {"uri": kind}, kind)
    else:
        server.tell(f"notifications/{kind}/list_changed", {})
    return text("changed")


def ask_and_withdraw(call: Call) -> str:
    """Ask, and withdraw the question once the client has received it."""
    server = call.server
    assert isinstance(server, Talker)
    method, params = ASKED["elicit"]
    call.server.send(f'{{"jsonrpc":"2.0","id":"w","method":"{method}","params":{params}}}')
    while not any(note["method"] == "notifications/vendor/asked" for note in server.notes):
        pause(0.02)
    call.server.notify("notifications/cancelled", '{"requestId":"w","reason":"never mind"}')
    return text("withdrawn")


def seen(call: Call) -> str:
    server = call.server
    assert isinstance(server, Talker)
    known = {
        "level": server.level,
        "followed": sorted(server.followed),
        "listens": [dict(listen) for listen in server.listens.values()],
        "cancelled": server.cancelled,
        "client": server.client,
        "notes": server.notes,
        "later": server.later,
        "waiting": server.waiting,
        "meta": call.params.get("_meta"),
    }
    return text(json.dumps(known))


def wait(call: Call) -> None:
    """Never answers. After a cancellation, `seen` reports the id of the call."""
    assert isinstance(call.server, Talker)
    call.server.waiting += 1
    pause(3600)


def progress(call: Call) -> str:
    token = json.dumps((call.params.get("_meta") or {}).get("progressToken"))
    for step in (1, 2):
        params = f'{{"progressToken":{token},"progress":{step},"total":2.0,"message":"{step}"}}'
        call.server.notify("notifications/progress", params)
    return text(token)


def begin_task(call: Call) -> str:
    name = call.server.options.name
    return f'{{"task":{{"taskId":"task-of-{name}","status":"working"}},"content":[]}}'


def slow_progress(call: Call) -> str:
    """Takes five seconds, and reports progress every second if the client asked for that."""
    for _ in range(5):
        pause(1.0)
        if "progressToken" in (call.params.get("_meta") or {}):
            progress(call)
    return text("after a while")


def die(call: Call) -> None:
    os._exit(7)


TOOLS = [
    Tool("slow_progress", declare("slow_progress"), slow_progress),
    Tool("die", declare("die"), die),
    *(Tool(name, declare(name), ask) for name in ASKED),
    Tool("log", declare("log"), log),
    Tool("change", declare("change"), change),
    Tool("ask_and_withdraw", declare("ask_and_withdraw"), ask_and_withdraw),
    Tool("seen", declare("seen"), seen),
    Tool("wait", declare("wait"), wait),
    Tool("progress", declare("progress"), progress),
    Tool("begin_task", declare("begin_task"), begin_task),
]


def main() -> None:
    Talker(TOOLS, options(__doc__ or "").parse_args()).serve()


if __name__ == "__main__":
    main()
