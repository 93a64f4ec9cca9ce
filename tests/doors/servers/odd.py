"""An MCP server that gets everything wrong, one tool for each way, and odd ways to start."""

import json
import os
import sys
from pathlib import Path

from frame import Call, Server, Tool, declare, note_pid, options, pause, raw_text, text

DEPTH = 100_000
FOREVER = 3_600
BAD = b"\xff\xfe\x80"


def whole(call: Call, result: str) -> str:
    return f'{{"jsonrpc":"2.0","id":{json.dumps(call.id)},"result":{call.server.modern(result)}}}'


def junk_lines(call: Call) -> str:
    """Lines that are not messages, before one that is."""
    call.server.write(b"Listening on stdio...\n\n\r\n[]\n42\nnull\n{}\n{\n")
    call.server.write(b'{"jsonrpc":"2.0"}\n{"jsonrpc":"2.0","id":null,"result":{}}\n"x"\n')
    return text("after the junk")


def bad_utf8_line(call: Call) -> str:
    call.server.write(b"log: " + BAD + b"\n")
    return text("after the bad line")


def bad_utf8_inside(call: Call) -> None:
    start, end = whole(call, text("before|after")).encode().split(b"|")
    call.server.write(start + BAD + end + b"\n")


def half_line(call: Call) -> None:
    """Half a message, and then nothing: the process lives on."""
    call.server.write(whole(call, text("never whole")).encode()[:40])
    pause(FOREVER)


def half_then_die(call: Call) -> None:
    call.server.write(whole(call, text("never whole")).encode()[:40])
    os._exit(9)


def split_line(call: Call) -> None:
    """One message in many small writes."""
    data = whole(call, text("in pieces é 🌊")).encode() + b"\n"
    for at in range(0, len(data), 3):
        call.server.write(data[at : at + 3])


def duplicate(call: Call) -> str:
    call.server.reply(call.id, call.server.modern(text("once")))
    return text("twice")


def foreign_id(call: Call) -> str:
    call.server.reply(987_654_321, call.server.modern(text("for somebody else")))
    call.server.reply("no-such-id", call.server.modern(text("for nobody")))
    call.server.reply({"an": "object"}, call.server.modern(text("for an object")))
    return text("for me")


def two_in_a_line(call: Call) -> None:
    """A batch: not allowed since 2025-06-18, but it settles the call."""
    call.server.send(f"[{whole(call, text('in a batch'))}]")


def result_and_error(call: Call) -> None:
    call.server.send(whole(call, text("both"))[:-1] + ',"error":{"code":1,"message":"both"}}')


def neither(call: Call) -> None:
    call.server.send(f'{{"jsonrpc":"2.0","id":{json.dumps(call.id)}}}')


def string_error(call: Call) -> None:
    call.server.refuse(call.id, '"boom"')


def die(call: Call) -> None:
    print("fatal: the tide went out", file=sys.stderr, flush=True)
    os._exit(7)


def effect_then_die(call: Call) -> None:
    with (Path(call.server.options.state) / "effects.txt").open("a") as file:
        file.write("done\n")
    os._exit(8)


def die_once(call: Call) -> str:
    mark = Path(call.server.options.state) / "died"
    if mark.exists():
        return text("the second time")
    mark.touch()
    os._exit(9)


def hang(call: Call) -> None:
    pause(FOREVER)


def stderr_flood(call: Call) -> str:
    line = "E" * 1023 + "\n"
    for _ in range(20 * 1024):
        sys.stderr.write(line)
    return text("after the flood")


def no_newline(call: Call) -> str:
    """Eight megabytes without a line end on stdout, then a line end, then the answer."""
    call.server.write(b"x" * 8_000_000 + b"\n")
    return text("after the long line")


def huge(call: Call) -> str:
    """Fifty megabytes of text in one line."""
    return text("".join(f"line {n} of a very long answer\n" for n in range(1_600_000)))


def deep_result(call: Call) -> str:
    deep = "[" * DEPTH + "]" * DEPTH
    return f'{{"content":[{{"type":"text","text":"deep"}}],"structuredContent":{deep}}}'


RESULTS = {
    "result_null": "null",
    "result_list": '["a"]',
    "result_string": '"a"',
    "result_number": "1.10",
    "result_empty": "{}",
    "content_string": '{"content":"not a list"}',
    "content_null": '{"content":null}',
    "block_string": '{"content":["not a block"]}',
    "text_number": '{"content":[{"type":"text","text":5}]}',
    "block_unknown": '{"content":[{"type":"x-hologram","beam":1.10},{"type":"text","text":"t"}]}',
}

TEXTS = {
    "lone_surrogate": r'"wave \ud83d and \udc00 end"',
    "nul": r'"a\u0000b\u0000"',
    "crlf": r'"one\r\ntwo\r\n\r\nthree\r"',
    "long_integer": r'"{\"n\": 123456789012345678901234567890, \"m\": 1.10, \"k\": 1e2}"',
    "duplicate_keys": r'"{\"a\": 1, \"a\": 2, \"\": 3}"',
    "deep_text": json.dumps("[" * DEPTH + "]" * DEPTH),
    "open_brackets": json.dumps("[" * DEPTH),
    "separators": '"a\u2028b\u2029c\u0085d"',
    "controls": r'"\u001b[31mred\u001b[0m \u0007 \u202egnp.exe\u200b"',
    "empty_text": '""',
}

ACTS = [
    *(junk_lines, bad_utf8_line, bad_utf8_inside, half_line, half_then_die, split_line),
    *(duplicate, foreign_id, two_in_a_line, result_and_error, neither, string_error),
    *(die, effect_then_die, hang, stderr_flood, no_newline, deep_result, huge),
]


def tools() -> list[Tool]:
    quick = [Tool("ok", declare("ok"), lambda _: text("fine"))]
    quick += [Tool(act.__name__, declare(act.__name__), act) for act in ACTS]
    harmless = ',"annotations":{"readOnlyHint":true}'
    quick += [Tool("die_once", declare("die_once", rest=harmless), die_once)]
    quick += [Tool(name, declare(name), lambda _, raw=raw: raw) for name, raw in RESULTS.items()]
    quick += [
        Tool(name, declare(name), lambda _, raw=raw: raw_text(raw)) for name, raw in TEXTS.items()
    ]
    return quick


def start(way: str, before: int) -> None:
    """The odd ways to start. Returns when the server may go on."""
    kind, _, value = way.partition(":")
    if kind == "exit":
        print("cannot open the harbour database", file=sys.stderr, flush=True)
        os._exit(int(value or 3))
    if kind == "silent":
        pause(FOREVER)
    if kind == "delay":
        pause(float(value))
    if kind == "junk":
        sys.stdout.buffer.write(b"Starting up...\n" + BAD + b"\n{}\n[1]\n")
        sys.stdout.buffer.flush()
    if kind == "fail-first" and before < int(value):
        os._exit(1)


class OddServer(Server):
    """Answers the handshake as `--start` says."""

    def answer(self, method: str, params: dict) -> str:
        way = self.options.start
        if method == "initialize" and way in ("null", "string"):
            return {"null": "null", "string": '"hello"'}[way]
        if method == "tools/list" and way == "list-null":
            return "null"
        if method == "tools/list" and way == "list-odd":
            return '{"tools":[null,"x",{"name":5},{"description":"no name"},%s]}' % declare("ok")
        if method == "tools/list" and way == "endless":
            return self.modern('{"tools":[%s],"nextCursor":"again"}' % declare("ok"))
        if method == "server/discover" and way == "strict":
            print("request before initialize", file=sys.stderr, flush=True)
            os._exit(4)
        if method == "server/discover" and way == "deaf":
            pause(FOREVER)
        return super().answer(method, params)


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--start", default="")
    arguments = parser.parse_args()
    start(arguments.start, note_pid(arguments))
    OddServer(tools(), arguments).serve()


if __name__ == "__main__":
    main()
