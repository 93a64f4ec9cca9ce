"""The commands `login` and `logout`."""

import time
from typing import Annotated

from upwell.cli.command import Argument, Option
from upwell.cli.output import note, say
from upwell.cli.session import run


def login(
    name: Annotated[str, Argument(metavar="NAME", help="A server configured with --url.")],
    client_id: Annotated[str, Option(help="Client id, if the server registered one for you.")] = "",
    port: Annotated[int, Option(help="Port on 127.0.0.1 that the browser returns to.")] = 0,
    client_secret_env: Annotated[
        str,
        Option(help="Environment variable with a client secret, to sign in without a browser."),
    ] = "",
    issuer: Annotated[str, Option(help="Authorization server that may receive the secret.")] = "",
    no_browser: Annotated[bool, Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Sign in to a server with OAuth in your browser. From then on, upwell renews the login."""
    from upwell.app.login import log_in

    async def show(address: str) -> None:
        from upwell.setup.login import in_browser

        note(f"upwell: to sign in to {name}, open this address if no browser opens:\n{address}")
        if not no_browser:
            await in_browser(address)

    new_login = run(
        log_in(
            name,
            show,
            client_id=client_id,
            port=port,
            secret_variable=client_secret_env,
            issuer=issuer,
        )
    )
    say(f"signed in to {name} ({new_login.described(time.time())})")


def logout(name: Annotated[str, Argument(metavar="NAME")]) -> None:
    """Sign out of a server."""
    from upwell.app.login import log_out

    was_signed_in = run(log_out(name))
    say(f"signed out of {name}" if was_signed_in else f"not signed in to {name}")
