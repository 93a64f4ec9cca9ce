"""A scripted model: an agent talks to it on loopback, and it records every request.

    with Model({"harbour": [Call("Read", {"file_path": "/p/tide.py"})]}) as model:
        ...  # an agent with its base URL set to model.url; a prompt with the word "harbour"
        assert "ultramarine" in model.heard[0].text

The model keeps no state: its next step depends only on the last message of the user that contains a
cue of the script, and on the number of calls since then. It can therefore serve resumed sessions,
side requests (titles, summaries) and several agents at once. At the end of the script, it answers
`DONE`.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.live import anthropic, gemini, openai
from tests.live.talk import DONE, Call, Dialect, Said

DIALECTS: Sequence[Dialect] = (anthropic.MESSAGES, openai.CHAT, openai.RESPONSES, gemini.CONTENTS)
Script = Mapping[str, Sequence[Call]]


@dataclass(frozen=True)
class Heard:
    """One request: the API's path, the body as it came, and the conversation in it."""

    path: str
    body: Mapping[str, Any]
    said: Sequence[Said] = field(repr=False)

    @property
    def text(self) -> str:
        """The full input of the model, with the system prompt and results of tools."""
        return "\n".join(part.text for part in self.said)

    def of(self, kind: str) -> list[str]:
        """The texts of one kind: `system`, `user`, `model`, `call` or `result`."""
        return [part.text for part in self.said if part.kind == kind]

    @property
    def tools(self) -> list[str]:
        """The names of the tools that were offered."""
        collected: list[str] = []
        for tool in self.body.get("tools") or ():
            inner = tool.get("functionDeclarations") or [tool.get("function") or tool]
            collected += [str(entry.get("name", entry.get("type", ""))) for entry in inner]
        return collected


class Model:
    """The server. `heard` lists the requests to a known API in order of arrival, and `strange` the
    paths of the requests that the server refused."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.heard: list[Heard] = []
        self.strange: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Model":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def about(self, word: str) -> list[Heard]:
        """The requests of the conversation in which the user said `word`."""
        return [heard for heard in self.heard if any(word in entry for entry in heard.of("user"))]

    def answer(self, path: str, body: Mapping[str, Any]) -> tuple[str, bytes] | None:
        """Media type and body of the reply; None for an unknown path."""
        dialect = next((entry for entry in DIALECTS if entry.speaks(path)), None)
        if dialect is None:
            self.strange.append(path)
            return None
        reply = dialect.said(body)
        self.heard.append(Heard(path, body, reply))
        return dialect.reply(path, body, self._next(reply))

    def _next(self, said: Sequence[Said]) -> Call | str:
        for entry in range(len(said) - 1, -1, -1):
            if said[entry].kind == "user":
                for cue, calls in self.script.items():
                    if cue in said[entry].text:
                        made = sum(part.kind == "call" for part in said[entry:])
                        return calls[made].after(said) if made < len(calls) else DONE
        return DONE


def _handler_of(model: Model) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                body = json.loads(raw or b"{}")
            except ValueError:
                body = {}
            self._send(model.answer(self.path, body if isinstance(body, dict) else {}))

        def do_GET(self) -> None:
            if self.path.partition("?")[0].endswith("/models"):
                self._send(("application/json", b'{"object": "list", "data": []}'))
            else:
                model.strange.append(self.path)
                self._send(None)

        def do_CONNECT(self) -> None:
            model.strange.append(self.path)
            self.send_error(502)

        do_HEAD = do_GET

        def _send(self, reply: tuple[str, bytes] | None) -> None:
            kind, body = reply or ("application/json", b'{"error": {"message": "not here"}}')
            self.send_response(200 if reply else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Do nothing: `heard` is the log."""

    return Handler
