"""serve · add · list · remove · on · off"""

import shutil
from typing import Annotated

import typer

from upwell.cli.output import Json, note, say, say_json, table
from upwell.ground.errors import UsageError

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": False}


def register(app: typer.Typer) -> None:
    app.command()(serve)
    app.command(context_settings=_PASS_ON)(add)
    app.command("list")(list_servers)
    for verb in (remove, on, off):
        app.command()(verb)


def serve(
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve HTTP there: /mcp /hook /healthz /metrics."),
    ] = None,
) -> None:
    """Run the gateway on stdin and stdout, or for many on HTTP."""
    from upwell.cli.serve import main

    raise typer.Exit(main(http))


def add(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The prefix of its tools: NAME__tool.")
    ] = "",
    env: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="For its environment.")
    ] = None,
    url: Annotated[str, typer.Option(help="Where a server on HTTP is.")] = "",
    header: Annotated[
        list[str] | None, typer.Option(metavar="K: V", help="For every request to it.")
    ] = None,
    transport: Annotated[str, typer.Option(help="http, or sse for servers of 2024.")] = "",
    auth: Annotated[str, typer.Option(help="oauth where `upwell login` is needed.")] = "",
    from_clients: Annotated[
        bool, typer.Option("--from-clients", help="All that agents on this machine have.")
    ] = False,
    project: Annotated[
        bool, typer.Option("--project", help="With --from-clients: this folder's, too.")
    ] = False,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- CMD ARGS", help="What to run.")
    ] = None,
) -> None:
    """Put an MCP server behind the gateway. It is a command: upwell add NAME -- CMD ARGS…; an
    address: upwell add NAME --url URL; or what the agents have: upwell add --from-clients"""
    from upwell.cli.clients import add_from_clients
    from upwell.setup.servers import add_server

    line = [*(command or []), *context.args]
    if from_clients or project:
        if name or line or url or not from_clients:
            raise UsageError("--from-clients takes no name and no command", hint="leave them out")
        add_from_clients(project)
        return
    if not name:
        raise UsageError("no name given", hint="upwell add NAME -- CMD ARGS…")
    if bool(line) == bool(url):
        fault = "both a command and an address" if line else "no command given"
        raise UsageError(fault, hint=f"upwell add {name} -- CMD ARGS…, or --url URL")
    if transport not in ("", "http", "sse"):
        raise UsageError(f"--transport {transport!r} is unknown", hint="http or sse")
    if url and not url.startswith(("http://", "https://")):
        raise UsageError(f"--url {url!r} is no address", hint="like https://example.org/mcp")
    if auth not in ("", "oauth") or (auth and not url):
        raise UsageError("--auth is oauth, with --url", hint="then `upwell login NAME`")
    path = add_server(
        name,
        line,
        dict(map(_pair, env or ())),
        url=url,
        headers=dict(map(_header, header or ())),
        transport=transport,
        auth=auth,
    )
    say(f"added {name} to {path}")
    if auth:
        note(f"upwell: now `upwell login {name}`")
    if line and shutil.which(line[0]) is None:
        note(f"upwell: {line[0]!r} is not on the PATH now; `upwell doctor` tries every server")


def list_servers(as_json: Json = False) -> None:
    """Show the MCP servers behind the gateway."""
    from upwell.config import load
    from upwell.ground.settings import masked
    from upwell.ground.veil import veiled_address, veiled_words
    from upwell.wire.logins import Logins

    config = load()
    logins = Logins(config.home.logins_file)
    rows = [
        {
            "name": server.name,
            "command": veiled_address(server.url)
            or " ".join(veiled_words([server.command, *server.args])),
            "env": masked(f"server.{server.name}.env", dict(server.env)),
            "enabled": server.enabled,
            "login": logins.described(server.name, server.url) if server.auth == "oauth" else "",
        }
        for server in config.servers
    ]
    if as_json:
        say_json({"servers": rows})
    else:
        columns = ("name", "command", "enabled", "login")
        table(columns, rows, "No servers yet: upwell add NAME -- CMD ARGS…")


def remove(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Take an MCP server out of the gateway."""
    from upwell.setup.servers import remove_server

    say(f"removed {name} from {remove_server(name)}")


def on(session: Annotated[str | None, typer.Option(help="Only this session.")] = None) -> None:
    """Go on after `upwell off`."""
    from upwell.app import resume

    resume(session)
    say("upwell is on" + (f" in session {session}" if session else ""))


def off(session: Annotated[str | None, typer.Option(help="Only this session.")] = None) -> None:
    """Pause everything. Calls pass through untouched, nothing is surfaced."""
    from upwell.app import pause

    pause(session)
    again = f"upwell on --session {session}" if session else "upwell on"
    say("upwell is off" + (f" in session {session}" if session else "") + f"; `{again}` resumes")


def _header(text: str) -> tuple[str, str]:
    """A header as curl takes it, `Name: value`; or as the environment, `Name=value`."""
    name, colon, value = text.partition(":")
    if not colon or "=" in name:
        return _pair(text)
    if not name.strip():
        raise UsageError(f"{text!r} has no name", hint='like --header "Authorization: Bearer …"')
    return name.strip(), value.strip()


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise UsageError(f"{name!r} is not K=V", hint="e.g. --env REGION=eu")
    return name, value
