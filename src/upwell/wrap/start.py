"""The commands `upwell wrap` and `upwell serve --tools`. They can be run as a file, too: `python -I
-S start.py wrap -- COMMAND`, `python -I -S start.py serve --tools`."""

import os
import sys

if not __package__:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(__file__))))

from upwell.hook.client import OFF, PLUGIN
from upwell.hook.place import DaemonPlace, default_home
from upwell.wrap.child import NOT_FOUND, ServerCannotStart, WrappedServer, end_as, environment
from upwell.wrap.relay import Relay

USAGE = "upwell wrap [--name NAME] [--home DIR] -- COMMAND [ARGS]... | --url URL [--header 'K: V']"
USAGE_STATUS = 2
OPTIONS = ("--name", "--home", "--url", "--header")


class Wrong(Exception):
    """The arguments of the command are wrong."""


def main(args: list[str]) -> int:
    """Run a server behind the relay. Returns the server's exit status, or does not return if a
    signal ended the server."""
    try:
        options, command = _read(args)
        name = options.get("--name", [""])[-1]
        if url := options.get("--url", [""])[-1]:
            name = name or url.partition("://")[2].partition("/")[0].rpartition("@")[2]
            # The program that stands for a server at an address.
            root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
            code = f"import sys; sys.path.append({root!r}); from upwell.wrap.remote import main; "
            code += "sys.exit(main(sys.argv[1:]))"
            command = [sys.executable, "-I", "-c", code, url, *options.get("--header", [])]
        if os.environ.get(OFF):
            os.execvpe(command[0], command, environment())
        server = WrappedServer(command)
    except Wrong as error:
        return _complain(f"{error}; usage: {USAGE}", USAGE_STATUS)
    except ServerCannotStart as error:
        return _complain(str(error), error.status)
    except OSError as error:
        return _complain(f"cannot run {command[0]!r}: {error.strerror}", NOT_FOUND)
    return end_as(Relay(server, _place(options), name, command).run())


def serve_tools(args: list[str]) -> int:
    """Connect the agent to upwell's own tools. Returns the exit status."""
    from upwell.wrap.asking import OF_PLUGIN
    from upwell.wrap.serve import ToolsConnection

    try:
        options, _ = _read([*args, "--", "tools"])
    except Wrong as error:
        return _complain(f"{error}; usage: upwell serve --tools [--home DIR]", USAGE_STATUS)
    name = OF_PLUGIN if os.environ.get(PLUGIN) else ""
    return ToolsConnection(_place(options), name).run()


def _place(options: dict[str, list[str]]) -> DaemonPlace:
    home = options.get("--home", [""])[-1]
    return DaemonPlace(os.path.abspath(os.path.expanduser(home)) if home else default_home())


def _read(args: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the values of the options, and the command after `--`."""
    options: dict[str, list[str]] = {}
    words = iter(args)
    for word in words:
        if word == "--":
            break
        option, is_joined, value = word.partition("=")
        if option not in OPTIONS:
            raise Wrong(f"no such option: {word}")
        options.setdefault(option, []).append(value if is_joined else next(words, ""))
    command = list(words)
    if bool(command) == bool(options.get("--url")):
        raise Wrong("one of a command and an address is needed")
    return options, command


def _complain(reason: str, status: int) -> int:
    os.write(2, f"upwell: {reason}\n".encode(errors="replace"))
    return status


if __name__ == "__main__":
    # This skips the interpreter's shutdown.
    verb, *words = sys.argv[1:]
    os._exit(main(words) if verb == "wrap" else serve_tools(words[1:]))
