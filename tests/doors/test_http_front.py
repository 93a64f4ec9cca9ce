"""`upwell serve --http`: many agents at one address, in both eras, each with its own session."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.doors.address import BOTH, Address, Answer, said, serving
from tests.doors.agent import CAPABILITIES
from tests.doors.conftest import QUICK, script, write_config
from tests.doors.peer import ENVELOPE, MODERN


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    folder = tmp_path_factory.mktemp("http")
    home = folder / "home"
    servers = {"up": script("upstream"), "talk": script("talk", "--era", "legacy")}
    write_config(home, servers, gateway={**QUICK, "hosts": ["upwell.example.org"]})
    with serving(home, folder / "serve.log") as address:
        yield address


def test_a_session_from_beginning_to_end(address: Address) -> None:
    session = address.begin()
    assert said(session.call("up__echo", text="é 🌊")) == "é 🌊"
    assert address.send("DELETE", Mcp_Session_Id=session.session)[0] == 204
    assert session.post("ping", 1)[0] == 404


def test_line_breaks_inside_a_request_start_no_message(address: Address) -> None:
    session = address.begin()
    body = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__echo","arguments":'
        b'{\n"text":"x","more":[\n{"jsonrpc":"2.0","id":"s","method":"tools/list"}\r\n]}}}'
    )
    status, _, message = address.send("POST", body, Mcp_Session_Id=session.session)
    assert (status, said(message["result"])) == (200, "x")
    torn = body.replace(b'"x"', b'"x\ny"')
    assert address.send("POST", torn, Mcp_Session_Id=session.session)[0] == 400


@pytest.mark.parametrize("where", ["_meta", "name"])
def test_a_deeply_nested_request_is_refused(address: Address, where: str) -> None:
    deep = b"[" * 200_000 + b"]" * 200_000
    meta = json.dumps(ENVELOPE).encode()
    params = {
        "_meta": b'{"x":' + deep + b',"io.modelcontextprotocol/protocolVersion":' + deep + b"}"
    }
    if where == "name":
        params = {"_meta": meta, "name": deep}
    inside = b",".join(b'"%b":%b' % (name.encode(), value) for name, value in params.items())
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{%b}}' % inside
    sent_headers = {"MCP_Protocol_Version": MODERN, "Mcp_Method": "tools/call", "Mcp_Name": "x"}
    assert address.send("POST", body, **sent_headers)[0] == 400
    assert address.modern("server/discover", {})[0] == 200


def test_the_modern_era(address: Address) -> None:
    call = {"name": "up__echo", "arguments": {"text": "hi"}}
    status, headers, message = address.modern("tools/call", call)
    assert (status, said(message["result"])) == (200, "hi")
    assert "mcp-session-id" not in headers
    assert address.modern("server/discover", {})[2]["result"]["supportedVersions"] == [MODERN]


def test_a_server_asks_its_client_in_the_modern_era(address: Address) -> None:
    call = {"name": "talk__roots", "arguments": {}}
    meta = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": CAPABILITIES}
    sent_headers = {
        "MCP_Protocol_Version": MODERN,
        "Mcp_Method": "tools/call",
        "Mcp_Name": call["name"],
    }

    def post(**more: Any) -> dict[str, Any]:
        params = {**call, "_meta": meta, **more}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return dict(address.send("POST", body, **sent_headers)[2]["result"])

    first = post()
    assert first["resultType"] == "input_required"
    [key] = first["inputRequests"]
    answer = {"roots": [{"uri": "file:///x"}]}
    last = post(inputResponses={key: answer}, requestState=first["requestState"])
    assert json.loads(said(last)) == answer
    again = {**call, "_meta": meta, "requestState": first["requestState"]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": again}
    assert address.send("POST", body, **sent_headers)[2]["error"]["code"] == -32602


def test_a_question_that_cannot_be_attributed_is_declined(address: Address) -> None:
    """A server asks while two clients wait for it, or while none waits and several are connected.
    The wrong client's answer would be worse than none, so no client is asked."""
    first, second = address.begin(), address.begin()
    waiting = threading.Thread(target=first.post, args=("tools/call", 1, {"name": "talk__wait"}))
    waiting.daemon = True
    waiting.start()

    def seen() -> dict[str, Any]:
        return dict(json.loads(said(second.call("talk__seen"))))

    def until(what: Callable[[], bool]) -> None:
        end = time.monotonic() + 30
        while not what():
            assert time.monotonic() < end

    until(lambda: seen()["waiting"] > 0)
    refused = json.loads(said(second.call("talk__roots")))
    assert "several clients have calls in flight" in refused["message"]
    first.post("notifications/cancelled", None, {"requestId": 1})
    until(lambda: len(seen()["cancelled"]) > 0)
    second.post("notifications/vendor/ask", None)
    until(lambda: len(seen()["later"]) > 0)
    asked_meanwhile = "the request may concern a cancelled call"
    refused = seen()["later"][0]
    assert any(why in refused["message"] for why in ("no client is connected", asked_meanwhile))


def test_progress_comes_on_the_stream_of_its_call(address: Address) -> None:
    session = address.begin()
    params = {"name": "up__progress", "arguments": {}, "_meta": {"progressToken": "mine"}}
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=30)
    body = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params}
    headers = {"Authorization": f"Bearer {address.token}", "Accept": BOTH}
    headers |= {"Content-Type": "application/json", "Mcp-Session-Id": session.session}
    connection.request("POST", "/mcp", json.dumps(body), headers)
    lines = connection.getresponse().read().split(b"\n")
    sent = [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]
    connection.close()
    assert [m["params"]["progressToken"] for m in sent[:-1]] == ["mine"] * 3
    assert sent[-1]["id"] == 5


REFUSED: list[tuple[int, Callable[[Address], Answer]]] = [
    (401, lambda a: a.send("POST", {}, Authorization="")),
    (401, lambda a: a.send("POST", {}, Authorization="Bearer wrong")),
    (421, lambda a: a.send("POST", {}, Host="evil.example")),
    (403, lambda a: a.send("POST", {}, Origin="http://evil.example")),
    (400, lambda a: a.send("POST", b"{")),
    (400, lambda a: a.send("POST", b"[]")),
    (400, lambda a: a.send("POST", b"[" * 100_000)),
    (400, lambda a: a.send("POST", {"jsonrpc": "2.0"})),
    (415, lambda a: a.send("POST", b"{}", Content_Type="text/plain")),
    (406, lambda a: a.send("POST", b"{}", Accept="text/html")),
    (400, lambda a: a.send("POST", {"jsonrpc": "2.0", "id": 1, "method": "ping"})),
    (404, lambda a: a.send("POST", {"id": 1, "method": "ping"}, Mcp_Session_Id="no-such")),
    (400, lambda a: a.send("GET")),
    (405, lambda a: a.send("PUT", b"{}")),
    (400, lambda a: a.modern("tools/call", {"name": "up__echo"}, Mcp_Name="other")),
    (400, lambda a: a.modern("tools/list", {}, Mcp_Method="tools/call")),
    (400, lambda a: a.modern("tools/list", {}, MCP_Protocol_Version="")),
    (404, lambda a: a.modern("no/such", {})),
    (413, lambda a: a.send("POST", b"x" * 5_000_000)),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_invalid_requests_are_refused(address: Address, number: int) -> None:
    status, ask = REFUSED[number]
    assert ask(address)[0] == status


def test_a_configured_proxy_host_name_is_accepted(address: Address) -> None:
    ask = {"name": "up__echo", "arguments": {"text": "hi"}}
    for host in ("upwell.example.org", "Upwell.Example.org:443"):
        fields = {"Host": host, "Origin": "https://upwell.example.org"}
        assert address.modern("tools/call", ask, **fields)[0] == 200
    other = {"Host": "upwell.example.org", "Origin": "https://example.org"}
    assert address.modern("tools/call", ask, **other)[0] == 403
    forwarded = {"Host": "evil.example", "X_Forwarded_Host": "upwell.example.org"}
    assert address.modern("tools/call", ask, **forwarded)[0] == 421


def test_many_clients_with_the_same_ids_do_not_mix(address: Address) -> None:
    wrong: list[str] = []

    def talk(number: int) -> None:
        session = address.begin()
        for turn in range(5):
            text = f"client {number} turn {turn}"
            if said(session.call("up__echo", turn, text=text)) != text:
                wrong.append(text)

    threads = [threading.Thread(target=talk, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_the_token_of_a_client_does_not_reach_a_server(address: Address) -> None:
    session = address.begin()
    assert address.token not in said(session.call("up__received"))
