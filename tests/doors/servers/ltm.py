"""A memory server in the form of memtomem; `--how` selects a way to misbehave."""

import json
import os
import sys
from pathlib import Path

from frame import Call, RpcError, Server, Tool, declare, note_pid, options, pause, text

FOREVER = 3_600
SLOW_SECONDS = 2.0
LARGE = 10_000_000


def hits(*contents: str) -> str:
    collected = [
        {
            "rank": rank,
            "score": 0.03,
            "source": "billing.md",
            "namespace": "default",
            "content": content,
        }
        for rank, content in enumerate(contents, 1)
    ]
    return text(json.dumps({"results": collected, "score_scale": "rrf"}))


def times_asked(call: Call) -> int:
    """The number of earlier requests, across restarts."""
    state = call.server.options.state
    if not state:
        return 0
    path = Path(state) / "asked"
    before = path.stat().st_size if path.exists() else 0
    with path.open("a") as file:
        file.write(".")
    return before


def answer(call: Call) -> str | None:
    how, fact = call.server.options.how, call.server.options.fact
    asked = times_asked(call)
    if how == "latency":
        pause(SLOW_SECONDS)
    if how.startswith("flap:") and asked < int(how.removeprefix("flap:")):
        raise RpcError('{"code":-32603,"message":"not now"}')
    if how == "hang":
        pause(FOREVER)
    if how == "slow":
        pause(0.6)
    if how == "crash":
        os._exit(9)
    if how == "error":
        raise RpcError('{"code":-32603,"message":"database is locked"}')
    if how == "garbage":
        call.server.write(b'{"jsonrpc":"2.0","id":\xff\xfe,"result":]]\n\x00\x01{"results"\n')
        return text("<html>502 Bad Gateway</html>")
    if how == "schema":
        return '{"content":{"text":[[[]]]},"structuredContent":{"results":{"content":5}}}'
    return hits(fact * (LARGE // len(fact))) if how == "large" else hits(fact)


parser = options(__doc__)
parser.add_argument("--how", default="well")
parser.add_argument("--fact", default="Nothing is known.")
arguments = parser.parse_args()
note_pid(arguments)
if arguments.how == "absent":
    sys.exit("no database here")
NAMES = '{"query":{"type":"string"},"top_k":{"type":"integer"},"output_format":{"type":"string"}}'
Server([Tool("mem_search", declare("mem_search", properties=NAMES), answer)], arguments).serve()
