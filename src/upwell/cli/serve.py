"""Starts the gateway. The agent is waiting, so the handshake is answered before other modules are
imported.
"""

import asyncio
import os
import sys

from upwell.gateway.front.handshake import answer_with_error, read_hello
from upwell.ground.errors import UpwellError
from upwell.wire.lines import open_stdio, read_lines


def main(http: str | None = None) -> int:
    """Run the gateway on stdio or on `HOST:PORT` and return the exit status.

    If the gateway cannot start on stdio, one line on stderr gives the reason, every request on
    stdin is answered with that error, and the status is 1.

    Raises:
        UpwellError: the gateway cannot start on `HOST:PORT`.
    """
    try:
        if http is not None:
            from upwell.app.http import serve_http
            from upwell.cli.output import note

            asyncio.run(serve_http(http, os.getcwd(), note))
            return 0
        return asyncio.run(_serve(os.getcwd()))
    except KeyboardInterrupt:
        return 130


async def _serve(cwd: str) -> int:
    source, sink = await open_stdio()
    lines, hello = await read_hello(read_lines(source), sink)
    from upwell.app import serve

    try:
        await serve(lines, sink, cwd, hello, _complain)
    except UpwellError as error:
        _complain(f"upwell: {error}")
        await answer_with_error(lines, sink, error)
        return 1
    return 0


def _complain(text: str) -> None:
    """Print on stderr. `cli/output.py` is not imported, because the agent is waiting."""
    line = " ".join(text.split())
    if sys.stderr.isatty():
        from upwell.ground.text.safe import visible

        line = visible(line)
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
