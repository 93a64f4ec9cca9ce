"""Gateways side by side over one PostgreSQL, and a proxy that hands its connections to them in
turn, as a load balancer does."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.doors.address import Address
from tests.doors.conformance.run import free_port
from tests.doors.conftest import script, write_config

SOON_SECONDS = 1.0
"""The others adopt what one machine changes within this time. Because a test machine may be busy,
tests allow `PATIENCE` times as much."""
PATIENCE = 5.0


class Replica:
    """`upwell serve --http` over a home of its own, at a port that stays the same."""

    def __init__(
        self,
        folder: Path,
        name: str,
        url: str,
        servers: Mapping[str, Sequence[str]] | None = None,
        **tables: Mapping[str, Any],
    ) -> None:
        self.home = folder / name
        self.port = free_port()
        self._log = folder / f"{name}.log"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "UPWELL_HOME": str(self.home),
        }
        limits = {"connect_timeout_seconds": 20.0, "call_timeout_seconds": 60.0}
        write_config(
            self.home,
            {"up": script("upstream")} if servers is None else servers,
            **{"store": {"url": url}, "gateway": limits, **tables},
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Replica":
        command = [sys.executable, "-m", "upwell", "serve", "--http", f"127.0.0.1:{self.port}"]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        end = time.monotonic() + 60
        while not self.is_ready():
            assert self.process
            assert self.process.poll() is None, self.log
            assert time.monotonic() < end, self.log
            time.sleep(0.05)

    def is_ready(self) -> bool:
        return self.status("/readyz") == 200

    def status(self, path: str) -> int:
        """The HTTP status of a path; 0 if nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End the process with a signal. Returns its exit status."""
        assert self.process
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    @property
    def address(self) -> Address:
        return Address(self.port, self.token)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")


@contextmanager
def replicas(
    folder: Path, url: str, *names: str, **tables: Mapping[str, Any]
) -> Iterator[list[Replica]]:
    """Running replicas with these names over one database."""
    started: list[Replica] = []
    try:
        for name in names:
            started.append(Replica(folder, name, url, **tables))
            started[-1].start()
        yield started
    finally:
        for replica in started:
            replica.stop(signal.SIGKILL if sys.exc_info()[0] else signal.SIGTERM)


class Proxy:
    """Hands each connection to the next port that accepts it, without looking into it."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = list(ports)
        self._next = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server
        self._server.close()
        for writer in list(self._open):
            writer.close()

    @property
    def port(self) -> int:
        assert self._server
        return int(self._server.sockets[0].getsockname()[1])

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            await self._handed_on(reader, writer)
        finally:
            self._open.discard(writer)
            writer.close()

    async def _handed_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in self._ports:
            self._next = (self._next + 1) % len(self._ports)
            try:
                behind = await asyncio.open_connection("127.0.0.1", self._ports[self._next])
            except OSError:
                continue
            await asyncio.gather(_copy(reader, behind[1]), _copy(behind[0], writer))
            return


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
