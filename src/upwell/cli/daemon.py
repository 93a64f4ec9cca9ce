"""daemon start|stop|status|run"""

import os
import sys
import time
from typing import Annotated, Any

import typer

from upwell.cli.output import Json, note, say, say_json, table
from upwell.ground.errors import StoreUnwritable

START_SECONDS = 15.0
daemon = typer.Typer(help="The warm process that answers hooks.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(daemon, name="daemon")


@daemon.command("run")
def run(
    from_hook: Annotated[bool, typer.Option("--from-hook", hidden=True)] = False,
) -> None:
    """Be the daemon, in this terminal. Hooks start it by themselves."""
    import asyncio

    from upwell.app.daemon import replace_hung, run_daemon

    if from_hook:
        os.chdir("/")
        os.closerange(3, 256)
    if asyncio.run(run_daemon()) or (replace_hung() and asyncio.run(run_daemon())):
        return
    note("upwell: there is a daemon of this home already")


@daemon.command("start")
def start() -> None:
    """Start the daemon of this home, if it does not run."""
    import subprocess

    from upwell.hook.control import daemon_at
    from upwell.hook.place import default_home

    found = daemon_at(default_home())
    if found is None:
        subprocess.Popen(
            [sys.executable, "-P", "-m", "upwell", "daemon", "run", "--from-hook"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    until = time.monotonic() + START_SECONDS
    while (found is None or not found.answers) and time.monotonic() < until:
        time.sleep(0.1)
        found = daemon_at(default_home())
    if found is None or not found.answers:
        raise StoreUnwritable("the daemon did not start", hint="the log says why; `upwell doctor`")
    say(f"the daemon of {found.home} runs as process {found.pid}")


@daemon.command("stop")
def stop(
    everything: Annotated[
        bool, typer.Option("--all", help="Those of every home of yours.")
    ] = False,
) -> None:
    """End the daemon of this home. The next hook starts it again."""
    from upwell.hook.control import daemon_at, end, running
    from upwell.hook.place import default_home

    one = daemon_at(default_home())
    found = running() if everything else [one] if one else []
    if not found:
        note("upwell: no daemon runs")
    for each in found:
        if not end(each):
            raise StoreUnwritable(
                f"the daemon of {each.home} (process {each.pid}) does not end",
                hint=f"kill -9 {each.pid}",
            )
        say(f"ended the daemon of {each.home} (process {each.pid})")


@daemon.command("status")
def status(as_json: Json = False) -> None:
    """Show every daemon of this user, whatever home it serves."""
    from upwell.hook.control import running

    rows: list[dict[str, Any]] = [
        {
            "home": one.home,
            "pid": one.pid,
            "version": one.version,
            "answers": one.answers,
            "up_seconds": max(0, round(time.time() - one.started_at)),
            "events": one.state.get("answered", 0),
            "rss_bytes": one.state.get("rss_bytes", 0),
        }
        for one in running()
    ]
    if as_json:
        say_json({"daemons": rows})
    else:
        columns = ("home", "pid", "version", "answers", "up_seconds", "events", "rss_bytes")
        table(columns, rows, "No daemon runs.")
