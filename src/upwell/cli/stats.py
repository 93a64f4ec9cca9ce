"""stats"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from upwell.cli.output import Json, say, say_json
from upwell.cli.session import with_app

if TYPE_CHECKING:
    from upwell.app import App
    from upwell.usage.stats import Stats


def register(app: typer.Typer) -> None:
    app.command()(stats)


def stats(
    days: Annotated[int, typer.Option(min=1, max=90, help="Number of days, today included.")] = 7,
    as_json: Json = False,
) -> None:
    """Show what upwell said and saved, and why it stayed silent."""
    from upwell.usage.report import report
    from upwell.usage.stats import described

    stats, against = with_app(lambda app: _counted(app, days))
    if as_json:
        say_json({**described(stats, days), "demoted": against})
        return
    for line in report(stats, against, days):
        say(line)


async def _counted(app: "App", days: int) -> "tuple[Stats, list[dict[str, Any]]]":
    from upwell.app.overview import demoted
    from upwell.usage.stats import stats_of

    return stats_of(await app.learning.counts.since(days)), await demoted(app)
