"""A model's endpoint that misbehaves: an answer or an `LlmError` arrives before the deadline."""

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from upwell.compress.base import Tools
from upwell.compress.compressor import Compressor
from upwell.compress.options import CompressOptions
from upwell.ground.clock import Deadline
from upwell.ground.errors import LlmError, UsageError
from upwell.ground.llm import Endpoint, FastEmbed, HttpEmbedder, Model2Vec, OpenAIChat, cosine
from upwell.ground.types.compression import Budget, Passage


def completion(text: object) -> bytes:
    return json.dumps({"choices": [{"message": {"content": text}}]}).encode()


class Moods(BaseHTTPRequestHandler):
    """The first part of the path selects a behaviour. `last_body` is the body received last."""

    last_body = b""
    redirects_followed = 0

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test output clean."""

    def do_POST(self) -> None:
        type(self).last_body = self.rfile.read(int(self.headers["content-length"]))
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
        time.sleep(30)

    def drips(self) -> None:
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):
            for _ in range(600):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.05)

    def drips_headers(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        with suppress(OSError):
            for number in range(600):
                self.wfile.write(b"x-%d: y\r\n" % number)
                self.wfile.flush()
                time.sleep(0.05)

    def endless(self) -> None:
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):
            while True:
                self.wfile.write(b" " * 1_000_000)

    def redirects(self) -> None:
        self.send_response(307)
        self.send_header("location", "/followed/chat/completions")
        self.send_header("content-length", "0")
        self.end_headers()

    def followed(self) -> None:
        type(self).redirects_followed += 1
        self._reply(completion("from elsewhere"))

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


@pytest.mark.parametrize(("mood", "text"), [("fine", "a summary"), ("streams", "a b")])
def test_an_answer_is_read(address: str, mood: str, text: str) -> None:
    assert chat(address, mood).chat("?", Deadline.after(5)) == text


BAD_MOODS = ["null", "rubbish", "broken", "busy", "hangs", "drips", "drips_headers"]


@pytest.mark.parametrize("mood", [*BAD_MOODS, "redirects"])
def test_a_bad_answer_is_an_llm_error_in_time(address: str, mood: str) -> None:
    begun = time.monotonic()
    with pytest.raises(LlmError):
        chat(address, mood).chat("?", Deadline.after(0.3))
    assert time.monotonic() - begun < 15, "these answers take half a minute"


def test_a_reply_without_end_is_cut_off(address: str) -> None:
    with pytest.raises(LlmError, match="exceeds 16,000,000 bytes"):
        chat(address, "endless").chat("?", Deadline.after(30))


@pytest.mark.parametrize("mood", ["hangs", "drips", "drips_headers"])
def test_a_late_answer_is_reported_as_late(address: str, mood: str) -> None:
    with pytest.raises(LlmError, match="no answer in time"):
        chat(address, mood).chat("?", Deadline.after(0.2))


def test_redirects_are_not_followed(address: str) -> None:
    with pytest.raises(LlmError, match="answered 307"):
        chat(address, "redirects").chat("?", Deadline.after(5))
    assert Moods.redirects_followed == 0


def test_proxies_of_the_environment_are_not_used(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    assert chat(address, "fine").chat("?", Deadline.after(5)) == "a summary"


@pytest.mark.parametrize("base_url", ["", "localhost", "ftp://127.0.0.1/x", "http://[", "http://"])
def test_an_unusable_address_is_an_llm_error(base_url: str) -> None:
    with pytest.raises(LlmError):
        OpenAIChat(Endpoint(base_url=base_url)).chat("?", Deadline.after(1))


@pytest.mark.parametrize("api_key", ["schlüssel", "line\nbreak"])
def test_an_unusable_key_is_an_llm_error(address: str, api_key: str) -> None:
    endpoint = Endpoint(base_url=f"{address}/fine", api_key=api_key)
    with pytest.raises(LlmError):
        OpenAIChat(endpoint).chat("?", Deadline.after(1))


def test_the_thread_is_free_when_the_exchange_is_over(address: str) -> None:
    before = threading.active_count()
    for _ in range(5):
        chat(address, "fine").chat("?", Deadline.after(60))
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_a_refused_connection_is_an_llm_error() -> None:
    with pytest.raises(LlmError, match="failed"):
        chat("http://127.0.0.1:9", "fine").chat("?", Deadline.after(1))


@pytest.mark.parametrize("mood", ["long", "empty", *BAD_MOODS])
def test_a_failed_summary_falls_back_to_truncation(address: str, mood: str) -> None:
    compressor = Compressor(
        CompressOptions(llm_timeout_seconds=0.3), Tools(chat=chat(address, mood))
    )
    budget = Budget(hard_chars=300)
    result = compressor.compress(Passage(text="words and words\n" * 99), budget, "llm_summary")
    assert result.strategy == "truncate"
    assert result.tried[0].strategy == "llm_summary"
    assert len(result.text) <= 300


def test_a_text_with_a_secret_is_not_sent_to_the_model(address: str) -> None:
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


def test_a_secret_is_not_sent_to_the_embedder(address: str) -> None:
    key = "AKIA" + "Q3EGRDAZ5MFXN2WB"
    HttpEmbedder(Endpoint(base_url=f"{address}/vectors")).embed([f"why is {key} refused"])
    assert b"refused" in Moods.last_body
    assert key.encode() not in Moods.last_body


@pytest.mark.parametrize(("kind", "package"), [(Model2Vec, "model2vec"), (FastEmbed, "fastembed")])
def test_a_missing_embedder_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, kind: type[Model2Vec] | type[FastEmbed], package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=package) as raised:
        kind(Endpoint())
    assert ".[embed]" in raised.value.hint
    assert (package == "fastembed") == ("--with fastembed" in raised.value.hint)
