"""An MCP server that gets everything wrong: one tool for each kind of fault, and odd ways to
start.
"""

import json
import os
import signal
import subprocess
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
    """Half a message, and then nothing, while the process stays alive."""
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
    """A batch. The protocol has not allowed it since 2025-06-18, but it answers the call."""
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
    """Eight megabytes without a line ending on stdout, then a line ending, then the answer."""
    call.server.write(b"x" * 8_000_000 + b"\n")
    return text("after the long line")


def huge(call: Call) -> str:
    """Fifty megabytes of text in one line."""
    return text("".join(f"line {n} of a very long answer\n" for n in range(1_600_000)))


def too_large(call: Call) -> str:
    """Seventy megabytes of text in one line."""
    return text("x" * 70_000_000)


def deep_result(call: Call) -> str:
    deep = "[" * DEPTH + "]" * DEPTH
    return f'{{"content":[{{"type":"text","text":"deep"}}],"structuredContent":{deep}}}'


def die_leaving_a_child(call: Call) -> None:
    """The child still holds the server's stdout and stderr open."""
    subprocess.Popen(["sleep", "300"], stdin=subprocess.DEVNULL)
    os._exit(7)


def end_well(call: Call) -> None:
    os._exit(0)


def kill_itself(call: Call) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def close_stdout(call: Call) -> None:
    """It closes its output and stays alive."""
    os.close(1)


def freeze(call: Call) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def late(call: Call) -> str:
    """An answer after the caller has stopped waiting."""
    pause(float(call.args.get("seconds", 4)))
    return text("too late")


def early(call: Call) -> str:
    """Answers to requests that were not sent yet."""
    for number in range(1, 50):
        call.server.reply(call.id + number, call.server.modern(text("before the question")))
    return text("in time")


def id_as_text(call: Call) -> str:
    """Both official SDKs accept such an id, so its answer counts; a later one comes too late."""
    call.server.reply(float(call.id) + 0.5, call.server.modern(text("wrong id")))
    call.server.reply(str(call.id), call.server.modern(text("id as text")))
    return text("once more")


def two_ids(call: Call) -> str:
    call.server.send(f'{{"jsonrpc":"2.0","id":{call.id},"id":987654,"result":{text("whose?")}}}')
    return text("mine")


def odd_line_ends(call: Call) -> None:
    """A byte order mark before the line, a Windows line ending after it."""
    call.server.write(b"\xef\xbb\xbf" + whole(call, text("with a mark")).encode() + b"\r\n")


NOTICES = [
    *('"method":5', '"method":null', '"method":""', '"method":"x","params":[1]'),
    *('"method":"notifications/message"', '"method":"notifications/message","params":null'),
    '"method":"notifications/message","params":{"level":["x"],"data":{}}',
    '"method":"notifications/progress"',
    *('"method":"notifications/progress","params":{"progressToken":null}',) * 2,
    '"method":"notifications/progress","params":{"progressToken":{"a":[]},"progress":"x"}',
    '"method":"notifications/cancelled","params":{"requestId":[]}',
    '"method":"notifications/cancelled","params":7',
    '"method":"notifications/resources/updated","params":{"uri":{}}',
    '"method":"notifications/tools/list_changed","params":"x"',
    '"method":"notifications/made/up","params":' + "[" * 5000 + "]" * 5000,
]


def odd_notices(call: Call) -> str:
    for notice in NOTICES:
        call.server.send(f'{{"jsonrpc":"2.0",{notice}}}')
    return text("after the notices")


def cancels(call: Call) -> str:
    call.server.notify("notifications/cancelled", f'{{"requestId":{call.id},"reason":"no"}}')
    return text("answered all the same")


def notice_flood(call: Call) -> str:
    for n in range(2_000):
        call.server.notify("notifications/message", f'{{"level":"info","data":{n}}}')
    return text("after the notices")


def change_flood(call: Call) -> str:
    for _ in range(1_000):
        call.server.notify("notifications/tools/list_changed")
    return text("after the changes")


def question_flood(call: Call) -> str:
    """Three hundred questions at once. Reports how many were answered."""
    asked = [f"{call.id}-{n}" for n in range(300)]
    for name in asked:
        call.server.expect(name)
        call.server.send(f'{{"jsonrpc":"2.0","id":"{name}","method":"roots/list"}}')
    answered = [name for name in asked if call.server.answers[name].wait(5)]
    return text(f"{len(answered)} answers")


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
    *(die, effect_then_die, hang, stderr_flood, no_newline, deep_result, huge, too_large),
    *(die_leaving_a_child, end_well, kill_itself, close_stdout, freeze, late, early, id_as_text),
    *(two_ids, odd_line_ends, odd_notices, cancels, notice_flood, change_flood, question_flood),
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


PADDING = ',"x-padding":"%s"' % ("x" * 800)
LONG = "l" * 300
SCHEMA = '"inputSchema":{"type":"object"}'
WILD = [
    *(f'{{"name":{json.dumps(name)},{SCHEMA}}}' for name in ("a b", "ä/ö", "x" * 64, "__", "😀")),
    *(f'{{"name":"{LONG}{n}",{SCHEMA}}}' for n in (1, 2)),
    *(f'{{"name":"same",{SCHEMA}}}' for _ in range(2)),
    *('{"name":"","inputSchema":{}}', '{"name":"no_schema"}', '{"name":"null","inputSchema":null}'),
    '{"name":"odd_notes","annotations":5,"inputSchema":{"properties":7},"_meta":3}',
    '{"name":"yes","annotations":{"readOnlyHint":"yes"},"outputSchema":[],"inputSchema":true}',
    '{"name":"deep","inputSchema":%s1%s}' % ('{"a":' * 400, "}" * 400),
    '{"name":"escaped","n\\u0061me":"ok","inputSchema":{}}',
    '{"name":"line\\nbreak","description":"\\u202eevil\\u0000","inputSchema":{}}',
]


class OddServer(Server):
    """Answers the handshake in the way that `--start` selects."""

    def answer(self, method: str, params: dict) -> str:
        way = self.options.start
        if method == "initialize" and way in ("null", "string"):
            return {"null": "null", "string": '"hello"'}[way]
        if method == "tools/list" and way == "list-null":
            return "null"
        if method == "tools/list" and way == "list-odd":
            return '{"tools":[null,"x",{"name":5},{"description":"no name"},%s]}' % declare("ok")
        if method == "tools/list" and way == "list-wild":
            return '{"tools":[%s]}' % ",".join([declare("ok"), *WILD])
        if method == "tools/list" and way == "list-many":
            many = [declare(f"number_{n}", rest=PADDING) for n in range(5_000)]
            return '{"tools":[%s]}' % ",".join([declare("ok"), *many])
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
