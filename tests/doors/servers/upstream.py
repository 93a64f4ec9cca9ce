"""A well-behaved MCP server with every content that a gateway must pass on unchanged."""

import json
import os
import sys
from pathlib import Path

from frame import Call, RpcError, Server, Tool, declare, note_pid, options, pause, raw_text, text

from data import big_json, big_log, big_markdown

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)

RICH = (
    """{"name":"echo","title":"Echo","description":"Say it again. \\u00e9 \\/ \U0001f30a",
"inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
"$defs":{"word":{"type":"string","maxLength":1e4}},"properties":{"text":{"$ref":"#/$defs/word"},
"ratio":{"type":"number","default":1.10,"maximum":123456789012345678901234567890}},
"required":["text"],"additionalProperties":false,"x-order":["z","a"]},
"annotations":{"title":"Echo!","readOnlyHint":true,"idempotentHint":true,"x-vendor":0.10},
"icons":[{"src":"data:image/png;base64,%s","mimeType":"image/png","sizes":["1x1"]}],
"execution":{"taskSupport":"forbidden"},"x-unknown":{"b":1,"a":[null,1.0]},
"_meta":{"vendor/ui":{"resourceUri":"ui://echo"}}}""".replace("\n", "")
    % PIXEL
)

OUTPUT = ',"outputSchema":{"type":"object","properties":{"%s":{}},"required":["%s"]}'
READ_ONLY = ',"annotations":{"readOnlyHint":true}'

MIXED = (
    """{"content":[
{"type":"text","text":"first","annotations":{"audience":["user"],"priority":0.50},"_meta":{"n":1}},
{"type":"image","data":"%s","mimeType":"image/png"},
{"type":"text","text":"second"},
{"type":"audio","data":"UklGRg==","mimeType":"audio/wav"},
{"type":"resource_link","uri":"file:///tmp/a.txt","name":"a.txt","size":1.0},
{"type":"resource","resource":{"uri":"note://1","text":"inside","_meta":{"deep":true}}},
{"type":"text","text":"third"}],
"_meta":{"vendor/trace":"abc","n":1e2},"x-unknown":[1.10]}""".replace("\n", "")
    % PIXEL
)

NUMBERS = (
    '{"pi":1.10,"hundred":1e2,"big":123456789012345678901234567890,"far":1E400,'
    '"small":-0.0,"twice":1,"twice":2,"z":1,"a":2}'
)


def received(call: Call) -> str:
    """The request: the line itself, and the environment of the process."""
    request = {
        "line": call.line.decode("utf-8", "replace"),
        "arguments": call.params.get("arguments"),
        "argv": sys.argv[1:],
        "env": dict(os.environ),
        "pid": os.getpid(),
        "cwd": str(Path.cwd()),
    }
    return text(json.dumps(request))


def big_mixed(call: Call) -> str:
    words = json.dumps(big_markdown())
    image = f'{{"type":"image","data":"{PIXEL}","mimeType":"image/png"}}'
    block = f'{{"type":"text","text":{words}}}'
    return f'{{"content":[{block},{image},{block}]}}'


def write_note(call: Call) -> str:
    state = Path(call.server.options.state or ".")
    with (state / "notes.txt").open("a") as file:
        file.write(f"{call.args.get('text', '')}\n")
    return text("written")


def fail(call: Call) -> str:
    return '{"content":[{"type":"text","text":"it did not work"}],"isError":true,"_meta":{"why":1}}'


def rpc_error(call: Call) -> str:
    data = '{"n":1.10,"list":[null,{"z":1,"a":2}]}'
    raise RpcError(f'{{"code":-32042,"message":"custom é","data":{data}}}')


def slow(call: Call) -> str:
    pause(float(call.args.get("seconds", 1)))
    return text("slept")


def progress(call: Call) -> str:
    token = (call.params.get("_meta") or {}).get("progressToken")
    for step in (1, 2, 3):
        values = f'"progress":{step},"total":3,"message":"step {step}"'
        call.server.notify(
            "notifications/progress", f'{{"progressToken":{json.dumps(token)},{values}}}'
        )
    pause(float(call.args.get("seconds", 0)))
    return text("done")


def add_tool(call: Call) -> str:
    name = str(call.args.get("name", "late"))
    call.server.tools[name] = Tool(name, declare(name), lambda _: text(f"I am {name}"))
    call.server.notify("notifications/tools/list_changed")
    return text("added")


def ask_client(call: Call) -> str:
    method = str(call.args.get("method", "ping"))
    return text("answered" if call.server.ask("from-upstream", method, 10) else "no answer")


def structured(value: str) -> str:
    """A result that says the same as text and as structured content."""
    block = f'{{"type":"text","text":{json.dumps(value)}}}'
    return f'{{"content":[{block}],"structuredContent":{value}}}'


STRING = '{"text":{"type":"string"}}'
PATH = '{"path":{"type":"string"}}'

TOOLS = [
    Tool("echo", RICH, lambda call: text(str(call.args.get("text", "")))),
    Tool("say", declare("say"), lambda call: text(str(call.args.get("text", "")))),
    Tool("received", declare("received"), received),
    Tool(
        "asks_for_query",
        declare("asks_for_query", properties='{"_context_query":{"type":"string"}}'),
        received,
    ),
    Tool(
        "structured",
        declare("structured", rest=OUTPUT % ("pi", "pi")),
        lambda _: structured(NUMBERS),
    ),
    Tool(
        "structured_big",
        declare("structured_big", rest=OUTPUT % ("rows", "rows")),
        lambda _: structured(f'{{"rows":{big_json()}}}'),
    ),
    Tool(
        "structured_list",
        declare("structured_list"),
        lambda _: '{"content":[],"structuredContent":[1.10,null,"x"]}',
    ),
    Tool("mixed", declare("mixed"), lambda _: MIXED),
    Tool("empty", declare("empty"), lambda _: '{"content":[]}'),
    Tool("fail", declare("fail"), fail),
    Tool("rpc_error", declare("rpc_error"), rpc_error),
    Tool("numbers", declare("numbers"), lambda _: raw_text(json.dumps(NUMBERS))),
    Tool(
        "big_json",
        declare("big_json", properties=STRING, rest=READ_ONLY),
        lambda _: text(big_json()),
    ),
    Tool("big_markdown", declare("big_markdown", rest=READ_ONLY), lambda _: text(big_markdown())),
    Tool("read", declare("read", properties=PATH, rest=READ_ONLY), received),
    Tool("big_mixed", declare("big_mixed"), big_mixed),
    Tool(
        "big_fail",
        declare("big_fail"),
        lambda _: text(big_log())[:-1] + ',"isError":true}',
    ),
    Tool(
        "write_note",
        declare("write_note", properties=STRING, rest=',"annotations":{"readOnlyHint":false}'),
        write_note,
    ),
    Tool("slow", declare("slow", properties='{"seconds":{"type":"number"}}'), slow),
    Tool("progress", declare("progress"), progress),
    Tool("add_tool", declare("add_tool"), add_tool),
    Tool("ask_client", declare("ask_client"), ask_client),
]


def main() -> None:
    arguments = options(__doc__ or "").parse_args()
    note_pid(arguments)
    Server(TOOLS, arguments).serve()


if __name__ == "__main__":
    main()
