"""Finding by meaning with a model behind HTTP, as a user configures it."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.conftest import Upwell
from tests.doors.conftest import write_config
from upwell.testing import FakeEmbedder

MODEL = FakeEmbedder({"automobile": "car", "vehicle": "car", "repaired": "fix", "mended": "fix"})
NOTE = "The automobile was repaired on Tuesday"


class Embeddings(BaseHTTPRequestHandler):
    """`POST /embeddings` as OpenAI-compatible servers answer it."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        vectors = MODEL.embed(asked["input"])
        data = [{"index": n, "embedding": list(vector)} for n, vector in enumerate(vectors)]
        body = json.dumps({"data": data}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Embeddings)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def configured(home: Path, endpoint: str) -> str:
    write_config(home, {}, embed={"kind": "http", "model": "small", "base_url": endpoint})
    return endpoint


def notes(folder: Path) -> Path:
    (folder / "notes").mkdir()
    (folder / "notes" / "garage.md").write_text(f"# Garage\n\n{NOTE}.\n")
    for n in range(12):
        (folder / "notes" / f"other{n}.md").write_text(f"# Plan {n}\n\nSeason {n} in the garden.\n")
    return folder / "notes"


def test_a_memory_without_a_shared_word_is_found(
    upwell: Upwell, configured: str, tmp_path: Path
) -> None:
    assert upwell("import", str(notes(tmp_path))).code == 0
    hit = upwell("recall", "vehicle mended?", "--json").json["hits"][0]
    assert NOTE in hit["text"]
    health = upwell("doctor")
    assert "13 of 13 memories embedded by" in health.out


def test_without_the_endpoint_search_goes_by_words(
    upwell: Upwell, home: Path, tmp_path: Path, endpoint: str
) -> None:
    write_config(home, {}, embed={"kind": "http", "base_url": "http://127.0.0.1:9/"})
    assert upwell("import", str(notes(tmp_path))).code == 0
    assert NOTE in upwell("recall", "automobile", "--json").json["hits"][0]["text"]
    health = upwell("doctor")
    assert health.code == 1
    assert "words" in health.err
    write_config(home, {}, embed={"kind": "http", "base_url": endpoint})
    assert "0 of 13" in upwell("doctor").out
