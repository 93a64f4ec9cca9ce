"""Prompts have names like those of tools, and are found even by names that were never listed."""

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


def directory_of(*servers):
    return UpstreamResources(lambda: servers, None, 1.0)


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


@pytest.mark.parametrize("uri", ["upwell://topics", "UPWELL://topics", "upwell:/x", " Upwell:x"])
def test_no_server_has_an_address_of_ours(uri):
    assert is_own(uri)
    assert not is_own(f"file:///{uri}")
