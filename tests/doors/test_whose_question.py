"""A request of a handshake-era server goes to the client whose call it serves, or to no client."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.doors.address import Address, said, serving
from tests.doors.agent import CAPABILITIES
from tests.doors.conftest import script, write_config
from tests.doors.peer import ENVELOPE, MODERN

QUESTION = 2.0
LATER = 6.0


@pytest.fixture
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    folder = tmp_path_factory.mktemp("whose")
    limits = {"call_timeout_seconds": 60.0, "connect_timeout_seconds": 20.0}
    write_config(folder / "home", {"talk": script("talk", "--era", "legacy")}, gateway=limits)
    with serving(folder / "home", folder / "serve.log") as address:
        address.modern("tools/list", {})
        yield address


class Asking(threading.Thread):
    """A client of the modern era whose call makes the server ask for roots, after a while."""

    def __init__(self, address: Address, after: float) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.after = after
        self.result: dict[str, Any] = {}
        self.start()

    def run(self) -> None:
        meta = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": CAPABILITIES}
        call = {"name": "talk__roots", "arguments": {"after": self.after}, "_meta": meta}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        sent_headers = {"MCP_Protocol_Version": MODERN, "Mcp_Method": "tools/call"}
        self.result = self.address.send("POST", body, Mcp_Name="talk__roots", **sent_headers)[2][
            "result"
        ]


def test_a_question_is_never_put_to_another_client_of_the_same_user(address: Address) -> None:
    first, other = Asking(address, QUESTION), Asking(address, LATER)
    first.join(30)
    assert "several clients have calls in flight" in said(first.result)
    assert other.is_alive(), "it was asked nothing"
    other.join(30)
    assert len(other.result["inputRequests"]) == 1, "its own question, when it alone waits"


def test_a_question_about_a_cancelled_call_is_put_to_nobody(address: Address) -> None:
    removed = address.begin()
    call = {"name": "talk__roots", "arguments": {"after": QUESTION}}
    asking = threading.Thread(target=removed.post, args=("tools/call", 7, call), daemon=True)
    asking.start()
    other = Asking(address, LATER)
    asking.join(0.5)
    assert removed.post("notifications/cancelled", None, {"requestId": 7})[0] == 202
    other.join(QUESTION + 1)
    assert other.is_alive(), "it was asked nothing"
    other.join(30)
    assert len(other.result["inputRequests"]) == 1
