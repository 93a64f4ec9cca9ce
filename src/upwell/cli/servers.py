"""The commands `serve`, `wrap`, `add`, `list`, `remove`, `on` and `off`. Then what `upwell setup`
says of the servers in agents' settings.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from click.exceptions import Exit

from upwell.cli.command import Argument, Option
from upwell.cli.output import Json, Session, note, say, say_json, table
from upwell.cli.session import folder, read_config
from upwell.ground.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from upwell.hosts.install import FilePlan
    from upwell.setup.takeover import Clients, WrappingPlan


Command = Annotated[
    list[str] | None, Argument(metavar="-- CMD ARGS", help="Command that starts the server.")
]


def serve(
    http: Annotated[
        str | None,
        Option(
            metavar="HOST:PORT", help="Serve HTTP: /mcp /hook /dashboard /metrics /healthz /readyz."
        ),
    ] = None,
    tools: Annotated[
        bool, Option("--tools", help="Serve only upwell's own tools, without servers.")
    ] = False,
) -> None:
    """Run the gateway on stdio, or for many clients over HTTP."""
    if tools:
        raise UsageError("--tools takes only --home", hint="upwell serve --tools [--home DIR]")
    from upwell.cli.serve import main

    raise Exit(main(http))


def wrap(
    name: Annotated[
        str, Option(metavar="NAME", help='The server\'s name in [tool."NAME__*"].')
    ] = "",
    home: Annotated[str, Option(metavar="DIR", help="upwell's home.")] = "",
    url: Annotated[str, Option(help="Address of an HTTP server, instead of a command.")] = "",
    header: Annotated[
        list[str] | None,
        Option(metavar="K: V", help="A header for every request; repeatable."),
    ] = None,
    command: Command = None,
) -> None:
    """Run one MCP server under its own name: `upwell wrap -- CMD ARGS…`."""
    from upwell.wrap.start import main

    named = {"--name": name, "--home": home, "--url": url}
    options = [f"{option}={value}" for option, value in named.items() if value]
    options += [f"--header={value}" for value in header or ()]
    raise Exit(main([*options, *(["--", *command] if command else [])]))


def add(
    name: Annotated[str, Argument(metavar="NAME", help="Prefix for its tools: NAME__tool.")] = "",
    env: Annotated[
        list[str] | None,
        Option(metavar="K=V", help="An environment variable for the server; repeatable."),
    ] = None,
    url: Annotated[str, Option(help="Address of an HTTP server.")] = "",
    header: Annotated[
        list[str] | None,
        Option(metavar="K: V", help="A header for every request; repeatable."),
    ] = None,
    transport: Annotated[
        str, Option(help="http, or sse for servers that still use HTTP with SSE.")
    ] = "",
    auth: Annotated[str, Option(help="oauth if the server needs `upwell login`.")] = "",
    from_clients: Annotated[
        bool, Option("--from-clients", help="Add the servers of all agents on this machine.")
    ] = False,
    project: Annotated[
        bool, Option("--project", help="With --from-clients: also from this folder.")
    ] = False,
    command: Command = None,
) -> None:
    """Put an MCP server behind the gateway. The server is a command (upwell add NAME -- CMD ARGS…)
    or an address (upwell add NAME --url URL). `upwell add --from-clients` adds the agents' own
    servers."""
    from upwell.setup.config_file import add_server

    line = command or []
    if from_clients or project:
        if name or line or url or not from_clients:
            raise UsageError("--from-clients takes no name and no command", hint="omit them")
        add_from_clients(project)
        return
    _check_place(name, line, url)
    _check_address(url, transport, auth)
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
        note(f"upwell: next, run `upwell login {name}`")
    if line and shutil.which(line[0]) is None:
        note(f"upwell: {line[0]!r} is not on the PATH; `upwell doctor` tries every server")


def _check_place(name: str, line: Sequence[str], url: str) -> None:
    if not name:
        raise UsageError("no name given", hint="upwell add NAME -- CMD ARGS…")
    if bool(line) == bool(url):
        fault = "a command and an address cannot be combined" if line else "no command given"
        raise UsageError(fault, hint=f"upwell add {name} -- CMD ARGS…, or --url URL")


def _check_address(url: str, transport: str, auth: str) -> None:
    if transport not in ("", "http", "sse"):
        raise UsageError(f"--transport {transport!r} is unknown", hint="http or sse")
    if url and not url.startswith(("http://", "https://")):
        raise UsageError(
            f"--url {url!r} is not an address", hint="for example https://example.org/mcp"
        )
    if auth not in ("", "oauth") or (auth and not url):
        raise UsageError(
            "--auth takes only oauth, and needs --url", hint="then run `upwell login NAME`"
        )


def list_servers(as_json: Json = False) -> None:
    """List the MCP servers behind the gateway."""
    from upwell.ground.secrets.mask import masked_address, masked_words
    from upwell.ground.settings import masked
    from upwell.wire.logins import Logins

    config = read_config()
    logins = Logins(config.home.logins_file)
    rows = [
        {
            "name": server.name,
            "command": masked_address(server.url)
            or " ".join(masked_words([server.command, *server.args])),
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
        table(
            columns,
            rows,
            "No servers behind the gateway. Wrapped servers stay in their agents' files.",
        )


def remove(name: Annotated[str, Argument(metavar="NAME")]) -> None:
    """Remove an MCP server from the gateway."""
    from upwell.setup.config_file import remove_server

    say(f"removed {name} from {remove_server(name)}")


EXCLUDE_VARIABLE = "UPWELL_PROJECTS__EXCLUDE"
ThisProject = Annotated[
    bool, Option("--project", help="Only the project of this folder; changes `config.toml`.")
]


def on(
    session: Session = None,
    project: ThisProject = False,
) -> None:
    """Resume after `upwell off`."""
    if project:
        here = _project(session)
        from upwell.setup.config_file import include_project

        path = include_project(here)
        say(f"upwell is on in {here} ({path})")
        from upwell.app.running import what_is_paused

        if paused := what_is_paused():
            note(f"upwell: {paused}; `upwell on` resumes")
        return
    from upwell.app import resume
    from upwell.config import read_valid

    resume(session)
    say("upwell is on" + (f" in session {session}" if session else ""))
    if pattern := read_valid()[0].projects.pattern_of(folder()):
        note(
            f"upwell: upwell stays off in this project: projects.exclude contains {pattern!r}; "
            "`upwell on --project` resumes"
        )


def off(
    session: Session = None,
    project: ThisProject = False,
) -> None:
    """Pause upwell. Calls pass through untouched, and nothing is surfaced. In a project that is
    off, nothing is recorded either."""
    if project:
        here = _project(session)
        from upwell.setup.config_file import exclude_project

        path = exclude_project(here)
        say(f"upwell is off in {here} ({path}); to resume, run `upwell on --project` there")
        return
    from upwell.app import pause

    pause(session)
    resume_command = f"upwell on --session {session}" if session else "upwell on"
    say(
        "upwell is off"
        + (f" in session {session}" if session else "")
        + f"; `{resume_command}` resumes"
    )


def _project(session: str | None) -> str:
    from upwell.config import read_valid
    from upwell.setup.config_file import project_here

    if EXCLUDE_VARIABLE in read_valid()[0].environment:
        raise UsageError(
            f"{EXCLUDE_VARIABLE} overrides projects.exclude in config.toml",
            hint="change the variable",
        )
    if session is not None:
        raise UsageError("--session and --project cannot be combined", hint="give only one")
    if (here := folder()) is None:
        raise UsageError("this folder no longer exists", hint="run it in a project's folder")
    return project_here(here)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or "=" in name:
        return _pair(text)
    if not name.strip():
        raise UsageError(
            f"{text!r} has no name", hint='for example --header "Authorization: Bearer …"'
        )
    return name.strip(), value.strip()


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise UsageError(f"{name!r} is not K=V", hint="for example --env REGION=eu")
    return name, value


NO_AGENT = "no known agent found; configure any other agent to run `upwell serve`"


def say_damage(faults: "Iterable[str]") -> None:
    """Name damaged records."""
    for fault in filter(None, faults):
        note(f"upwell: {fault}")


def say_improvised(plans: "Iterable[FilePlan]") -> None:
    """Say what is used in place of a lost record."""
    for plan in plans:
        if plan.source:
            note(
                f"upwell: the record of the servers of {plan.path} is lost; they are restored from "
                f"{plan.source}; a copy of the file as it is now stays beside it"
            )


def add_from_clients(project: bool) -> None:
    """Copy the agents' servers to config.toml. The agents' files stay unchanged."""
    clients = clients_of_user(project)
    plan = clients.adding()
    clients.take(plan.config)
    for server in plan.servers:
        if server.left:
            say(f"{server.client}: {server.original} is left out: {server.left}")
        else:
            known = " (already in upwell)" if server.known else ""
            say(f"{server.client}: {server.original} → {server.name}{known}")
    if plan.added:
        say(f"wrote {plan.config.path}; the agents' own files are unchanged")
    else:
        say("no servers to add")
    for path, why in plan.refused.items():
        note(f"upwell: {path}: {why}")
    if plan.refused:
        raise Exit(1)


def say_places(plan: "WrappingPlan") -> None:
    """Print which servers are wrapped, and why the others are not."""
    from upwell.hosts.plugins import BEHIND_UPWELL

    for place in plan.places:
        left = f"stays as it is: {place.left}" if place.left else "wrapped in its place"
        say(f"{place.client}: {place.name} → {left}")
    behind = list(dict.fromkeys(p.client for p in plan.places if p.left == BEHIND_UPWELL))
    if behind:
        note(
            f"upwell: servers of {', '.join(behind)} are behind upwell; `upwell setup --undo "
            "--only servers` gives them back, and they can then be wrapped"
        )


def clients_of_user(project: bool) -> "Clients":
    """The agents on this machine; with `project`, also those configured in this folder."""
    from upwell.config import load
    from upwell.hosts.installation import Installation
    from upwell.setup.takeover import Clients

    config = load()
    script = Path(sys.executable).with_name("upwell")
    program = (str(script),) if script.is_file() else (sys.executable, "-P", "-m", "upwell")
    installation = Installation(
        user_folder=Path.home(), environment=config.environment, command=(*program, "serve")
    )
    folder = Path(os.getcwd()).resolve() if project else None
    return Clients(installation, config.home.prepare(), folder, leave=config.gateway.leave)
