"""The database that the machines of a team share, opened if `store.url` is set."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from upwell.config import Config
from upwell.ground.errors import ConfigError, StoreError, extra_hint
from upwell.ground.files import Locking, exclusively
from upwell.ground.trace import LOG, contained
from upwell.learn.learned import Learned

if TYPE_CHECKING:
    from upwell.ground.postgres.connection import Postgres
    from upwell.ground.postgres.home_files import HomeFiles

PULL_SECONDS = 2.0
"""How long the start of a process waits for a database that does not answer."""


@dataclass(frozen=True, slots=True)
class Team:
    """The connections to a team's database, and the files of the home that it holds."""

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
    """The error of a configuration that needs PostgreSQL where its driver is not installed."""
    return ConfigError(
        "store.url needs the PostgreSQL driver",
        key="store.url",
        hint=extra_hint("postgres"),
    )


def open_team(config: Config, postgres: "Postgres | None" = None) -> Team | None:
    """The team's database, which is connected to at the first use, or by the connections of another
    tenant; None without `store.url`, and with a copy of the team's memories.

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
    shared = (home.tokens_file, home.inbox_file, home.pause_file, home.sources_file)
    tenant = config.store.tenant
    files = HomeFiles(config.store.url, tenant, shared, home.secret_file)
    return Team(postgres or Postgres(config.store.url), files, tenant)


def current_files(config: Config) -> Locking:
    """Bring the copies of shared files up to date, for a command that reads or changes them.
    Returns the lock under which they change.

    Raises:
        StoreError: the database failed.
    """
    team = open_team(config)
    if team is None:
        return exclusively
    team.files.pull()
    return team.files.exclusively


async def follow(team: Team, learned: Learned, apply_ratios: Callable[[], Awaitable[None]]) -> None:
    """Adopt the changes that other machines make to shared files and to learned values, until
    cancelled."""
    from upwell.ground.postgres.listening import FILES, LEARNED, listen

    async def changed(parts: frozenset[str]) -> None:
        if FILES in parts:
            await team.pull()
        if LEARNED in parts:
            with contained("adopting learned values"):
                await learned.load_learned()
                await apply_ratios()

    await listen(team.postgres, team.tenant, changed)
