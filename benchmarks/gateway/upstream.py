"""The server behind every contender: it answers at once, so that the figures show the gateway."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "doors" / "servers"))

from frame import Call, Server, Tool, declare, options, text

LINE = "2026-11-21T10:{:02d}:00Z worker-{:03d} fetched https://example.org/items/{} in {} ms\n"
READ_ONLY = ',"annotations":{"readOnlyHint":true}'
NUMBER = '{"bytes":{"type":"number"}}'
CHUNK = b"x" * (1 << 20)


def words(call: Call) -> str:
    """A log of about this many bytes."""
    size_limit = int(call.args["bytes"])
    lines = (LINE.format(n % 60, n % 97, n * 7919 % 100_003, n % 1009) for n in range(size_limit))
    parts: list[str] = []
    size = 0
    for line in lines:
        parts.append(line)
        size += len(line)
        if size >= size_limit:
            break
    return text("".join(parts))


def flood(call: Call) -> None:
    """One line of this many bytes, written as fast as the reader takes it."""
    head = f'{{"jsonrpc":"2.0","id":{json.dumps(call.id)},"result":{{"content":'
    head += '[{"type":"text","text":"'
    with call.server.lock:
        sys.stdout.buffer.write(head.encode())
        for _ in range(int(call.args["bytes"]) // len(CHUNK)):
            sys.stdout.buffer.write(CHUNK)
        sys.stdout.buffer.write(b'"}]}}\n')
        sys.stdout.buffer.flush()


TOOLS = [
    Tool("say", declare("say", rest=READ_ONLY), lambda call: text(str(call.args.get("text", "")))),
    Tool("words", declare("words", properties=NUMBER, rest=READ_ONLY), words),
    Tool("flood", declare("flood", properties=NUMBER, rest=READ_ONLY), flood),
]

if __name__ == "__main__":
    Server(TOOLS, options(__doc__ or "").parse_args()).serve()
