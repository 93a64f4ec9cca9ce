"""An MCP server over HTTP whose exchanges go wrong: no answer, broken bodies, odd event ids, line
ends inside messages, endless bodies, and notifications that it never reads.
"""

import argparse
import json
import socket
import sys
import threading
import time
from http.server import ThreadingHTTPServer
from typing import Any

import web

ENOUGH = 400_000_000
JSON, EVENTS = "application/json", "text/event-stream"
SMUGGLED = '{"jsonrpc":"2.0","id":777,"method":"sampling/createMessage","params":{}}'
PRETTY = '{\n"content":[{"type":"text",\r\n"text":"pretty 1.10"}],\n"x":[\n' + SMUGGLED + "\n]}"


def named(result: str) -> bytes:
    """An answer to any request."""
    return f'{{"jsonrpc":"2.0",\n"id":ID,\n"result":{result}}}'.encode()


WRONG: dict[str, tuple[int, str, bytes, dict[str, str]]] = {
    "empty": (200, JSON, b"", {}),
    "html": (200, "text/html", b"<p>Please log in</p>", {}),
    "accepted": (202, JSON, b"", {}),
    "other_id": (200, JSON, web.message("someone else's", web.said("not yours")), {}),
    "odd_id": (200, EVENTS, b"id: \xc3\xa9\ndata:\n\n", {}),
    "cr_id": (200, EVENTS, b"id: a\rb\ndata:\n\n", {}),
    "long_retry": (200, EVENTS, b"retry: " + b"5" * 5000 + b"\n\ndata: ANSWER\n\n", {}),
    "gzip": (200, JSON, b"no gzip", {"content_encoding": "gzip"}),
    "pretty": (200, JSON, named(PRETTY), {}),
    "large_pretty": (200, JSON, named(PRETTY[:-1] + ',"y":"' + "w " * 1_000_000 + '"}'), {}),
    "torn": (200, JSON, named('{"content":[],"x":"a\nb"}'), {}),
}
NOTE = {"level": "info", "data": "d" * 60_000}
LOGGED = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": NOTE})
POURED = {
    "endless": (JSON, b"[" * 65536),
    "flood": (EVENTS, f"data: {LOGGED}\n\n".encode()),
}
OVER = {name: threading.Event() for name in POURED}


class Odd(web.Web):
    def do_POST(self) -> None:
        """A notification about roots is never read."""
        length = int(self.headers["content-length"])
        if b"notifications/roots/list_changed" in self.rfile.peek()[:length]:
            time.sleep(60)
        super().do_POST()

    def call(self, identity: Any, params: Any) -> None:
        name, arguments = params["name"], params["arguments"]
        answer = web.message(identity, web.said(name))
        if name in WRONG:
            status, kind, body, more = WRONG[name]
            full = body.replace(b"ANSWER", answer).replace(b"ID", json.dumps(identity).encode())
            self.send(status, full, kind, **more)
        elif name == "pretty_event":
            lines = web.message(identity, PRETTY).split(b"\n")
            self.send(200, b"".join(b"data: " + line + b"\n" for line in lines) + b"\n", EVENTS)
        elif name == "reset":
            self.reset(answer)
        elif name == "slow":
            time.sleep(arguments["seconds"])
            self.send(200, answer)
        elif name in POURED:
            self.pour(name, *POURED[name])
        elif name == "sent":
            over = OVER[arguments["which"]].wait(arguments.get("wait", 0))
            self.send(200, web.message(identity, web.said(json.dumps({"over": over}))))
        else:
            super().call(identity, params)

    def reset(self, answer: bytes) -> None:
        """A body that is shorter than its declared length."""
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(2 * len(answer)))
        self.end_headers()
        self.wfile.write(answer[:20])
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def pour(self, name: str, kind: str, piece: bytes) -> None:
        """An endless body, sent as long as the client reads."""
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for _ in range(ENOUGH // len(piece)):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        except OSError:
            OVER[name].set()
        self.close_connection = True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    web.TOOLS = [*WRONG, *POURED, "pretty_event", "reset", "slow", "sent", "echo"]
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Odd)
    server.daemon_threads = True
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
