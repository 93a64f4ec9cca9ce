"""Runs upwell's commands in separate processes. In the server's process, a replay or a setup would
delay other responses."""

import asyncio
import sys
from collections.abc import Mapping
from contextlib import suppress

from upwell.app.wiring import App
from upwell.ground.errors import UpwellError, UsageError

USAGE = 2
"""The exit code of a command that rejects its arguments."""


async def run_command(
    app: App, *args: str, seconds: float, environment: Mapping[str, str] | None = None
) -> str:
    """The output of `upwell ARGS` for the home of this app.

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
