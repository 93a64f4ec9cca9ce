"""A server whose tool `flood` writes messages that nobody asked for, as fast as it can."""

import json
import os
import sys
import time

MESSAGES = {
    "changed": b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n',
    "log": b'{"jsonrpc":"2.0","method":"notifications/message",'
    b'"params":{"level":"error","data":"x"}}\n',
    "ask": b'{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{}}\n',
    "answer": b'{"jsonrpc":"2.0","id":999999,"result":{}}\n',
}
SECONDS = 4.0


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        method, result = message.get("method"), {}
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            offered = {"tools": {"listChanged": True}, "logging": {}}
            about = {"name": "loud", "version": "1"}
            result = {"protocolVersion": version, "capabilities": offered, "serverInfo": about}
        elif method == "tools/list":
            result = {"tools": [{"name": "flood", "inputSchema": {"type": "object"}}]}
        elif method == "tools/call":
            flood(MESSAGES[message["params"]["arguments"]["kind"]])
            result = {"content": []}
        if "id" in message:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


def flood(message: bytes) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        os.write(1, message * 200)


if __name__ == "__main__":
    main()
