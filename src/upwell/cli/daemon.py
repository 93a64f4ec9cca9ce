"""The commands `daemon start|stop|status|run`."""

import sys
import time
from typing import Annotated, Any

from upwell.cli.command import Group, Option
from upwell.cli.output import Json, note, say, say_json, table
from upwell.ground.errors import UpwellError

START_SECONDS = 15.0
daemon = Group("The warm process that answers hooks.")


@daemon.command("run")
def run() -> None:
    """Run the daemon in the foreground. Hooks start it on their own."""
    from upwell.app.daemon import run_or_replace

    if not run_or_replace():
        note("upwell: a daemon is already running for this home")


@daemon.command("start")
def start() -> None:
    """Start the daemon of this home if it is not running yet."""
    import subprocess

    from upwell.hook.control import daemon_at
    from upwell.hook.place import default_home

    running_daemon = daemon_at(default_home())
    if running_daemon is None:
        subprocess.Popen(
            [sys.executable, "-P", "-m", "upwell", "daemon", "run", "--from-hook"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while (running_daemon is None or not running_daemon.answers) and time.monotonic() < deadline:
        time.sleep(0.1)
        running_daemon = daemon_at(default_home())
    if running_daemon is None or not running_daemon.answers:
        raise UpwellError("the daemon did not start", hint="see the log, or run `upwell doctor`")
    say(f"the daemon of {running_daemon.home} is running as process {running_daemon.pid}")


@daemon.command("stop")
def stop(
    everything: Annotated[
        bool, Option("--all", help="Stop the daemons of all your homes.")
    ] = False,
) -> None:
    """Stop the daemon of this home. The next hook starts it again."""
    from upwell.hook.control import daemon_at, end, running
    from upwell.hook.place import default_home

    service = daemon_at(default_home())
    daemons = running() if everything else [service] if service else []
    if not daemons:
        note("upwell: no daemon is running")
    for each in daemons:
        if not end(each):
            raise UpwellError(
                f"the daemon of {each.home} (process {each.pid}) did not stop",
                hint=f"end it with `kill -9 {each.pid}`",
            )
        say(f"stopped the daemon of {each.home} (process {each.pid})")


@daemon.command("status")
def status(as_json: Json = False) -> None:
    """List your daemons, one for each home."""
    from upwell.hook.control import running

    rows: list[dict[str, Any]] = [
        {
            "home": service.home,
            "pid": service.pid,
            "version": service.version,
            "answers": service.answers,
            "up_seconds": max(0, round(time.time() - service.started_at)),
            "events": service.state.get("answered", 0),
            "rss_bytes": service.state.get("rss_bytes", 0),
        }
        for service in running()
    ]
    if as_json:
        say_json({"daemons": rows})
    else:
        columns = ("home", "pid", "version", "answers", "up_seconds", "events", "rss_bytes")
        table(columns, rows, "No daemon is running.")
