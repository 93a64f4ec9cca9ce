"""Servers with tools, as the catalog sees them, and our own tools beside them."""

from upwell.gateway.eras import Introduction
from upwell.gateway.routing.tools import ToolCatalog
from upwell.gateway.upstreams.supervisor import ServerState
from upwell.wire.rawjson import RawObject, dumps, loads

UP = Introduction(version="2025-11-25")
OBJECT = {"type": "object"}


class Server:
    """An upstream; only its tools matter here."""

    def __init__(self, name, *tools, prefix=True, state=ServerState.READY, about=UP):
        self.name = name
        self.prefix = name if prefix else ""
        self.state = state
        self.about = about if state is ServerState.READY else Introduction()
        self.has(*tools)

    def has(self, *tools):
        full = ({"name": t, "inputSchema": OBJECT} if isinstance(t, str) else t for t in tools)
        self.tools = tuple(RawObject.parse(dumps(tool)) for tool in full)

    def answers(self, *tools):
        self.state, self.about = ServerState.READY, UP
        self.has(*tools)


class Ours:
    """Our own tools; only their names matter here."""

    def __init__(self, *names):
        self.names = names

    def listed(self):
        return [{"name": name, "description": "ours", "inputSchema": OBJECT} for name in self.names]


def catalog_of(*servers, own=("read_more",), may_compress=lambda *_: True, added=lambda *_: None):
    return ToolCatalog(lambda: servers, Ours(*own), may_compress, added)


def tools_of(catalog):
    return loads(catalog.listing)


def names_of(catalog):
    return [tool["name"] for tool in tools_of(catalog)]
