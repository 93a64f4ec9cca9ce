"""A model that always gives the same answer, behind an OpenAI-compatible endpoint on loopback."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Model:
    """Its address, and the prompts that it received."""

    address: str
    prompts: list[str] = field(default_factory=list[str])


@contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of an HTTP server on loopback, in a thread."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def serving(answer: str, *, seconds: float = 0.0, status: int = 200) -> Iterator[Model]:
    """A model that answers after `seconds`."""
    model = Model("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            model.prompts.append(body["messages"][-1]["content"])
            time.sleep(seconds)
            data = json.dumps({"choices": [{"message": {"content": answer}}]}).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                return

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    with answering(Handler) as address:
        model.address = f"{address}/v1"
        yield model
