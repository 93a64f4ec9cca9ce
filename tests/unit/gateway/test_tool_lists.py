"""Saved tool lists: only of the same program, within bounds, without secrets."""

from dataclasses import replace

import pytest

from upwell.gateway.options import ServerOptions
from upwell.gateway.upstreams.tool_lists import MAX_BYTES, MAX_FILE_BYTES, ToolLists
from upwell.wire.rawjson import RawObject

SERVER = ServerOptions(name="fs", command="npx", args=("-y", "fs"), env={"KEY": "hush"})
TOOL = RawObject.parse(
    b'{"name":"read","x":1.10,"inputSchema":{"type": "object"},"description":"reads \xc3\xa9"}'
)


@pytest.fixture
def lists(tmp_path):
    return ToolLists(tmp_path / "tools.json")


def test_a_saved_list_comes_back_as_the_same_bytes(lists, tmp_path):
    lists.save(SERVER, (TOOL,))
    again = ToolLists(tmp_path / "tools.json")
    assert [tool.encode() for tool in again.for_server(SERVER)] == [TOOL.encode()]
    raw = (tmp_path / "tools.json").read_bytes()
    assert b"hush" not in raw
    assert (tmp_path / "tools.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "other",
    [
        replace(SERVER, args=("-y", "other")),
        replace(SERVER, env={}),
        replace(SERVER, name="git"),
        replace(SERVER, command="", url="https://fs.example/mcp"),
    ],
)
def test_another_server_gets_no_saved_list(lists, other):
    lists.save(SERVER, (TOOL,))
    assert lists.for_server(other) == ()


def test_a_new_value_of_a_variable_keeps_the_saved_list(lists):
    lists.save(SERVER, (TOOL,))
    assert lists.for_server(replace(SERVER, env={"KEY": "new"})) == (TOOL,)


def test_secrets_and_endless_lists_are_not_saved(lists):
    lists.save(SERVER, (TOOL,))
    token = b"ghp_" + b"a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    lists.save(SERVER, (RawObject.parse(b'{"name":"%b"}' % token),))
    assert lists.for_server(SERVER) == ()
    lists.save(SERVER, (RawObject.parse(b'{"name":"%b"}' % (b"x" * MAX_BYTES)),))
    assert lists.for_server(SERVER) == ()


def test_the_file_is_bounded(lists, tmp_path):
    long = RawObject.parse(b'{"name":"%b"}' % (b"x" * (MAX_BYTES - 100)))
    for number in range(20):
        lists.save(replace(SERVER, name=f"s{number}"), (long,))
    assert (tmp_path / "tools.json").stat().st_size <= MAX_FILE_BYTES
    assert lists.for_server(replace(SERVER, name="s19"))
    assert lists.for_server(replace(SERVER, name="s0")) == ()


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"fs":7}', b'{"fs":{"of":1}}', b"\xff"])
def test_a_foreign_file_counts_as_empty(lists, tmp_path, raw):
    (tmp_path / "tools.json").write_bytes(raw)
    assert lists.for_server(SERVER) == ()
    lists.save(SERVER, (TOOL,))
    assert lists.for_server(SERVER) == (TOOL,)
