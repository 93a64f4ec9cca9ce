"""The command `upwell wrap`. It can be run as a file, too: `python -I -S start.py -- COMMAND`."""

import os
import sys

if not __package__:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(__file__))))

from upwell.hook.client import OFF
from upwell.hook.place import Place, default_home
from upwell.wrap.child import CannotStart, Server, end_as, environment
from upwell.wrap.relay import Relay

USAGE = "upwell wrap [--name NAME] [--home DIR] -- COMMAND [ARGS]..."
USAGE_STATUS = 2


def main(args: list[str]) -> int:
    """Run a server behind the relay. Returns the server's exit status, or does not return if a
    signal ended the server."""
    options, command = _read(args)
    if not command:
        return _complain(f"nothing to run; usage: {USAGE}", USAGE_STATUS)
    if unknown := [name for name in options if name not in ("--name", "--home")]:
        return _complain(f"no such option: {unknown[0]}; usage: {USAGE}", USAGE_STATUS)
    home = options.get("--home")
    try:
        if os.environ.get(OFF):
            os.execvpe(command[0], command, environment())
        server = Server(command)
    except CannotStart as error:
        return _complain(str(error), error.status)
    except OSError as error:
        return _complain(f"cannot run {command[0]!r}: {error.strerror}", 127)
    place = Place(os.path.abspath(os.path.expanduser(home)) if home else default_home())
    return end_as(Relay(server, place, options.get("--name", ""), command).run())


def _read(args: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options, and the command after `--`. Without `--`, there is no command."""
    if "--" not in args:
        return {}, []
    end = args.index("--")
    names, values = args[:end:2], args[1:end:2]
    return dict(zip(names, [*values, ""], strict=False)), args[end + 1 :]


def _complain(reason: str, status: int) -> int:
    os.write(2, f"upwell: {reason}\n".encode(errors="replace"))
    return status


if __name__ == "__main__":
    # This skips the interpreter's shutdown.
    os._exit(main(sys.argv[1:]))
