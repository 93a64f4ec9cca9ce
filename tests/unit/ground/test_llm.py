"""A model's endpoint in every mood: the answer comes in time or an LlmError does."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from upwell.compress.base import Options, Tools
from upwell.compress.compressor import Compressor
from upwell.ground.embed import HttpEmbedder, cosine
from upwell.ground.endpoint import Endpoint
from upwell.ground.errors import LlmError
from upwell.ground.limits import Deadline
from upwell.ground.llm import OpenAIChat
from upwell.ground.types import Budget, Passage


def completion(text: object) -> bytes:
    return json.dumps({"choices": [{"message": {"content": text}}]}).encode()


class Moods(BaseHTTPRequestHandler):
    """The first part of the path says how to behave. `heard` is what was sent last."""

    heard = b""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        type(self).heard = self.rfile.read(int(self.headers["content-length"]))
        getattr(self, self.path.split("/")[1])()

    def _reply(self, body: bytes, status: int = 200, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def fine(self) -> None:
        self._reply(completion("a summary"))

    def long(self) -> None:
        self._reply(completion("words " * 5_000))

    def empty(self) -> None:
        self._reply(completion("  "))

    def null(self) -> None:
        self._reply(completion(None))

    def rubbish(self) -> None:
        self._reply(b"<html>not json")

    def broken(self) -> None:
        self._reply(b"{}", 500)

    def busy(self) -> None:
        self._reply(b"{}", 429)

    def streams(self) -> None:
        lines = [json.dumps({"choices": [{"delta": {"content": part}}]}) for part in ("a ", "b")]
        body = "".join(f"data: {line}\n\n" for line in lines) + "data: [DONE]\n\n"
        self._reply(body.encode(), kind="text/event-stream")

    def hangs(self) -> None:
        time.sleep(1.0)

    def drips(self) -> None:
        self.send_response(200)
        self.end_headers()
        for _ in range(20):
            self.wfile.write(b" ")
            self.wfile.flush()
            time.sleep(0.05)

    def vectors(self) -> None:
        rows = [{"index": 0, "embedding": [3.0, 4.0]}]
        self._reply(json.dumps({"data": rows}).encode())


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Moods)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def chat(address: str, mood: str) -> OpenAIChat:
    return OpenAIChat(Endpoint(base_url=f"{address}/{mood}", model="m", api_key="k"))


@pytest.mark.parametrize(("mood", "said"), [("fine", "a summary"), ("streams", "a b")])
def test_an_answer_comes(address: str, mood: str, said: str) -> None:
    assert chat(address, mood).chat("?", Deadline.after(5)) == said


@pytest.mark.parametrize("mood", ["null", "rubbish", "broken", "busy", "hangs", "drips"])
def test_anything_else_is_an_llm_error_in_time(address: str, mood: str) -> None:
    begun = time.monotonic()
    with pytest.raises(LlmError):
        chat(address, mood).chat("?", Deadline.after(0.3))
    assert time.monotonic() - begun < 1.0


def test_nobody_there_is_an_llm_error() -> None:
    with pytest.raises(LlmError, match="failed"):
        chat("http://127.0.0.1:9", "fine").chat("?", Deadline.after(1))


@pytest.mark.parametrize(
    "mood", ["long", "empty", "null", "rubbish", "broken", "busy", "hangs", "drips"]
)
def test_a_summary_that_fails_is_truncated_instead(address: str, mood: str) -> None:
    compressor = Compressor(Options(llm_timeout_seconds=0.3), Tools(chat=chat(address, mood)))
    budget = Budget(hard_chars=300)
    result = compressor.compress(Passage(text="words and words\n" * 99), budget, "llm_summary")
    assert result.strategy == "truncate"
    assert result.tried[0].strategy == "llm_summary"
    assert len(result.text) <= 300


def test_a_summary_is_delivered(address: str) -> None:
    compressor = Compressor(tools=Tools(chat=chat(address, "fine")))
    result = compressor.compress(
        Passage(text="words\n" * 99), Budget(hard_chars=300), "llm_summary"
    )
    assert (result.text, result.strategy, result.lossless) == ("a summary", "llm_summary", False)


def test_a_text_that_may_not_be_sent_is_not_sent(address: str) -> None:
    tools = Tools(chat=chat(address, "fine"), may_send=lambda text: "ghp_" not in text)
    passage = Passage(text="token ghp_\n" * 99)
    result = Compressor(tools=tools).compress(passage, Budget(hard_chars=300), "llm_summary")
    assert result.strategy == "truncate"
    assert "secret" in result.tried[0].outcome


def test_vectors_have_length_one(address: str) -> None:
    embedder = HttpEmbedder(Endpoint(base_url=f"{address}/vectors"))
    assert embedder.dim == 2
    (vector,) = embedder.embed(["x"])
    assert cosine(vector, vector) == pytest.approx(1.0)


def test_a_wrong_number_of_vectors_is_an_error(address: str) -> None:
    with pytest.raises(LlmError):
        HttpEmbedder(Endpoint(base_url=f"{address}/vectors")).embed(["x", "y"])


def test_a_secret_is_not_sent_away_to_be_embedded(address: str) -> None:
    key = "AKIA" + "Q3EGRDAZ5MFXN2WB"
    HttpEmbedder(Endpoint(base_url=f"{address}/vectors")).embed([f"why is {key} refused"])
    assert b"refused" in Moods.heard
    assert key.encode() not in Moods.heard
