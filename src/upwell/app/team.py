"""The database that the machines of a team share, opened if `store.url` is set."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from upwell.config import Config
from upwell.ground.errors import ConfigError, StoreError, extra_hint
from upwell.ground.files import Locking, exclusively
from upwell.ground.trace import LOG, contained
from upwell.learn.learned import Learned

if TYPE_CHECKING:
    from upwell.ground.postgres.connection import Postgres
    from upwell.ground.postgres.home_files import HomeFiles
    from upwell.ground.postgres.listening import Versions

PULL_SECONDS = 2.0
"""How long a starting process waits for a database that does not answer."""


class Team(Struct, frozen=True):
    """The connections to a team's database, and the home's files that are shared through it."""

    postgres: "Postgres"
    files: "HomeFiles"
    tenant: str

    async def pull(self) -> None:
        """Bring the copies of shared files up to date. Without the database, the last copies are
        used.
        """
        pulling = asyncio.ensure_future(asyncio.to_thread(self._pull))
        await asyncio.wait({pulling}, timeout=PULL_SECONDS)

    def _pull(self) -> None:
        try:
            self.files.pull()
        except StoreError as error:
            LOG.warning("the files that the team shares may be out of date: %s", error)


def no_driver() -> ConfigError:
    """The error for a configuration that needs PostgreSQL, if the driver is not installed."""
    return ConfigError(
        "store.url needs the PostgreSQL driver",
        key="store.url",
        hint=extra_hint("postgres"),
    )


def open_team(config: Config, postgres: "Postgres | None" = None) -> Team | None:
    """The team's database; None if `store.url` is not set, or if this home has a copy of the team's
    memories instead. `postgres` holds another tenant's connections, which are then shared. Without
    `postgres`, the first use connects.

    Raises:
        ConfigError: the driver is not installed.
    """
    if not config.store.is_team:
        return None
    try:
        from upwell.ground.postgres.connection import Postgres
        from upwell.ground.postgres.home_files import HomeFiles
    except ImportError as error:
        raise no_driver() from error
    home = config.home.prepare()
    shared = (
        home.tokens_file,
        home.inbox_file,
        home.pause_file,
        home.sources_file,
        home.notes_file,
        home.cleared_notes_file,
        home.origins_file,
    )
    tenant, connections = config.store.tenant, postgres or Postgres(config.store.url)
    files = HomeFiles(
        config.store.url, tenant, shared, home.secret_file, lost=lambda: connections.is_lost
    )
    return Team(connections, files, tenant)


def current_files(config: Config) -> Locking:
    """Bring the copies of shared files up to date, for a command that reads or changes them.
    Returns the lock for changing them.

    Raises:
        ConfigError: the driver is not installed.
        StoreError: the database failed.
    """
    team = open_team(config)
    if team is None:
        return exclusively
    team.files.pull()
    return team.files.exclusively


class TeamChanges:
    """Adopts the changes that a team's other machines make to shared files and to learned values.
    Without a team it does nothing."""

    def __init__(
        self, team: Team | None, learned: Learned, apply_ratios: Callable[[], Awaitable[None]]
    ) -> None:
        self._team = team
        self._learned = learned
        self._apply_ratios = apply_ratios
        self._versions: Versions | None = None
        self.after_pull: list[Callable[[], object]] = []
        """Called after each pull of the shared files, for example to renew the owner's token."""

    async def follow(self) -> None:
        """Adopt changes as they are announced, until cancelled."""
        if self._team:
            from upwell.ground.postgres.listening import listen

            await listen(self._team.postgres, self._team.tenant, self._adopt)

    async def check(self) -> None:
        """Adopt the changes since the last check.

        Raises:
            StoreError: the database failed.
        """
        if self._team:
            from upwell.ground.postgres.listening import Versions

            self._versions = self._versions or Versions(
                self._team.postgres, self._team.tenant, self._adopt
            )
            await self._versions.check()

    async def _adopt(self, parts: frozenset[str]) -> None:
        from upwell.ground.postgres.listening import FILES, LEARNED

        if FILES in parts and self._team:
            await self._team.pull()
            for adopted in self.after_pull:
                adopted()
        if LEARNED in parts:
            with contained("adopting learned values"):
                await self._learned.load_learned()
                await self._apply_ratios()
