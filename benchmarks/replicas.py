"""Replicas over one PostgreSQL: their throughput, and the errors in a long run of mixed calls.

    .venv/bin/python benchmarks/replicas.py [--replicas 1 2 4] [--memories 100000] [--seconds 20]
    .venv/bin/python benchmarks/replicas.py --mixed 100000 [--rate 0]

Every replica is a process of `upwell serve --http` with a home and an upstream server of its own.
The clients run in one more process. Each has a connection to every replica, and what it began at
one replica it continues at another. Throughput is measured for `decisions` (prompts at `/hook`),
`calls` (small proxied calls) and `mixed`, the steps of the long run: small calls, large responses
that are read on, notes that are written and looked up, searches, context, feedback and decisions.
Every answer is checked, and the wrong ones are counted by kind.
"""

import argparse
import asyncio
import json
import os
import random
import re
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count, islice
from multiprocessing import Process, Queue
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import bulk
from benchmarks.made_up import Company, questions
from benchmarks.scale import server_cpu, serving, superuser
from tests.doors.peer import ENVELOPE, MODERN
from tests.doors.replicas import Replica, replicas
from tests.doors.servers.data import big_markdown
from tests.postgres import Cluster

from upwell.ground.postgres.migrate import migrate

CLIENTS = 8
ANSWER_SECONDS = 60.0
SHOWN_CALLS = 10_000
SOON_SECONDS = 1.0
"""Every replica knows within this time what another one has stored."""
_KEY = re.compile(r'key="([^"]+)"')
_FOOTER = "\n---\n[progressive: chars="


class WrongAnswer(Exception):
    """An answer that is not what was asked for."""


class Connection:
    """A connection to one replica, opened again when it is closed between two requests."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._head = (
            f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
            "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
        )
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes, headers: str = "") -> Any:
        """Return the JSON that answers a request."""
        async with asyncio.timeout(ANSWER_SECONDS):
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._streams
            head = f"POST {path} HTTP/1.1\r\n{self._head}{headers}"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            try:
                return await self._answer(reader)
            except (OSError, asyncio.IncompleteReadError):
                self._streams = None
                raise

    async def _answer(self, reader: asyncio.StreamReader) -> Any:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = re.search(r"content-length: (\d+)", head)
        body = await reader.readexactly(int(length[1])) if length else await _chunks(reader)
        if "connection: close" in head:
            self._streams = None
        if not head.startswith("http/1.1 200"):
            raise WrongAnswer(f"HTTP {head[9:12]}: {body[:100]!r}")
        if "text/event-stream" in head:
            body = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")][-1]
        return json.loads(body)

    async def call(self, tool: str, **arguments: Any) -> Mapping[str, Any]:
        """Return the result of a tool, without a session."""
        params = {"name": tool, "arguments": arguments, "_meta": ENVELOPE}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = await self.post(
            "/mcp",
            json.dumps(body).encode(),
            f"MCP-Protocol-Version: {MODERN}\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n",
        )
        result: Mapping[str, Any] = answer.get("result", {})
        if "error" in answer or result.get("isError"):
            raise WrongAnswer(f"{tool}: {json.dumps(answer.get('error', result))[:200]}")
        return result


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readline()).strip() or b"0", 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return body


def text_of(result: Mapping[str, Any]) -> str:
    return "\n".join(block.get("text", "") for block in result["content"])


def expect(is_right: bool, kind: str, seen: object) -> None:
    if not is_right:
        raise WrongAnswer(f"{kind}: {str(seen)[:200]}")


class Client:
    """An agent with a connection to every replica. Each step asks the next one."""

    def __init__(
        self, addresses: Sequence[tuple[int, str]], texts: Sequence[str], seed: int
    ) -> None:
        self._connections = [Connection(*address) for address in addresses]
        self._texts = texts
        self._rng = random.Random(seed)
        self._numbers = count(seed * 10_000_000)
        self._run = secrets.token_hex(4)
        self._turn = seed
        self.notes: dict[str, str] = {}
        self.surfacings: list[str] = []
        self.steps = Counter[str]()

    def _next(self) -> Connection:
        self._turn += 1
        return self._connections[self._turn % len(self._connections)]

    async def small(self) -> int:
        text = f"call {next(self._numbers)}"
        seen = text_of(await self._next().call("up__echo", text=text))
        expect(seen.startswith(text), "another answer", seen)
        return 1

    async def large(self) -> int:
        """A response that is shortened, and its original from another replica."""
        whole = big_markdown()
        shown = text_of(await self._next().call("up__big_markdown"))
        key = _KEY.search(shown)
        expect(key is not None, "no key", shown[-200:])
        assert key
        offset = self._rng.randrange(len(whole) // 2)
        read = text_of(await self._next().call("upwell__read_more", key=key[1], offset=offset))
        body = read.rpartition(_FOOTER)[0]
        expect(bool(body) and whole[offset:].startswith(body), "another original", read)
        return 2

    async def note(self) -> int:
        """Write a note, and look it up at another replica."""
        text = f"{self._rng.choice(self._texts)} number {next(self._numbers)}"
        note_id = text_of(await self._next().call("upwell__add_memory", content=text)).split()[0]
        self.notes[note_id] = text
        written, made = time.monotonic(), 1
        while True:
            seen = text_of(await self._next().call("upwell__search_memory", id=note_id))
            made += 1
            if text in seen:
                return made
            late = time.monotonic() - written > SOON_SECONDS
            expect(not late, "a note is not found within a second", seen)
            await asyncio.sleep(0.1)

    async def known_note(self) -> int:
        """Look up a note of an earlier step."""
        if not self.notes:
            return await self.small()
        note_id = self._rng.choice(list(self.notes))
        seen = text_of(await self._next().call("upwell__search_memory", id=note_id))
        expect(self.notes[note_id] in seen, "an earlier note is lost", seen)
        return 1

    async def search(self) -> int:
        seen = text_of(
            await self._next().call("upwell__memory_search", query=self._rng.choice(self._texts))
        )
        expect(", id " in seen and "searched without" not in seen, "nothing found", seen)
        return 1

    async def context(self) -> int:
        """Context for a message, which `feedback` may rate later."""
        message = self._rng.choice(self._texts)
        result = await self._next().call("upwell__memory_context", message=message)
        if surfacing_id := result.get("_meta", {}).get("surfacing_id"):
            self.surfacings.append(surfacing_id)
        return 1

    async def feedback(self) -> int:
        if not self.surfacings:
            return await self.context()
        surfacing_id = self.surfacings.pop()
        rating = self._rng.choice(["helpful", "not_relevant"])
        seen = text_of(
            await self._next().call("upwell__feedback", surfacing_id=surfacing_id, rating=rating)
        )
        expect(seen.startswith("noted"), "not noted", seen)
        return 1

    async def decision(self) -> int:
        """An event of a prompt in a session of its own."""
        text = self._rng.choice(self._texts)
        event = {
            "hook_event_name": "UserPromptSubmit",
            # A session of an earlier run has been told its memories already.
            "session_id": f"{self._run}-{next(self._numbers)}",
            "prompt": text,
        }
        answer = await self._next().post("/hook/claude", json.dumps(event).encode())
        expect("hookSpecificOutput" in answer, "silence", answer)
        return 1

    async def mixed(self) -> int:
        kinds = [self.small, self.large, self.search, self.context, self.feedback, self.decision]
        kinds += [self.note, self.known_note]
        weights = [60, 10, 8, 6, 5, 6, 1, 4]
        (kind,) = self._rng.choices(kinds, weights)
        self.steps[kind.__name__] += 1
        return await kind()


Kind = Callable[[Client], Awaitable[int]]
KINDS: Mapping[str, Kind] = {
    "decisions": Client.decision,
    "calls": Client.small,
    "mixed": Client.mixed,
}


async def load(
    clients: Sequence[Client], kind: Kind, *, calls: int = 0, seconds: float = 0, rate: float = 0
) -> tuple[int, float, Counter[str]]:
    """Let the clients make steps until they have made `calls` calls or, without `calls`, until
    `seconds` have passed. If `rate` is set, they make at most that many steps a second. Returns the
    number of calls, the seconds, and the errors by kind."""
    made, shown, errors, began = 0, 0, Counter[str](), time.monotonic()
    steps = count()

    async def calling(client: Client) -> None:
        nonlocal made, shown
        while (made < calls) if calls else (time.monotonic() - began < seconds):
            if rate:
                await asyncio.sleep(max(0.0, began + next(steps) / rate - time.monotonic()))
            try:
                answered = await kind(client)
                made += answered
            except WrongAnswer as error:
                made += 1
                errors[re.sub(r"[0-9a-f]{6,}|\d+", "#", str(error))] += 1
            except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                made += 1
                errors[type(error).__name__] += 1
            if calls and made // SHOWN_CALLS > shown:
                shown = made // SHOWN_CALLS
                print(f"{made} calls, {dict(errors) or 'no errors'}", file=sys.stderr, flush=True)

    await asyncio.gather(*map(calling, clients))
    return made, time.monotonic() - began, errors


def _clients(
    queue: "Queue[Any]",
    addresses: Sequence[tuple[int, str]],
    texts: Sequence[str],
    kind: str,
    limits: Mapping[str, float],
) -> None:
    async def run() -> None:
        clients = [Client(addresses, texts, 1 + number) for number in range(CLIENTS)]
        if kind != "mixed" or "seconds" in limits:
            await load(clients, KINDS[kind], seconds=4)
        cpu = time.process_time()
        made, seconds, errors = await load(clients, KINDS[kind], **limits)
        steps = sum((client.steps for client in clients), Counter[str]())
        queue.put((made, seconds, dict(errors), time.process_time() - cpu, dict(steps)))

    asyncio.run(run())


def cpu_of(process: int) -> float:
    """The CPU seconds of a process and of all below it."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    own = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return own + sum(cpu_of(int(child)) for child in children)


def measured(
    running: Sequence[Replica], cluster: Cluster, texts: Sequence[str], kind: str, **limits: float
) -> dict[str, object]:
    """The figures of one kind of calls over these replicas."""
    queue: Queue[Any] = Queue()
    addresses = [(replica.port, replica.token) for replica in running]
    processes = [replica.process.pid for replica in running if replica.process]
    before = [cpu_of(process) for process in processes]
    server = server_cpu(cluster)
    clients = Process(target=_clients, args=(queue, addresses, texts, kind, limits))
    clients.start()
    made, seconds, errors, client_cpu, steps = queue.get()
    clients.join()
    spent = sum(map(cpu_of, processes)) - sum(before)
    return {
        "replicas": len(running),
        "kind": kind,
        "calls": made,
        "per_second": made / seconds,
        # The warm-up is a part of the time over which the processes' CPU was read.
        "cores_of_replicas": spent / (seconds + ("seconds" in limits) * 4),
        "cores_of_database": (server_cpu(cluster) - server) / (seconds + ("seconds" in limits) * 4),
        "cores_of_clients": client_cpu / seconds,
        "load": os.getloadavg()[0],
        "steps": steps,
        "errors": errors,
    }


TABLES: Mapping[str, Mapping[str, Any]] = {
    # A benchmark's clients share one token, and each asks more than a person does.
    "surface": {"cooldown_seconds": 0.0, "rate_per_minute": 1_000_000},
    "gateway": {"connect_timeout_seconds": 20.0, "call_timeout_seconds": 60.0},
}


def main(options: argparse.Namespace) -> None:
    cluster = serving()
    url = cluster.database()
    asyncio.run(migrate(url))
    company = Company()
    tenants = [("default", company.memories(options.memories))]
    bulk.fill_postgres(superuser(url), url, tenants)
    asyncio.run(bulk.measure_null_scores(url, ["default"], superuser(url)))
    texts = questions(list(islice(company.memories(options.memories), 20_000)), 2_000)
    run(cluster, url, texts, options)


def run(cluster: Cluster, url: str, texts: Sequence[str], options: argparse.Namespace) -> None:
    def report(row: Mapping[str, object]) -> None:
        rounded = {k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()}
        print(json.dumps(rounded), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        numbers = [2] if options.mixed else options.replicas
        for number in numbers:
            names = [f"r{number}-{n}" for n in range(number)]
            with replicas(Path(folder), url, *names, **TABLES) as running:
                if options.mixed:
                    limits = {"calls": options.mixed, "rate": options.rate}
                    report(measured(running, cluster, texts, "mixed", **limits))
                    continue
                for kind in KINDS:
                    report(measured(running, cluster, texts, kind, seconds=options.seconds))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--memories", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--mixed", type=int, default=0, help="calls of the long run")
    parser.add_argument("--rate", type=float, default=0, help="steps a second; 0 for no limit")
    main(parser.parse_args())
