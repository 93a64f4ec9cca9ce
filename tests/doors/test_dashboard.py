"""`upwell dashboard`, and the page of a gateway over HTTP."""

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.doors.address import serving
from tests.doors.conftest import script, write_config


def asked(port: int, token: str, path: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
    response = connection.getresponse()
    raw = response.read()
    connection.close()
    return response.status, json.loads(raw) if raw[:1] == b"{" else raw.decode()


def test_the_command_serves_the_page(
    environment: Mapping[str, str], upwell: Callable[..., Any]
) -> None:
    upwell("remember", "The kettle whistles in B flat", "--path", "kettle.py")
    assert upwell("context", "which note does the kettle whistle?", "--session", "s").code == 0
    running = subprocess.Popen(
        [sys.executable, "-m", "upwell", "dashboard", "--no-open"],
        env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert running.stdout
    try:
        address = urlsplit(running.stdout.readline().strip())
        port, token = address.port or 0, address.fragment.removeprefix("token=")
        assert (address.hostname, address.path) == ("127.0.0.1", "/dashboard")
        assert asked(port, "", "/dashboard")[0] == 401
        status, page = asked(port, token, "/dashboard")
        assert (status, token in page, "kettle" in page) == (200, False, False)
        stats = asked(port, token, "/dashboard/stats?days=1")[1]
        assert stats == json.loads(upwell("stats", "--days", "1", "--json").out)
        assert stats["surfaced"] == 1
        lately = asked(port, token, "/dashboard/decisions")[1]
        assert lately["servers"] == []
        assert "spoke, 1 memory" in lately["decisions"][0]["account"][0]
        hits = asked(port, token, "/dashboard/memories?query=kettle+whistle")[1]["hits"]
        assert [hit["text"] for hit in hits] == ["The kettle whistles in B flat"]
        assert asked(port, token, "/dashboard/memories")[1]["hits"][0]["id"] == hits[0]["id"]
    finally:
        running.send_signal(signal.SIGINT)
        complaints = running.communicate(timeout=20)[1]
    assert running.returncode == 0, complaints


def test_a_gateway_over_http_has_the_page_and_shows_its_servers(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_config(home, {"up": script("upstream"), "gone": ["/nonexistent/server"]})
    with serving(home, tmp_path / "serve.log") as address:
        address.begin().call("up__echo", text="hi")
        lately = asked(address.port, address.token, "/dashboard/decisions")[1]
        states = {
            server["name"]: (server["state"], bool(server["trouble"]))
            for server in lately["servers"]
        }
        assert states == {"up": ("ready", False), "gone": ("failed", True)}
        assert asked(address.port, address.token, "/dashboard/stats")[1]["decisions"] == 1
        assert asked(address.port, "", "/dashboard")[0] == 401
