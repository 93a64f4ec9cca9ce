"""Arguments that HTTP headers repeat (protocol 2026-07-28), on both sides of the gateway."""

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.doors.address import BOTH, Address, said, serving
from tests.doors.conftest import Gateway, listening, write_config
from tests.doors.peer import ENVELOPE, MODERN, text_of
from tests.doors.reading import complaint

CALL = {"region": "é west", "place": {"zone": 7}}
HEADERS = {"Mcp_Param_Region": "=?base64?w6kgd2VzdA==?=", "Mcp_Param_Zone": "7"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with listening("mirror") as url:
        yield url


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, url: str) -> Iterator[Address]:
    folder = tmp_path_factory.mktemp("mirrors")
    limits = {"connect_timeout_seconds": 20.0}
    write_config(folder / "home", {"m": {"url": url}}, gateway=limits)
    with serving(folder / "home", folder / "serve.log") as served:
        yield served


def call(address: Address, arguments: Any, **headers: str) -> tuple[int, Any]:
    params = {"name": "m__where", "arguments": arguments}
    status, _, message = address.modern("tools/call", params, **headers)
    return status, message


def test_declared_arguments_are_sent_in_headers(gateway: Gateway, url: str) -> None:
    """Also for a client on stdio, which has no headers."""
    peer = gateway({"m": {"url": url}}, modern=True)
    tools = peer.wait_for_tools("m__where")
    assert "m__bad" not in tools, "its declaration is against the specification"
    assert tools["m__where"]["inputSchema"]["properties"]["region"]["x-mcp-header"] == "Region"
    seen = json.loads(text_of(peer.call("m__where", **CALL)))
    assert (seen["mcp-param-region"], seen["mcp-param-zone"]) == ("=?base64?w6kgd2VzdA==?=", "7")
    assert seen["mcp-name"] == "where"
    assert "mcp-param-region" not in json.loads(text_of(peer.call("m__where", region=None)))


def test_a_changed_tool_is_read_again(gateway: Gateway, url: str) -> None:
    peer = gateway({"m": {"url": url}})
    peer.wait_for_tools("m__changed")
    assert json.loads(text_of(peer.call("m__changed", late="x")))["mcp-param-late"] == "x"


def test_headers_that_agree_with_the_arguments(address: Address) -> None:
    status, message = call(address, CALL, **HEADERS)
    assert status == 200, message
    seen = json.loads(said(message["result"]))
    assert seen["mcp-param-zone"] == "7"
    assert call(address, {"place": {"zone": 7}}, Mcp_Param_Zone="7.0")[0] == 200
    assert call(address, {}, Mcp_Param_Unknown="nobody asked")[0] == 200
    assert call(address, {"region": None})[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {**HEADERS, "Mcp_Param_Region": "east"},
        {**HEADERS, "Mcp_Param_Region": "=?base64?w6k?="},
        {**HEADERS, "Mcp_Param_Zone": "8"},
        {"Mcp_Param_Region": HEADERS["Mcp_Param_Region"]},
    ],
)
def test_headers_that_differ_from_the_arguments_are_refused(
    address: Address, headers: dict[str, str]
) -> None:
    status, message = call(address, CALL, **headers)
    assert (status, message["error"]["code"]) == (400, -32020)
    assert message["id"] == 1
    assert "mcp-param-" in message["error"]["message"]


def test_a_header_without_its_argument_is_refused(address: Address) -> None:
    assert call(address, {}, Mcp_Param_Region="east")[0] == 400


@pytest.mark.parametrize("name", ["Mcp-Name", "Mcp-Method", "Mcp-Param-Zone"])
def test_a_repeated_header_is_refused(address: Address, name: str) -> None:
    params = {"name": "m__where", "arguments": {"place": {"zone": 7}}, "_meta": ENVELOPE}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    raw = json.dumps(body).encode()
    options = [
        ("Authorization", f"Bearer {address.token}"),
        ("Accept", BOTH),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(raw))),
        ("MCP-Protocol-Version", MODERN),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "m__where"),
        ("Mcp-Param-Zone", "7"),
    ]
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=30)

    def status(*more: tuple[str, str]) -> int:
        connection.putrequest("POST", "/mcp")
        for key, value in (*options, *more):
            connection.putheader(key, value)
        connection.endheaders(raw)
        response = connection.getresponse()
        response.read()
        return response.status

    assert status() == 200
    assert status((name, "other")) == 400
    connection.close()


async def test_the_official_client_and_the_gateway_agree(address: Address) -> None:
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": f"Bearer {address.token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        transport = streamable_http_client(f"http://127.0.0.1:{address.port}/mcp", http_client=http)
        async with Client(transport, mode=MODERN, cache=None) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} >= {"m__where"}
            result = await client.call_tool("m__where", CALL)
            seen = json.loads(result.content[0].text)
            assert seen["mcp-param-region"] == HEADERS["Mcp_Param_Region"]


def test_a_tool_that_is_left_out_cannot_be_called(gateway: Gateway, url: str) -> None:
    peer = gateway({"m": {"url": url}})
    peer.wait_for_tools("m__where")
    message = peer.ask("tools/call", {"name": "m__bad", "arguments": {}})
    assert "m__bad" in (complaint(message) if "result" in message else message["error"]["message"])
