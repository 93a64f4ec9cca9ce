"""Runs the gateway, its worker processes, and commands on a home, and follows `config.toml`. The
daemon replaces its whole app when that changes. A running gateway applies changes to servers,
limits, tools and budgets; other changed keys are reported, and take effect after a restart.
"""

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from upwell import __version__
from upwell.app.memory import forget_notes, open_originals, open_ttl_store, private_ttl_store
from upwell.app.store import Settings, ltm_mistakes, open_files
from upwell.app.wiring import App, build, tools_of
from upwell.config import Config, load, read, read_valid
from upwell.gateway.calls.fit import Cut, Fitter
from upwell.gateway.calls.worker_pool import work
from upwell.gateway.clients import LOGGED
from upwell.gateway.front.handshake import Hello
from upwell.gateway.server import Gateway
from upwell.ground.background import BackgroundTasks
from upwell.ground.errors import ConfigError, UpwellError, UsageError
from upwell.ground.files import Home, default_home, stamp
from upwell.ground.host_sessions import own_parent
from upwell.ground.ledger import EntryKind
from upwell.ground.llm import embedder_of
from upwell.ground.pause import Pause
from upwell.ground.sqlite.salvage import Backups
from upwell.ground.trace import LOG, contained, export_spans, log_to, send_last_spans
from upwell.wire.lines import Line, Sink
from upwell.wire.rawjson import dumps

HOUSEKEEPING_MINUTES = 60
WARM_AFTER_SECONDS = 3.0
LOOK_SECONDS = 0.5
SECTIONS_AT_ONCE = frozenset({"server", "tool", "gateway", "compress"})
"""Sections of the configuration whose changes take effect at once, except `KEYS_AT_START`."""
KEYS_AT_ONCE = frozenset({"surface.race_ms", "surface.injection_mode"})
KEYS_AT_START = frozenset({"compress.original_ttl_seconds", "gateway.hosts"})


async def serve(
    lines: AsyncIterator[Line], sink: Sink, cwd: str, hello: Hello, say: Callable[[str], None]
) -> None:
    """Run the gateway for the agent at the other end of `lines` and `sink` until it disconnects.
    `say()` receives the mistakes in the configuration."""
    app = await build(Settings(tolerant=True, cwd=cwd))
    report_problems(app, say)
    export_spans(app.config.environment, __version__)
    gateway = app.gateway(own_parent())
    async with housekeeping(app, gateway):
        await gateway.serve(lines, sink, hello)


def report_problems(app: App, say: Callable[[str], None]) -> None:
    """Report the invalid settings, which the gateway ignores. Also report when the connection to a
    team's database is lost or restored."""
    if app.postgres:
        app.postgres.report_to(say)
    for mistake in app.mistakes:
        say(f"upwell: ignoring an invalid setting: {mistake}")


@asynccontextmanager
async def housekeeping(app: App, gateway: Gateway) -> AsyncIterator[None]:
    """Run housekeeping and apply configuration changes while a gateway runs; then close the app."""
    with contained("adopting learned ratios"):
        await app.budgets.load_learned()
    await forget_notes(app.notes)
    # Not a TaskGroup, because a task that fails must not stop the gateway.
    tasks = BackgroundTasks("housekeeping")
    adopt, refuse = partial(_adopt, app, gateway), partial(_tell, gateway, "error")
    following = follow_config(app.config, adopt, refuse)
    for chore in (run_housekeeping(app), following, app.follow_team()):
        tasks.start(chore)
    try:
        yield
    finally:
        await tasks.aclose()
        await app.aclose()
        await asyncio.to_thread(send_last_spans)


async def run_housekeeping(app: App) -> None:
    """Adopt learned values every minute, and run housekeeping every hour."""
    await asyncio.sleep(WARM_AFTER_SECONDS)
    with contained("preparing workers and indexes"):
        await app.warm()
    for minute in itertools.count():
        with contained("adopting learned values"):
            await app.budgets.load_learned_if_requested()
            await app.embeddings.catch_up()
            await app.learning.learned.load_learned()
        if minute % HOUSEKEEPING_MINUTES == 0:
            with contained("housekeeping"):
                await forget_notes(app.notes)
                await app.run_housekeeping()
        await asyncio.sleep(60.0)


async def _log_refusal(message: str) -> None:
    LOG.warning("%s", message)


async def follow_config(
    config: Config,
    adopt: Callable[[Config], Awaitable[None]],
    refuse: Callable[[str], Awaitable[None]] = _log_refusal,
) -> None:
    """Watch `config.toml` until cancelled, and `adopt()` what it says once it has stayed the same
    for `LOOK_SECONDS`. A file with a mistake changes nothing; `refuse()` hears of it."""
    path = config.home.config_file
    known = seen = stamp(path)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = stamp(path)
        if now != known and now == seen:
            known = now
            try:
                await adopt(load(config.home.root, environment=config.environment))
                LOG.info("the changed configuration is in effect")
            except (UpwellError, OSError) as error:
                old_stays = "the changed configuration has a mistake; the old one stays in effect"
                await refuse(f"{old_stays}: {error}")
        seen = now


async def _adopt(app: App, gateway: Gateway, fresh: Config) -> None:
    """Apply what a running gateway can: the clients' connections and the open files stay. The
    worker processes restart with the next large result."""
    before, app.config = app.config, fresh
    app.fitter.result_tokens = fresh.result_tokens()
    gateway.apply_options(fresh.gateway)
    await gateway.replace_servers(fresh.servers)
    await app.worker_pool.aclose()
    old, new = (
        {key: entry.value for key, entry in config.values.items()} for config in (before, fresh)
    )
    changed = {key for key in {*old, *new} if old.get(key) != new.get(key)}
    changed -= KEYS_AT_ONCE
    changed -= {key for key in changed if key.partition(".")[0] in SECTIONS_AT_ONCE} - KEYS_AT_START
    if awaiting := sorted(changed):
        keys = ", ".join(awaiting)
        message = f"the configuration was changed; restart upwell to apply {keys}"
        await _tell(gateway, "warning", message)


async def _tell(gateway: Gateway, level: str, message: str) -> None:
    LOG.warning("%s", message)
    notification = {"level": level, "logger": "upwell", "data": message}
    await gateway.audience.announce(LOGGED, dumps(notification))


async def run_worker(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """In a worker process, shorten the results that a gateway hands over."""
    config, _ = read_valid()
    log_to(config.home.logs)
    files, private = open_files(config, tolerant=True), private_ttl_store()
    shortened: list[Cut] = []
    fitter = Fitter(
        open_originals(config, open_ttl_store(config, files), private),
        config.compress_for,
        tools=tools_of(config, embedder_of(config.embed)),
        result_tokens=config.result_tokens(),
        shortened=lambda _, cut: shortened.append(cut),
    )
    try:
        await work(source, sink, fitter, private, shortened)
    finally:
        await files.aclose()


async def back_up() -> list[Path]:
    """`upwell backup`: replace today's backup of the memory with a new one. Returns all backups,
    newest first.

    Raises:
        StoreError: the backup cannot be written.
        UsageError: the memories are in PostgreSQL.
    """
    app = await build(Settings())
    await app.aclose()
    if app.config.store.is_team:
        raise UsageError(
            "the memories are in PostgreSQL, which upwell does not back up",
            hint="use pg_dump, or `upwell export`",
        )
    backups = Backups(app.config.home.memory_db, app.config.home.backups)
    await backups.make()
    return list(backups.list())


async def clear_cached_responses() -> int:
    """`upwell cache clear`. Returns how many responses were removed."""
    config = load()
    files = open_files(config)
    ttl_store = open_ttl_store(config, files)
    try:
        return await ttl_store.drop(EntryKind.RESPONSE)
    finally:
        await files.aclose()


def config_mistakes() -> tuple[Config, list[ConfigError]]:
    """`upwell config check`: the configuration without the invalid settings, and every mistake."""
    config, mistakes = read()
    return config, [*mistakes, *ltm_mistakes(config)]


def pause(session: str | None, home: Path | None = None) -> None:
    """`upwell off`."""
    _pause_of(home).begin(session)


def resume(session: str | None, home: Path | None = None) -> None:
    """`upwell on`."""
    _pause_of(home).end(session)


def what_is_paused(home: Path | None = None) -> str:
    """What `upwell off` has paused, in the words of `Pause.described()`."""
    return _pause_of(home).described()


def _pause_of(home: Path | None) -> Pause:
    return Pause(Home(home or default_home()).prepare().pause_file)


async def decisions(home: Path) -> list[dict[str, Any]]:
    """A home's journal of decisions, oldest first."""
    app = await build(Settings(home=home, environment={}))
    try:
        return await app.decisions()
    finally:
        await app.aclose()


USAGE = 2
"""The exit code of a command that rejects its arguments."""


async def run_command(
    app: App, *args: str, seconds: float, environment: Mapping[str, str] | None = None
) -> str:
    """The output of `upwell ARGS` for the home of this app, in a process of its own: here, a replay
    or a setup would delay other responses.

    Raises:
        UsageError: the command took too long, or rejected its arguments.
        UpwellError: the command failed.
    """
    own = {"UPWELL_HOME": str(app.config.home.root), "NO_COLOR": "1"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "upwell", *args,
        env={**app.config.environment, **own, **(environment or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(seconds):
            output, complaint = await process.communicate()
    except TimeoutError:
        raise UsageError(
            f"the command took more than {seconds:.0f} s",
            hint=f"run `upwell {' '.join(args)}` in a terminal",
        ) from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        message = complaint.decode(errors="replace").strip().removeprefix("upwell: ")
        kind = UsageError if process.returncode == USAGE else UpwellError
        raise kind(message or "the command failed")
    return output.decode(errors="replace")
