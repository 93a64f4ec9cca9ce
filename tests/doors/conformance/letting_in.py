"""A proxy in front of a server that requires a token, for clients that cannot send one. It adds the
header to each request and passes everything else unchanged."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager


async def _requests(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, header: bytes
) -> None:
    """Pass on the requests of one connection, and add the header to each."""
    while True:
        head = await source.readuntil(b"\r\n\r\n")
        first, _, rest = head.partition(b"\r\n")
        sink.write(first + b"\r\n" + header + rest)
        length = 0
        for line in rest.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length":
                length = int(value)
        if length:
            sink.write(await source.readexactly(length))
        await sink.drain()


async def _answers(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
        await sink.drain()


@contextmanager
def let_in(port: int, token: str) -> Iterator[int]:
    """Run the proxy on a thread; yields its port."""
    header = f"Authorization: Bearer {token}\r\n".encode()
    loop = asyncio.new_event_loop()
    ready: list[int] = []
    begun, over = threading.Event(), asyncio.Event()
    open_now: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = loop.create_task(passed_on(reader, writer))
        open_now.add(task)
        task.add_done_callback(open_now.discard)

    async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", port)
        ways = [
            asyncio.create_task(_requests(reader, forth, header)),
            asyncio.create_task(_answers(back, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in (forth, writer):
                end.close()

    async def serve() -> None:
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        ready.append(server.sockets[0].getsockname()[1])
        begun.set()
        await over.wait()
        server.close()
        for task in list(open_now):
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    begun.wait(10)
    try:
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(5)
