"""The team's memories behind a gateway's `/team`."""

from upwell.app.wiring import App
from upwell.ground.types.principal import Principal
from upwell.memory.team.access import AccessedMemories
from upwell.web.team import OpenFor


def team_access(app: App) -> OpenFor | None:
    """Return the function that opens a principal's memories, over the connections of `app`; None
    without a team's database."""
    if app.postgres is None:
        return None
    from upwell.memory.postgres.shared import PostgresSharedMemories

    store = app.config.store
    shared = PostgresSharedMemories(app.postgres, tenant=store.tenant)

    def opened(principal: Principal) -> AccessedMemories:
        return AccessedMemories(shared, principal, app.audit, read_only=store.read_only)

    return opened
