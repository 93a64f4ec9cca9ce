"""Prompts have names like those of tools, and are found even by names that were never listed."""

import asyncio

import pytest
from tests.unit.gateway.offered import Server

from upwell.gateway.clients import NOBODY
from upwell.gateway.eras import Introduction
from upwell.gateway.routing.resources import UpstreamResources, is_own
from upwell.gateway.routing.tools import front_name
from upwell.wire.rawjson import RawObject, dumps, loads

PROMPTS = Introduction(version="2025-11-25", capabilities={"prompts": {}})
LONG = "plan the " + "very " * 40 + "next release"


class Prompting(Server):
    """A server of prompts, which counts how often it is asked for them."""

    def __init__(self, name, *prompts, **options):
        super().__init__(name, about=PROMPTS, **options)
        self.prompts = prompts
        self.asked = 0

    async def every(self, method, member, client):
        self.asked += 1
        return tuple(RawObject.parse(dumps({"name": name})) for name in self.prompts)


async def ignored(kinds):
    return None


def directory_of(*servers):
    return UpstreamResources(lambda: servers, None, ignored)


async def listed(upstream_resources):
    return [prompt["name"] for prompt in loads(await upstream_resources.prompts(NOBODY))]


@pytest.mark.parametrize("bare", ["plan", "plan.release", "план", LONG])
async def test_a_prompt_is_found_without_a_list(bare):
    server = Prompting("team", bare)
    name = (await listed(directory_of(server)))[0]
    assert name == front_name("team", bare)
    assert await directory_of(server).prompt(name, NOBODY) == (server, bare)


async def test_a_plain_name_needs_no_list():
    server = Prompting("team", "plan")
    assert await directory_of(server).prompt("team__plan", NOBODY) == (server, "plan")
    assert server.asked == 0


async def test_a_name_of_two_servers_belongs_to_the_first():
    first, second = Prompting("a", "plan", prefix=False), Prompting("b", "plan", prefix=False)
    upstream_resources = directory_of(first, second)
    assert await listed(upstream_resources) == ["plan"]
    assert (await upstream_resources.prompt("plan", NOBODY))[0] is first


async def test_a_server_without_prefix_owns_no_names_of_others():
    loud, team = Prompting("loud", "team__plan", "upwell__x", prefix=False), Prompting("team", "go")
    upstream_resources = directory_of(loud, team)
    assert await listed(upstream_resources) == ["team__go"]
    assert (await upstream_resources.prompt("team__plan", NOBODY))[0] is team
    assert await upstream_resources.prompt("loud__team__plan", NOBODY) is None
    assert await upstream_resources.prompt("nothing", NOBODY) is None


class Resourceful(Server):
    """A server of resources. It lists them once `open` is set."""

    def __init__(self, name, resources=(), templates=()):
        about = Introduction(version="2025-11-25", capabilities={"resources": {}})
        super().__init__(name, about=about)
        self.lists = {"resources": resources, "resourceTemplates": templates}
        self.open = asyncio.Event()
        self.open.set()

    async def every(self, method, member, client):
        await self.open.wait()
        key = "uri" if member == "resources" else "uriTemplate"
        return tuple(RawObject.parse(dumps({"name": uri, key: uri})) for uri in self.lists[member])


@pytest.mark.parametrize(
    ("uri", "owners"),
    [
        ("db://schema", ["db"]),
        ("db://row/7?token=secret", ["db"]),
        ("db://unlisted", ["db"]),
        ("docs://any/page", ["docs", "db"]),
        ("docs://any/row/1", ["db"]),
        ("mail://1", ["all", "docs", "db"]),
    ],
)
async def test_a_catch_all_template_gets_no_requests_about_the_resources_of_others(uri, owners):
    everything = Resourceful("all", templates=["{+x}", "{scheme}://row/{x}"])
    docs = Resourceful("docs", ["docs://one"])
    db = Resourceful("db", ["db://schema"], ["db://row/{id}", "docs://any/row/{id}", "docs://d{x}"])
    servers = UpstreamResources(lambda: [everything, docs, db], None, ignored)
    assert [server.name for server in await servers.owners(uri)] == owners


async def test_a_resource_that_two_servers_list_belongs_to_the_one_configured_first():
    first, second = Resourceful("a", ["file:///policy.md"]), Resourceful("b", ["file:///policy.md"])
    for servers in ([first, second], [second, first]):
        resources = UpstreamResources(lambda servers=servers: servers, Nothing(), ignored)
        listed = [entry["uri"] for entry in loads(await resources.resources(NOBODY))]
        assert listed.count("file:///policy.md") == 1
        assert await resources.owners("file:///policy.md") == [servers[0]]
        await resources.aclose()


async def test_a_resource_stays_with_its_owner_while_that_is_down():
    everything, db = Resourceful("all", ["db://other"]), Resourceful("db", ["db://schema"])
    servers = UpstreamResources(lambda: [everything, db], Nothing(), ignored, wait_seconds=0.01)
    await servers.resources(NOBODY)
    db.open.clear()
    await servers.resources(NOBODY)
    assert await servers.owners("db://schema") == [db]
    await servers.aclose()


async def test_a_late_list_holds_up_no_other_and_is_announced():
    announced = asyncio.Event()

    async def on_late(kinds):
        assert kinds == ["resources"]
        announced.set()

    slow, quick = Resourceful("slow", ["slow://x"]), Resourceful("quick", ["quick://x"])
    servers = UpstreamResources(lambda: [slow, quick], Nothing(), on_late, wait_seconds=0.01)
    slow.open.clear()
    assert [item["uri"] for item in loads(await servers.resources(NOBODY))] == ["quick://x"]
    slow.open.set()
    await asyncio.wait_for(announced.wait(), 5)
    assert len(loads(await servers.resources(NOBODY))) == 2
    await servers.aclose()


class Nothing:
    def listed(self):
        return []


@pytest.mark.parametrize("uri", ["upwell://topics", "UPWELL://topics", "upwell:/x", " Upwell:x"])
def test_no_server_has_an_address_of_ours(uri):
    assert is_own(uri)
    assert not is_own(f"file:///{uri}")
