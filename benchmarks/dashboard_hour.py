"""The dashboard of a large home, left open for an hour: first paint, the heap of the page, and the
memory of the server.

    python benchmarks/dashboard_hour.py [--memories N] [--events N] [--minutes M] [--rate R]

Fills a home, measures the first paint of five pages, and opens the page "Now" while another process
decides about `rate` events a second for `minutes`. The defaults, five events a second for six
minutes, are as many events as agents make in an hour if they take a step every two seconds. Prints
JSON.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

from upwell.app import App, Settings, build
from upwell.ground.types.cue import Cue, Door, Skip, SkipReason
from upwell.ground.types.memory import Memory

BATCH = 5_000
LOADS = 7
PAGES = ("now", "memory", "sessions", "worth", "savings")
WORDS = "order invoice kettle harbour ticket parser cache worker ledger socket".split()
FLAGS = ["--no-sandbox", "--disable-gpu", "--js-flags=--expose-gc"]
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


async def fill(home: Path, memories: int, events: int) -> None:
    app = await build(Settings(home=home, environment={}))
    try:
        for start in range(0, memories, BATCH):
            await app.memory.add_many(
                Memory(text=f"Note {n} on the {WORDS[n % 10]} of service {n % 997}.")
                for n in range(start, min(start + BATCH, memories))
            )
        for start in range(0, events, BATCH):
            for n in range(start, min(start + BATCH, events)):
                skip = Skip(reason=SkipReason.ROUTINE, moment="routine")
                app.surfacer.journal.note(cue_of(n), skip, f"k_{n}", 1.0)
            await app.surfacer.journal.flush()
    finally:
        await app.aclose()


def cue_of(number: int) -> Cue:
    return Cue(
        door=Door.TOOL,
        tool="Read",
        args={"file_path": f"/srv/p{number % 20}/{number}.py"},
        session=f"s{number // 200}",
        cwd=f"/srv/p{number % 20}",
        host="claude",
    )


async def stream(home: Path, rate: float, seconds: float) -> None:
    """Decide about events at an even rate."""
    app: App = await build(Settings(home=home, environment={}))
    began, number = time.monotonic(), 0
    while (now := time.monotonic() - began) < seconds:
        if now * rate < number:
            await asyncio.sleep(number / rate - now)
            continue
        await app.surfacer.surface(cue_of(1_000_000 + number))
        number += 1
    await app.aclose()
    print(number)


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


def page_state(page: Page) -> dict[str, Any]:
    """The heap, nodes and listeners of the page after a collection of garbage."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.enable")
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
    found = dict(session.send("Memory.getDOMCounters"))
    heap = session.send("Runtime.getHeapUsage")["usedSize"] / 2**20
    session.detach()
    return {
        "heap_mb": round(heap, 2),
        "nodes": found["nodes"],
        "listeners": found["jsEventListeners"],
        "rows": page.locator("#events li.event").count(),
    }


def paints(browser: Browser, root: str, token: str) -> dict[str, list[int]]:
    """The first paint of each page, in milliseconds: median and slowest."""
    found = {}
    for name in PAGES:
        times = []
        for _ in range(LOADS):
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            page = context.new_page()
            page.goto(f"{root}/{name}#token={token}")
            page.locator("main h1").wait_for()
            page.wait_for_function(f"({PAINT}) !== null")
            times.append(float(page.evaluate(PAINT)))
            context.close()
        found[name] = [round(statistics.median(times)), round(max(times))]
    return found


def measure(home: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home.parent), "UPWELL_HOME": str(home)}
    server = subprocess.Popen(
        [sys.executable, "-m", "upwell", "dashboard", "--no-open"],
        env=environment, cwd=home.parent, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stdout
    try:
        address = urlsplit(server.stdout.readline().strip())
        root = f"{address.scheme}://{address.netloc}/dashboard"
        token = address.fragment.removeprefix("token=")
        with sync_playwright() as playwright:
            chromium = shutil.which("chromium")
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            painted = paints(browser, root, token)
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(f"{root}/now#token={token}")
            page.locator("#events li.event").first.wait_for()
            # The list keeps a limited number of rows. It is filled first, so that only growth after
            # that counts.
            written = follow(page, home, arguments.rate * 10, 60.0)
            start = {"page": page_state(page), "server_mb": round(resident_mb(server.pid), 1)}
            written = follow(page, home, arguments.rate, 60.0 * arguments.minutes)
            end = {"page": page_state(page), "server_mb": round(resident_mb(server.pid), 1)}
            browser.close()
        return {"first_paint_ms": painted, "events": written, "start": start, "end": end}
    finally:
        server.terminate()
        server.wait(timeout=30)


def follow(page: Page, home: Path, rate: float, seconds: float) -> int:
    """Let another process decide about events while the page is open. Returns their number."""
    command = [sys.executable, __file__, "--stream", str(home), str(rate), str(seconds)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while writer.poll() is None:
        page.wait_for_timeout(1_000)
    page.wait_for_timeout(3_000)
    return int(writer.communicate()[0])


def main() -> None:
    if sys.argv[1:2] == ["--stream"]:
        asyncio.run(stream(Path(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memories", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--rate", type=float, default=5.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        asyncio.run(fill(home, arguments.memories, arguments.events))
        load = os.getloadavg()[0]
        print(json.dumps({**measure(home, arguments), "load": [load, os.getloadavg()[0]]}))


if __name__ == "__main__":
    main()
