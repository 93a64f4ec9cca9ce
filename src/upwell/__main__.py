"""Where every command starts. Stdlib only: `hook …` is answered before anything else is loaded,
and `serve` without loading the command line, since an agent waits for it."""

import sys

HELP = frozenset({"-h", "--help"})
SETTING_UP = frozenset({"install", "uninstall", "export", "hosts", "capture"}) | HELP
"""What `hook` does besides answering an event: the command line's."""


def main() -> int:
    """Send `hook …` to its client, everything else to the CLI. Gives the exit status."""
    args = sys.argv[1:]
    if args[:1] == ["hook"] and args[1:] and args[1] not in SETTING_UP:
        from upwell.hook.client import main as hook

        return hook(args[1:])
    if args == ["serve"]:
        from upwell.cli.serve import main as serve

        return serve()
    from upwell.cli.main import main as cli

    return cli(args)


if __name__ == "__main__":
    sys.exit(main())
