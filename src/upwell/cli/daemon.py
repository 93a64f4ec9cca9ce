"""daemon start|stop|status|run"""

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
def run() -> None:
    """Run the daemon in the foreground. Hooks start it on their own."""
    from upwell.app.daemon import run_or_replace

    if not run_or_replace():
        note("upwell: a daemon already runs for this home")


@daemon.command("start")
def start() -> None:
    """Start the daemon of this home unless it runs already."""
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
        raise StoreUnwritable(
            "the daemon did not start", hint="see the log, or run `upwell doctor`"
        )
    say(f"the daemon of {found.home} runs as process {found.pid}")


@daemon.command("stop")
def stop(
    everything: Annotated[
        bool, typer.Option("--all", help="Stop the daemons of all your homes.")
    ] = False,
) -> None:
    """Stop the daemon of this home. The next hook starts it again."""
    from upwell.hook.control import daemon_at, end, running
    from upwell.hook.place import default_home

    one = daemon_at(default_home())
    found = running() if everything else [one] if one else []
    if not found:
        note("upwell: no daemon runs")
    for each in found:
        if not end(each):
            raise StoreUnwritable(
                f"the daemon of {each.home} (process {each.pid}) does not stop",
                hint=f"kill -9 {each.pid}",
            )
        say(f"stopped the daemon of {each.home} (process {each.pid})")


@daemon.command("status")
def status(as_json: Json = False) -> None:
    """List your daemons, one for each home."""
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
