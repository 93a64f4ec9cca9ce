"""A server with thirty thousand tools. A call of `change` announces that they changed, and so does
the second, third and fourth `tools/list`."""

import json
import sys

PROPERTIES = {f"a{place}": {"type": "string", "description": "An argument"} for place in range(3)}
SCHEMA = {"type": "object", "properties": PROPERTIES}
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


def listed(turn: int) -> dict[str, object]:
    text = f"Does what it does, as of turn {turn}."
    names = ["change", *(f"tool_{number}" for number in range(30_000))]
    return {"tools": [{"name": n, "description": text, "inputSchema": SCHEMA} for n in names]}


def main() -> None:
    turn = 0
    for line in sys.stdin:
        message = json.loads(line)
        method, result = message.get("method"), {}
        if method == "initialize":
            offered = {"tools": {"listChanged": True}}
            about = {"name": "many", "version": "1"}
            version = message["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": offered, "serverInfo": about}
        elif method == "tools/list":
            turn += 1
            result = listed(turn)
            if 1 < turn < 5:
                say(CHANGED)
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": str(turn)}]}
            if message["params"]["name"] == "change":
                say(CHANGED)
        if "id" in message:
            say({"jsonrpc": "2.0", "id": message["id"], "result": result})


def say(message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
