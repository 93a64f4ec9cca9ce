"""serve: the one verb that an agent starts, and waits for. Greets first, loads the rest after."""

import asyncio
import os
import sys

from upwell.gateway.greeting import greeted
from upwell.ground.errors import UpwellError
from upwell.wire.lines import open_stdio, read_lines


def main() -> int:
    """Run the gateway on stdin and stdout. Exit status 1 with one line when it cannot start."""
    try:
        asyncio.run(_serve(os.getcwd()))
    except UpwellError as error:
        sys.stderr.write(f"upwell: {' '.join(str(error).split())}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


async def _serve(cwd: str) -> None:
    source, sink = await open_stdio()
    lines = await greeted(read_lines(source), sink)
    from upwell.app import serve

    await serve(lines, sink, cwd)
