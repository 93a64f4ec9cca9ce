"""A scripted model behind an OpenAI-compatible endpoint on loopback."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Part = Callable[[Mapping[str, Any]], str]
"""Takes the JSON document of the user's message; returns the text of the completion."""


def silent(document: Mapping[str, Any]) -> str:
    """Chooses nothing."""
    del document
    return '{"why": "nothing helps", "say": null}'


def naming(word: str) -> Part:
    """Chooses the first note that contains `word`."""

    def part(document: Mapping[str, Any]) -> str:
        keys = [note["key"] for note in document["notes"] if word in note["text"]]
        return json.dumps({"why": "it has the word", "say": keys[0] if keys else None})

    return part


@dataclass(slots=True)
class ScriptedModel:
    """A model with a script, a response time, the HTTP status of its answers, and the requests that
    it received.
    """

    part: Part = silent
    seconds: float = 0.0
    status: int = 200
    usage: Mapping[str, int] | None = None
    address: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def documents(self) -> list[dict[str, Any]]:
        """The JSON documents that it was sent."""
        return [json.loads(request["messages"][1]["content"]) for request in self.requests]

    def completion(self, request: dict[str, Any]) -> bytes:
        self.requests.append(request)
        time.sleep(self.seconds)
        document = json.loads(request["messages"][1]["content"])
        text = self.part(document) if document else "ok"
        answer: dict[str, Any] = {"choices": [{"message": {"content": text}}]}
        return json.dumps(answer | ({"usage": self.usage} if self.usage else {})).encode()


@contextmanager
def serving(model: ScriptedModel) -> Iterator[ScriptedModel]:
    """Serve the model; its `address` is a `base_url`."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Keep the test output clean."""

        def do_POST(self) -> None:
            body = model.completion(
                json.loads(self.rfile.read(int(self.headers["content-length"])))
            )
            self.send_response(model.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    model.address = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
