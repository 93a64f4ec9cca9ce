"""`upwell login` and `logout`."""

from collections.abc import Awaitable, Callable

from upwell.app.running import forget_answers
from upwell.config import Config, load
from upwell.gateway.options import Auth, ServerOptions
from upwell.ground.errors import ConfigError, UsageError
from upwell.wire.logins import Login, Logins


async def log_in(
    name: str,
    show: Callable[[str], Awaitable[None]],
    *,
    client_id: str = "",
    port: int = 0,
    secret_variable: str = "",
    issuer: str = "",
) -> Login:
    """Log in at a server in the user's browser, `show` gets the address to go to; or as a machine,
    with the secret in `secret_variable`, at `issuer`. The login is kept
    for every upwell of this home, and the server's entry says `auth = "oauth"` from now on. Kept
    answers are forgotten: they may be another user's.

    Raises:
        ConfigError: there is no such server.
        UsageError: it has no address, or a machine lacks something.
        UpstreamUnavailable: the login failed.
        StoreError: it cannot be kept.
    """
    from upwell.setup.login import Wish
    from upwell.setup.login import log_in as with_sdk
    from upwell.setup.servers import set_auth

    config = load()
    server = _server(config, name)
    if not server.url:
        raise UsageError(
            f"{name!r} is a program, not an address", hint="give it what it needs as env"
        )
    logins = Logins(config.home.prepare().logins_file)
    before = logins.get(name, server.url)
    scope = f"{before.scope} {before.wanted}" if before and before.wanted else ""
    secret = config.environment.get(secret_variable, "") if secret_variable else ""
    if secret_variable and not (secret and client_id and issuer):
        raise UsageError(
            f"a machine's login needs --client-id, --issuer, and a secret in {secret_variable}",
            hint="--issuer is the one authorization server that may be told the secret",
        )
    wish = Wish(
        server=name,
        url=server.url,
        client_id=client_id,
        port=port,
        scope=scope,
        client_secret=secret,
        issuer=issuer,
    )
    login = await with_sdk(wish, show)
    logins.put(name, login)
    await forget_answers()
    if server.auth is not Auth.OAUTH:
        set_auth(name, config.home.root)
    return login


async def log_out(name: str) -> bool:
    """Forget the login at a server, and kept answers. False where there was none.

    Raises:
        StoreError: it could not be forgotten.
    """
    found = Logins(load().home.prepare().logins_file).put(name, None)
    await forget_answers()
    return found


def _server(config: Config, name: str) -> ServerOptions:
    for server in config.servers:
        if server.name == name:
            return server
    raise ConfigError(f"there is no server {name!r}", hint="`upwell list` shows them")
