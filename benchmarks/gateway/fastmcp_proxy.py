"""FastMCP's own proxy, as its documentation builds it; run by the Python that has FastMCP.

python fastmcp_proxy.py [--port PORT] (--url URL | COMMAND ARGS…)
"""

import argparse

from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--url", default="")
parser.add_argument("command", nargs=argparse.REMAINDER)
options = parser.parse_args()
target = options.url or StdioTransport(options.command[0], options.command[1:])
proxy = create_proxy(target)
if options.port:
    proxy.run(transport="http", host="127.0.0.1", port=options.port, show_banner=False)
else:
    proxy.run(show_banner=False)
