"""The entry point of the `upwell` command. Everything but `sys` is imported on use. An agent waits
for `hook`, `wrap` and `serve`, so they do not load the CLI, and neither does a daemon that a hook
has started.
"""

import sys

HELP = frozenset({"-h", "--help"})
SETTING_UP = frozenset({"install", "uninstall", "export", "hosts", "capture"}) | HELP
"""The subcommands of `hook` that the CLI handles. Any other word is the name of a host."""


def main() -> int:
    """Run the hook client, a relay, the gateway, the daemon or the CLI. Returns the exit status."""
    args = sys.argv[1:]
    if args[:1] == ["hook"] and args[1:] and args[1] not in SETTING_UP:
        from upwell.hook.client import main as hook

        return hook(args[1:])
    if args[:1] == ["wrap"] and not HELP & {*args[1:2]}:
        from upwell.wrap.start import main as wrap

        return wrap(args[1:])
    if args[:2] == ["serve", "--tools"]:
        from upwell.wrap.start import serve_tools

        return serve_tools(args[2:])
    if args == ["serve"]:
        from upwell.cli.serve import main as serve

        return serve()
    if args == ["daemon", "run", "--from-hook"]:
        from upwell.app.daemon import main as daemon

        return daemon()
    from upwell.cli.main import main as cli

    return cli(args)


if __name__ == "__main__":
    sys.exit(main())
