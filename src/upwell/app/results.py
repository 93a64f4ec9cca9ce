"""What tools' results need: the embedder and model of compression, cached results, and connections
to servers."""

from functools import partial

from upwell.app.files import own_secret
from upwell.compress.base import Tools
from upwell.config import Config
from upwell.gateway.calls.cache import Cache
from upwell.gateway.upstreams.connection import Connecting, connect
from upwell.ground.embed import Embedder
from upwell.ground.llm import OpenAIChat
from upwell.ground.secrets.redact import has_secret
from upwell.ground.ttl_store import TtlStore
from upwell.wire.logins import Logins


def tools_of(config: Config, embedder: Embedder | None) -> Tools:
    """The embedder and the model that compression may use, as configured."""
    return Tools(
        embedder=embedder,
        chat=OpenAIChat(config.llm) if config.llm.base_url else None,
        may_send=lambda text: not has_secret(text),
    )


def connecting(config: Config) -> Connecting:
    """The function that connects to servers with this home's logins."""
    logins = Logins(config.home.logins_file)
    return partial(connect, environment=config.environment, logins=logins)


def open_cache(config: Config, ttl_store: TtlStore) -> Cache | None:
    """The cache of servers' results; None if `cache.tools` is empty."""
    if not config.cache.tools:
        return None
    return Cache(ttl_store, own_secret(config.home.secret_file), config.cache, has_secret)
