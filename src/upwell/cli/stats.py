"""stats"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from upwell.cli.output import Json, say, say_json
from upwell.cli.session import with_app
from upwell.ground.text.format import counted

if TYPE_CHECKING:
    from upwell.app import App
    from upwell.usage.stats import Stats

BAR_CHARS = 24
MOST_TOOLS = 12


def register(app: typer.Typer) -> None:
    app.command()(stats)


def stats(
    days: Annotated[int, typer.Option(min=1, max=90, help="Number of days, today included.")] = 7,
    as_json: Json = False,
) -> None:
    """Show what upwell said and saved, and why it stayed silent."""
    from upwell.usage.stats import described

    found, against = with_app(lambda app: _counted(app, days))
    if as_json:
        say_json({**described(found, days), "demoted": against})
        return
    for line in _drawn(found, against, days):
        say(line)


async def _counted(app: "App", days: int) -> "tuple[Stats, list[dict[str, Any]]]":
    from upwell.app.overview import demoted
    from upwell.usage.stats import stats_of

    return stats_of(await app.learning.counts.since(days)), await demoted(app)


def _drawn(found: "Stats", against: list[dict[str, Any]], days: int) -> list[str]:
    since = "today" if days == 1 else f"in {days} days"
    if not found.decisions and not found.saved:
        return [f"No decisions {since}. `upwell demo` shows what upwell does."]
    lines = [*_speech(found, since), *_silence(found), *_tools(found), *_savings(found)]
    for one in against:
        text = " ".join(one["text"].split())[:60] or "(forgotten)"
        lines.append(f"  demoted    {one['id']}  {text}")
    if against:
        lines.append("             undo: upwell tune --reset --memory ID")
    return lines


def _speech(found: "Stats", since: str) -> list[str]:
    share = _share(found.surfaced, found.decisions)
    lines = [
        f"upwell looked {_times(found.decisions)} {since} and spoke {_times(found.surfaced)} "
        f"({share}).",
        "",
        f"  said       {counted(found.memories, 'memory', 'memories')}: "
        f"{found.used:,} used, {found.ignored:,} with no evidence of use",
    ]
    if found.late:
        lines.append(
            f"  late       {found.late:,} late, {found.offered_late:,} said at the next call"
        )
    rated = [f"{n:,} {name.replace('_', ' ')}" for name, n in found.ratings.items() if n]
    lines.append(
        f"  feedback   {', '.join(rated) or 'none; rate with `upwell feedback SURFACING RATING`'}"
    )
    return lines


def _silence(found: "Stats") -> list[str]:
    reasons = sorted(((n, r) for r, n in found.skips.items() if n), reverse=True)
    if not reasons:
        return []
    widest, most = max(len(reason) for _, reason in reasons), reasons[0][0]
    bars = [f"  {reason:<{widest}}  {_bar(n, most)} {n:,}" for n, reason in reasons]
    return ["", "Why it stayed silent", *bars]


def _tools(found: "Stats") -> list[str]:
    shown = found.beside[:MOST_TOOLS]
    if not shown:
        return []
    names = [one.tool or f"({one.door})" for one in shown]
    width = max(map(len, names))
    lines = [
        f"  {name:<{width}}  {one.decisions:>7,} looked  {one.surfaced:>6,} spoke"
        + (f"  mostly {next(iter(one.skips))}" if one.skips else "")
        for name, one in zip(names, shown, strict=True)
    ]
    left = len(found.beside) - len(shown)
    return ["", "Where", *lines, *([f"  … and {left} more (--json)"] if left else [])]


def _savings(found: "Stats") -> list[str]:
    if not found.saved:
        return [""]
    share = _share(found.tokens_saved, found.tokens_before)
    lines = [
        f"  {one.tool}  {one.tokens_saved:,} tokens in {one.results:,} results"
        for one in found.saved[:5]
    ]
    return ["", f"Saved {found.tokens_saved:,} tokens of long results ({share})", *lines, ""]


def _times(number: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number:,} times")


def _bar(number: int, most: int) -> str:
    return "▇" * max(1, round(BAR_CHARS * number / most))


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0 %"
