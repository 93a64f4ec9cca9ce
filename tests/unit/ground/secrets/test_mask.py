"""Addresses and commands are shown without secrets."""

import pytest

from upwell.ground.secrets.mask import masked_address, masked_words, names_secret
from upwell.ground.settings import masked

KEY = "AKIA" + "Q3EGRDAZ5MFXN2WB"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://mcp.example.com/mcp", "https://mcp.example.com/mcp"),
        ("http://127.0.0.1:8000/v1/sse", "http://127.0.0.1:8000/v1/sse"),
        ("https://a.example/mcp?key=s3cret&x=", "https://a.example/mcp?key=***&x"),
        ("https://a.example/mcp?s3cret", "https://a.example/mcp?***"),
        ("https://me:s3cret@a.example:1/mcp#s3cret", "https://***@a.example:1/mcp#***"),
        ("https://a.example/s/NTk2s3cretNTk2s3cret/mcp", "https://a.example/s/***/mcp"),
        ("postgresql://u:s3cret@db/x", "postgresql://***@db/x"),
        ("http://[s3cret", "***"),
        ("", ""),
    ],
)
def test_credentials_in_an_address_are_masked(url: str, shown: str) -> None:
    assert masked_address(url) == shown


@pytest.mark.parametrize(
    "name",
    [
        "api-key",
        "apiKey",
        "API_KEY",
        "APIKey",
        "--token",
        "Cookie",
        "PGPASSWORD",
        "DB_PASS",
        "--pwd",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert names_secret(name)


@pytest.mark.parametrize(
    "name",
    ["keyboard", "max_tokens", "path", "author", "monkey", "PWD", "--pass-through", "--compass"],
)
def test_names_of_other_things(name: str) -> None:
    assert not names_secret(name)


def test_secrets_in_a_command_are_masked() -> None:
    words = ["npx", "-y", "server", "--token", "s3cret", "--api-key=s3cret", "--root", "/srv"]
    words += ["--header", "Authorization: Bearer s3cret", "https://x.example/?k=s3cret"]
    words += ["--db=postgres://u:s3cret@h/d", KEY, "API_KEY=s3cret", "--name=kelp"]
    shown = masked_words(words)
    assert "s3cret" not in str(shown)
    assert KEY not in str(shown)
    assert shown[:4] == words[:4]
    assert shown[6:8] == ["--root", "/srv"]
    assert shown[-1] == "--name=kelp"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("db -u root -p hunter2", "db -u root -p ***"),
        ("db --pass hunting", "db --pass ***"),
        ("env PGPASSWORD=hunting psql", "env PGPASSWORD=*** psql"),
        ("db mysql://u:hunting@h/x", "db mysql://***@h/x"),
        ("db --no-password --host h", "db --no-password --host h"),
        ("db -p 8080", "db -p 8080"),
        ("docker run -p 8080:80 x", "docker run -p 8080:80 x"),
        ("npx -y -p typescript tsc", "npx -y -p typescript tsc"),
        ("x -p ./folder", "x -p ./folder"),
    ],
)
def test_a_plain_word_is_a_password_by_its_position(words: str, shown: str) -> None:
    assert " ".join(masked_words(words.split())) == shown


def test_settings_are_shown_without_secrets() -> None:
    assert masked("server.a.url", "https://a.example/?key=s3cret") == "https://a.example/?key=***"
    assert masked("server.a", {"args": ("--token", "s3cret")}) == {"args": ["--token", "***"]}
    assert masked("llm.base_url", "http://u:s3cret@h/v1") == "http://***@h/v1"
    assert masked("mcp_servers.a.args", "--token=s3cret") == "--token=***"
    assert masked("surface.min_score", 0.5) == 0.5
