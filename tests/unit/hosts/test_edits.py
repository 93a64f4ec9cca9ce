"""Members are added to and removed from JSON and TOML by text; everything else keeps its bytes."""

import tomllib

import pytest

from upwell.ground.errors import ConfigError
from upwell.hosts.edits import JSON, TOML, EditFormat

SCATTERED = """model = "x"  # c

[mcp_servers.a]
command = "a"

[profiles.p]
z = 1

[mcp_servers.b]
command = "b"
args = ["[not.a.table]"]

[mcp_servers.b.env]
TOKEN = "hush"

# about the tail
[tail]
x = 1
"""


def hides(key: str, value: object) -> bool:
    return ".env." in key or key.endswith("_key")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_toml_tables_in_several_places(newline: str, bom: str) -> None:
    text = bom + SCATTERED.replace("\n", newline)
    shown = TOML.shown(text, hides)
    assert "hush" not in shown
    assert 'TOKEN = "***"' in shown
    left = TOML.without(text, ("mcp_servers",), ["a", "b"])
    expected = """model = "x"  # c

[profiles.p]
z = 1

# about the tail
[tail]
x = 1
"""
    assert left == bom + expected.replace("\n", newline)
    put = TOML.put(left, ("mcp_servers",), "upwell", {"command": "u", "env": {"A": "b"}})
    assert put.startswith(left)
    assert put.count("\n") == put.count(newline)
    assert TOML.value(put)["mcp_servers"] == {"upwell": {"command": "u", "env": {"A": "b"}}}
    assert TOML.without(put, ("mcp_servers",), ["upwell"]) == left


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = {a = {command = "a"}}\n',
        'mcp_servers.a.command = "a"\n',
        '[mcp_servers]\na = {command = "a"}\n',
        '[mcp_servers.a]\ncommand = "a"\nargs = [\n["x"],\n]\nenv = {}\n',
    ],
)
def test_toml_in_another_form_is_refused(text: str) -> None:
    tomllib.loads(text)
    with pytest.raises(ConfigError, match="cannot be edited safely"):
        TOML.without(text, ("mcp_servers",), ["a"])


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_json_lines_keep_their_ends(newline: str) -> None:
    text = '{\n  "s": {\n    "a": {"k": 1}, // one\n    "b": {"k": 2},\n  },\n}\n'
    text = "\ufeff" + text.replace("\n", newline)
    put = JSON.put(text, ("s",), "c", {"k": 3})
    assert put.count("\n") == put.count(newline)
    for name in ("b", "c", "a"):
        put = JSON.without(put, ("s",), [name])
        assert put.count("\n") == put.count("\r\n") == 0 or newline in put
        assert put.count("\r") == put.count("\r\n")
    assert JSON.value(put) == {"s": {}}
    assert "// one" in put


@pytest.mark.parametrize("text", ["", "{}", '{"x": 1}', '{"p": {}}', '{"p": {"q": {}}}'])
def test_missing_tables_are_created(text: str) -> None:
    value = JSON.value(JSON.put(text, ("p", "q"), "n", {"k": 1}))
    assert value["p"]["q"] == {"n": {"k": 1}}
    assert ("x" in value) == ("x" in text)


def test_hidden_values_are_masked_in_place() -> None:
    text = '{"env": "env", "s": {"a": {"env": {"K": "env", "N": [1, "x"]}}}, "apiKey": "x"} // x\n'
    shown = JSON.shown(text, hides)
    assert shown == (
        '{"env": "env", "s": {"a": {"env": {"K": "***", "N": ["***", "***"]}}}, "apiKey": "***"}'
        " // x\n"
    )


def test_hidden_values_in_lists_of_tables() -> None:
    text = '[[hosts]]\napi_key = "hush"\nname = "h"\n'
    assert TOML.shown(text, hides) == '[[hosts]]\napi_key = "***"\nname = "h"\n'


@pytest.mark.parametrize(("format", "text"), [(JSON, "[1]"), (JSON, "{"), (TOML, "[a")])
def test_an_unreadable_file_is_an_error(format: EditFormat, text: str) -> None:
    with pytest.raises(ConfigError):
        format.value(text)
