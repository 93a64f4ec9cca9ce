"""The commands `stats` and `stats gain|tune`."""

from typing import TYPE_CHECKING, Annotated, Any

from upwell.cli.command import Group, Option
from upwell.cli.gain import gain
from upwell.cli.learning import tune
from upwell.cli.output import Json, say, say_json, table
from upwell.cli.parameters import Days, Since
from upwell.cli.session import with_learning
from upwell.cli.times import days_since
from upwell.ground.errors import UsageError

if TYPE_CHECKING:
    from upwell.app.surfacing import LearningApp
    from upwell.usage.stats import Stats


def shown(
    days: Days = 7,
    since: Since = None,
    by: Annotated[
        str | None, Option(help="Show one row for each project, tool, host or day.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what upwell said and saved, and why it stayed silent."""
    from upwell.app.reporting import in_words
    from upwell.usage.report import report
    from upwell.usage.stats import described

    days = days if since is None else days_since(since)
    if by is not None:
        _by(by, days, as_json=as_json)
        return
    counts, demoted, gained = with_learning(lambda app: _counted(app, days))
    if as_json:
        say_json({**described(counts, days), "demoted": demoted, "gain": gained})
        return
    for line in report(counts, demoted, days, in_words, gained):
        say(line)


stats = Group("Show what upwell said and saved, and why it stayed silent.", shown)
stats.command("gain")(gain)
stats.command("tune")(tune)


def _by(dimension: str, days: int, *, as_json: bool) -> None:
    from upwell.app.gain import price_now, rows
    from upwell.usage.breakdown import Dimension

    if dimension not in list(Dimension):
        raise UsageError(f"--by {dimension!r} is unknown", hint=", ".join(Dimension))

    async def read(app: "LearningApp") -> list[dict[str, Any]]:
        counts = await app.learning.counts.since(days)
        return rows(counts, price_now(app.config), Dimension(dimension))

    found = with_learning(read)
    if as_json:
        say_json({"days": days, "by": dimension, "rows": found})
        return
    columns = ("name", "events", "spoke", "memories", "results", "saved", "net")
    shown = [
        {name: f"{row[name]:,}" if name != "name" else row[name] or "unknown" for name in columns}
        for row in found
    ]
    table(columns, shown, "Nothing counted yet.", has_header=True)


async def _counted(
    app: "LearningApp", days: int
) -> "tuple[Stats, list[dict[str, Any]], dict[str, Any]]":
    from upwell.app.gain import total
    from upwell.app.overview import demoted
    from upwell.usage.stats import stats_of

    counts = await app.learning.counts.since(days)
    return stats_of(counts), await demoted(app), total(counts)
