"""Servers are replaced while calls run, and no call is lost."""

import asyncio
import os
import sys
from dataclasses import replace
from functools import partial

from upwell.gateway.options import GatewayOptions, ServerOptions
from upwell.gateway.upstreams.connection import connect
from upwell.gateway.upstreams.supervisor import Fleet, probe

UP = ServerOptions(name="up", command="up", env={"round": "0"})
OTHER = ServerOptions(name="other", command="other")


class Server:
    """An upstream that works only while it is run."""

    def __init__(self, server):
        self.server = server
        self.name = server.name
        self.busy = 0
        self.ready = asyncio.Event()
        self.ended = False

    async def run(self):
        try:
            await asyncio.sleep(0.001)
            self.ready.set()
            await asyncio.Event().wait()
        finally:
            self.ended = True

    async def settled(self):
        await self.ready.wait()

    async def call(self):
        self.busy += 1
        try:
            await asyncio.sleep(0.002)
            assert self.ready.is_set()
            assert not self.ended
            return self.server.env["round"]
        finally:
            self.busy -= 1


async def test_a_hundred_exchanges_under_load():
    fleet = Fleet([UP, OTHER], Server)
    rounds, over = [], asyncio.Event()

    async def load():
        while not over.is_set():
            rounds.append(
                await next(upstream for upstream in fleet.upstreams if upstream.name == "up").call()
            )

    async with fleet.running(), asyncio.timeout(60):
        await asyncio.gather(*(upstream.settled() for upstream in fleet.upstreams))
        calling = [asyncio.create_task(load()) for _ in range(8)]
        other = fleet.upstreams[1]
        for number in range(100):
            assert await fleet.replace([replace(UP, env={"round": str(number)}), OTHER]) is (
                number > 0
            )
        over.set()
        await asyncio.gather(*calling)
        assert fleet.upstreams[1] is other
    # The number of rounds with a call depends on the machine; a failed call would have raised.
    assert len(set(rounds)) >= 5
    assert all(upstream.ended for upstream in fleet.upstreams)


async def test_a_removed_server_finishes_its_calls():
    fleet = Fleet([UP, OTHER], Server)
    async with fleet.running():
        up = fleet.upstreams[0]
        await up.settled()
        calling = asyncio.create_task(up.call())
        await asyncio.sleep(0)
        await fleet.replace([OTHER])
        assert [upstream.name for upstream in fleet.upstreams] == ["other"]
        assert await calling == "0"


async def test_the_order_is_that_of_the_configuration():
    fleet = Fleet([UP, OTHER], Server)
    async with fleet.running():
        assert await fleet.replace([OTHER, replace(UP, enabled=False)])
        assert await fleet.replace([OTHER, UP])
        assert [upstream.name for upstream in fleet.upstreams] == ["other", "up"]


ENDING = """
import json, os, sys
request = json.loads(os.read(0, 65536))
os.close(0)
about = {"name": "brief", "version": "1"}
result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": about}
print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


async def test_a_server_that_ends_during_the_handshake_is_reported():
    server = ServerOptions(name="brief", command=sys.executable, args=("-c", ENDING))
    connecting = partial(connect, environment=dict(os.environ))
    state = await probe(server, GatewayOptions(), connecting)
    assert not state.ok
    assert "'brief' ended" in state.detail
