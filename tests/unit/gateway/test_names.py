"""Public names: hosts accept them, and each has one owner."""

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.gateway.offered import Server, catalog_of, names_of, tools_of

from upwell.gateway.clients import RequestContext, Session
from upwell.gateway.routing.tools import MAX_NAME_CHARS, front_name, may_be_alias, server_of
from upwell.gateway.upstreams.supervisor import ServerState
from upwell.ground.text.tokens import count
from upwell.wire.rawjson import dumps

TAKEN_BY_HOSTS = re.compile(r"[A-Za-z0-9_-]{1,64}")
LONG = "a" * 200
ODD = ["read.file", "read/file", "read file", "日本語", "naïve", "", "x\n", "\ud800", "..", LONG]


def test_a_plain_name_is_the_server_and_the_tool():
    assert front_name("fs", "read_file") == "fs__read_file"
    assert front_name("", "read_file") == "read_file"


@pytest.mark.parametrize("tool", [one for one in ODD if one])
def test_hosts_accept_every_name_with_their_own_prefix(tool):
    name = front_name("fs", tool)
    assert TAKEN_BY_HOSTS.fullmatch(f"mcp__upwell__{name}")
    assert server_of(name) == "fs"
    assert may_be_alias(name)


def test_the_limit_is_exact():
    fits = "t" * (MAX_NAME_CHARS - len("fs__"))
    assert front_name("fs", fits) == f"fs__{fits}"
    assert len(front_name("fs", fits + "t")) == MAX_NAME_CHARS
    assert may_be_alias(front_name("fs", fits + "t"))


def test_the_longest_server_name_leaves_room_for_the_tool():
    server = "s" * 32
    assert front_name(server, LONG).startswith(f"{server}__a")


def test_names_that_become_equal_stay_distinct():
    alike = ["a.b", "a/b", "a b", "a_b", "a:b", "A.b", LONG, LONG + "a", "n\u0303", "\u00f1"]
    assert len({front_name("fs", tool) for tool in alike}) == len(alike)


@given(st.text(min_size=1), st.text(min_size=1))
def test_two_tools_never_get_one_name(one, other):
    assert (front_name("fs", one) == front_name("fs", other)) == (one == other)


def test_an_alias_is_the_same_in_another_process():
    code = (
        "from upwell.gateway.routing.tools import front_name; print(front_name('fs', 'read.file'))"
    )
    reply = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert reply.stdout.strip() == front_name("fs", "read.file")


def test_every_listed_name_leads_back_to_its_tool():
    odd = [entry for entry in ODD if entry]
    catalog = catalog_of(Server("fs", *odd), own=())
    assert [catalog.resolve(name).tool for name in names_of(catalog)] == odd


def test_a_shared_public_name_belongs_to_the_first_tool():
    first = Server("fs", "a.b", front_name("fs", "a.b").removeprefix("fs__"), "a.b")
    catalog = catalog_of(first, own=())
    assert names_of(catalog) == [front_name("fs", "a.b")]
    assert catalog.resolve(front_name("fs", "a.b")).tool == "a.b"


def test_two_servers_whose_prefix_and_tool_coincide_are_told_apart():
    a, a_b = Server("a", "b__c", "_d"), Server("a_b", "c", "d")
    catalog = catalog_of(a, a_b, own=())
    assert names_of(catalog) == ["a__b__c", "a___d", "a_b__c", "a_b__d"]
    assert [catalog.resolve(name).upstream.name for name in names_of(catalog)] == [
        "a",
        "a",
        "a_b",
        "a_b",
    ]


@pytest.mark.parametrize("name", ["upwell__read_more", "upwell__anything", "Upwell__read_more"])
def test_no_server_takes_a_name_of_ours(name):
    catalog = catalog_of(Server("loud", name, "shout", prefix=False))
    assert names_of(catalog) == ["shout", "upwell__read_more"]
    assert catalog.resolve("upwell__read_more").upstream is None


def test_no_server_takes_a_name_of_a_server_that_is_down():
    down = Server("fs", state=ServerState.FAILED)
    catalog = catalog_of(Server("loud", "fs__read", "shout", prefix=False), down, own=())
    assert names_of(catalog) == ["shout"]


def test_a_name_claimed_twice_belongs_to_the_first_configured_server():
    first = Server("first", prefix=False, state=ServerState.STARTING)
    second = Server("second", "run", "stop", prefix=False)
    catalog = catalog_of(first, second, own=())
    assert names_of(catalog) == []
    first.answers("run")
    catalog.rebuild()
    assert names_of(catalog) == ["run", "stop"]
    assert catalog.resolve("run").upstream is first


def test_a_name_does_not_change_hands_while_its_server_is_configured():
    servers = [
        Server("first", prefix=False, state=ServerState.FAILED),
        Server("second", "run", prefix=False),
    ]
    catalog = catalog_of(*servers, own=())
    assert catalog.resolve("run").upstream is servers[1]
    servers[0].answers("run", "walk")
    catalog.rebuild()
    assert names_of(catalog) == ["walk", "run"]
    assert catalog.resolve("run").upstream is servers[1]


def test_the_order_is_that_of_the_configuration_whoever_answers_first():
    slow, quick = Server("slow", state=ServerState.STARTING), Server("quick", "b", "a")
    catalog = catalog_of(slow, quick)
    assert names_of(catalog) == ["quick__b", "quick__a", "upwell__read_more"]
    slow.answers("z")
    catalog.rebuild()
    late = names_of(catalog)
    slow.answers("z")
    assert late == names_of(catalog_of(slow, quick))
    assert late == ["slow__z", "quick__b", "quick__a", "upwell__read_more"]


def test_the_descriptions_of_our_own_tools_are_counted_once_for_each_session() -> None:
    added: list[tuple[str, int]] = []
    catalog = catalog_of(Server("fs", "edit"), added=lambda *counted: added.append(counted))
    for session in (Session(None), Session(None)):
        session.host = "claude"
        for _ in range(2):
            listing = catalog.listing_for(RequestContext(session, None, None))
            assert listing == catalog.listing
    assert added == [("claude", count(dumps(tools_of(catalog)[-1]).decode()))] * 2
