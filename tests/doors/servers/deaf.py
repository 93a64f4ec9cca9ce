"""A server on stdio that shakes hands, lists a tool, and reads nothing more."""

import json
import sys
import time

ANSWERS = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "deaf", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
}

for line in sys.stdin:
    message = json.loads(line)
    if message["method"] in ANSWERS:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": ANSWERS[message["method"]]}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    if message["method"] == "tools/list":
        time.sleep(120)
