"""The database that the machines of a team share, opened if `store.url` is set."""

from typing import TYPE_CHECKING

from msgspec import Struct

from upwell.config import Config
from upwell.ground.errors import ConfigError, extra_hint

if TYPE_CHECKING:
    from upwell.ground.postgres.connection import Postgres


class Team(Struct, frozen=True):
    """The connections to a team's database, and the name under which its rows stand there."""

    postgres: "Postgres"
    tenant: str


def no_driver() -> ConfigError:
    """The error for a configuration that needs PostgreSQL, if the driver is not installed."""
    return ConfigError(
        "store.url needs the PostgreSQL driver",
        key="store.url",
        hint=extra_hint("postgres"),
    )


def open_team(config: Config) -> Team | None:
    """The team's database; None if `store.url` is not set, or if this home has a copy of the team's
    memories instead. The first use connects.

    Raises:
        ConfigError: the driver is not installed.
    """
    if not config.store.is_team:
        return None
    try:
        from upwell.ground.postgres.connection import Postgres
    except ImportError as error:
        raise no_driver() from error
    return Team(Postgres(config.store.url), config.store.tenant)
