"""Entry point of a compression worker: `python -m upwell.cli.worker`, started by a gateway."""

import asyncio
import os
import sys


async def _work() -> None:
    from upwell.app import run_worker

    loop = asyncio.get_running_loop()
    out = os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)  # a stray print must not corrupt the protocol on stdout
    reader = asyncio.StreamReader(limit=2**20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, out)
    await run_worker(reader, asyncio.StreamWriter(transport, protocol, None, loop))


if __name__ == "__main__":
    asyncio.run(_work())
