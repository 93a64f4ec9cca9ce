"""`upwell login` and `logout`."""

from collections.abc import Awaitable, Callable

from upwell.app.running import clear_cached_responses
from upwell.config import load
from upwell.gateway.options import Auth
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
    """Log in to a server. The user logs in with a browser, at the address that `show()` receives.
    With `secret_variable`, a machine client logs in at `issuer`, with the secret from this
    environment variable. The server's entry gets `auth = "oauth"`. All cached results are removed,
    because they may be meant for another user.

    Raises:
        ConfigError: there is no such server.
        UsageError: the server has no URL, an option for the machine login is missing, the SDK is
            not installed, or the port is in use.
        UpstreamUnavailable: the login failed.
        StoreError: the login cannot be stored.
    """
    from upwell.setup.config_file import set_auth
    from upwell.setup.login import LoginRequest
    from upwell.setup.login import log_in as with_sdk

    config = load()
    server = next((server for server in config.servers if server.name == name), None)
    if server is None:
        raise ConfigError(f"there is no server {name!r}", hint="`upwell list` shows them")
    if not server.url:
        raise UsageError(f"{name!r} is a program, not a URL", hint="pass its credentials as env")
    logins = Logins(config.home.prepare().logins_file)
    before = logins.get(name, server.url)
    scope = f"{before.scope} {before.wanted}" if before and before.wanted else ""
    secret = config.environment.get(secret_variable, "") if secret_variable else ""
    if secret_variable and not (secret and client_id and issuer):
        raise UsageError(
            f"a machine login needs --client-id, --issuer, and a secret in {secret_variable}",
            hint="--issuer is the only authorization server that receives the secret",
        )
    request = LoginRequest(
        server=name,
        url=server.url,
        client_id=client_id,
        port=port,
        scope=scope,
        client_secret=secret,
        issuer=issuer,
    )
    login = await with_sdk(request, show)
    logins.put(name, login)
    await clear_cached_responses()
    if server.auth is not Auth.OAUTH:
        set_auth(name, config.home.root)
    return login


async def log_out(name: str) -> bool:
    """Remove the login for a server, and all cached results. Returns False if there was no login.

    Raises:
        StoreError: the login could not be removed.
    """
    was_signed_in = Logins(load().home.prepare().logins_file).put(name, None)
    await clear_cached_responses()
    return was_signed_in
