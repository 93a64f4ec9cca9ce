"""A host is recognised by the client name that it sends to MCP servers."""

import pytest

from upwell.gateway.eras import client_name
from upwell.hosts import MAX_CLIENT_CHARS, host_of_client


@pytest.mark.parametrize(
    ("client", "host"),
    [
        ("claude-code", "claude"),
        ("codex-mcp-client", "codex"),
        ("gemini-cli-mcp-client", "gemini"),
        ("Cursor", "cursor"),
        ("cursor-vscode", "cursor"),
        ("Visual Studio Code - Insiders", "vscode"),
        ("opencode", "opencode"),
        ("zed", "zed"),
        ("", ""),
    ],
)
def test_a_known_client_is_its_host_and_another_keeps_its_name(client: str, host: str) -> None:
    assert host_of_client(client) == host


def test_a_hostile_name_is_short_visible_and_without_secrets() -> None:
    assert len(host_of_client("x" * 100_000)) == MAX_CLIENT_CHARS
    assert host_of_client("two\n\nlines\u202e") == "two lines\\u202e"
    secret = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5"
    assert secret[:12] not in host_of_client(f"me {secret}")


@pytest.mark.parametrize("info", [None, b"[]", b'"x"', b'{"name":3}', b"{}"])
def test_a_client_without_a_name_has_none(info: bytes | None) -> None:
    assert client_name(info) == ""
