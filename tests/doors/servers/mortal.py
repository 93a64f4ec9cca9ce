"""A server over HTTP that records some calls and then dies; the test starts it again at the same
address. With `--slams`, another process listens there in between and drops each connection. On a
busy machine, the dying server's own socket may do the same."""

import argparse
import os
import socket
import subprocess
import sys
import time
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import web

DEADLY = ("read", "write")
AWAY_SECONDS = 0.5


class Mortal(web.Web):
    calls = Path()

    def call(self, identity: Any, params: Any) -> None:
        name = params["name"]
        if name not in DEADLY:
            super().call(identity, params)
            return
        before = self.calls.read_text().count(name) if self.calls.exists() else 0
        with self.calls.open("a") as file:
            file.write(f"{name}\n")
        if before < params["arguments"].get("deaths", 1):
            os._exit(1)
        self.send(200, web.message(identity, web.said("alive")))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def drop_connections(port: int) -> None:
    """Accept connections for `AWAY_SECONDS`, and drop each one after its first bytes."""
    with socket.create_server(("127.0.0.1", port)) as door:
        end = time.monotonic() + AWAY_SECONDS
        while (left := end - time.monotonic()) > 0:
            door.settimeout(left)
            try:
                visitor = door.accept()[0]
            except TimeoutError:
                return
            visitor.recv(65536)
            visitor.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--slams", action="store_true")
    options = parser.parse_args()
    web.TOOLS = ["echo", *DEADLY]
    web.READ_ONLY = ("echo", "read")
    if options.port:
        Mortal.calls = options.calls
        ThreadingHTTPServer(("127.0.0.1", options.port), Mortal).serve_forever()
    port = free_port()
    again = [sys.executable, __file__, "--calls", str(options.calls), "--port", str(port)]
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    while True:
        child = subprocess.Popen(again)
        try:
            child.wait()
            if options.slams:
                drop_connections(port)
            else:
                time.sleep(AWAY_SECONDS)
        except KeyboardInterrupt:
            child.terminate()
            child.wait()
            return


if __name__ == "__main__":
    main()
