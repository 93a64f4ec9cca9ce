"""Statistics as text, for the command line and for agents."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from upwell.ground.text.format import BAR_CHARS, bar, counted
from upwell.usage.breakdown import COSTS
from upwell.usage.stats import Stats

MAX_TOOLS = 12


def report(
    stats: Stats,
    against: Sequence[Mapping[str, Any]],
    days: int,
    in_words: Callable[[str], str],
    gain: Mapping[str, Any],
) -> list[str]:
    """Return the lines of a report. `against` contains the `id` and `text` of each memory that
    no longer surfaces by itself. `in_words()` puts the code of a reason for silence into words.
    `gain` has the tokens saved, upwell's own costs, and the net."""
    since = "today" if days == 1 else f"in {days} days"
    wrote = bool(stats.lessons.get("asked"))
    if not (stats.decisions or stats.asked or stats.saved or wrote):
        return [f"No event from an agent reached upwell {since}. Try `upwell demo`."]
    lines = [
        *_speech(stats, since),
        *_silence(stats, in_words),
        *_tools(stats, in_words),
        *_savings(stats, gain),
    ]
    for memory in against:
        text = " ".join(memory["text"].split())[:60] or "(forgotten)"
        lines.append(f"  demoted    {memory['id']}  {text}")
    if against:
        lines.append("             undo: upwell stats tune --reset --memory ID")
    return lines


def _speech(stats: Stats, since: str) -> list[str]:
    lines = [
        _headline(stats, since),
        "",
        f"  said       {counted(stats.memories, 'memory', 'memories')}: "
        f"{stats.used:,} used, {stats.ignored:,} with no evidence of use",
        f"  rate       {stats.said_per_100:.1f} memories per 100 events, "
        f"{stats.tokens_per_session:,.0f} tokens per session, {_used_share(stats)}",
    ]
    if stats.asked:
        lines.append(
            f"  asked      {_times(stats.asked)} by a command or a tool, "
            f"answered {_times(stats.answered)}"
        )
    if stats.late:
        lines.append(
            f"  late       {stats.late:,} not ready in time, "
            f"{stats.offered_late:,} of them said at the next call"
        )
    lines += [
        f"  missing    {place} could not be searched {_times(number)}; `upwell doctor` says why"
        for place, number in stats.missing.items()
    ]
    if stats.judge["asked"]:
        lines.append(f"  judge      {judge_line(stats.judge)}")
    if stats.lessons.get("asked"):
        lines.append(f"  lessons    {lessons_line(stats.lessons)}")
    if stats.intent_model:
        outcomes = ", ".join(f"{n:,} {kind}" for kind, n in stats.intent_model.items())
        lines.append(f"  intents    asked the model: {outcomes}")
    rated = [f"{n:,} {name.replace('_', ' ')}" for name, n in stats.ratings.items() if n]
    lines.append(
        f"  feedback   {', '.join(rated) or 'none; rate with `upwell feedback SURFACING RATING`'}"
    )
    return lines


def _headline(stats: Stats, since: str) -> str:
    if not stats.decisions:
        return f"No event from an agent reached upwell {since}."
    if not stats.surfaced:
        return f"upwell looked {_times(stats.decisions)} {since} and never spoke."
    share = _share(stats.surfaced, stats.decisions)
    return (
        f"upwell looked {_times(stats.decisions)} {since} and spoke {_times(stats.surfaced)} "
        f"({share})."
    )


def _used_share(stats: Stats) -> str:
    share = stats.used_share
    return "use not known yet" if share is None else f"{100 * share:.0f} % used"


def judge_line(judge: Mapping[str, float]) -> str:
    """Return the judge's verdicts, and their cost if the prices are known."""
    tokens = f"{judge['tokens_in']:,.0f} + {judge['tokens_out']:,.0f} tokens"
    cost = f", cost {judge['cost']:,.4f}" if judge["cost"] else ""
    return (
        f"asked {_times(int(judge['asked']))}: {judge['chosen']:,.0f} chosen, "
        f"{judge['nothing']:,.0f} nothing, {judge['failed']:,.0f} failed; {tokens}{cost}"
    )


def lessons_line(lessons: Mapping[str, float]) -> str:
    """Return what the model that writes lessons did, and its cost if the prices are known."""
    tokens = f"{lessons['tokens_in']:,.0f} + {lessons['tokens_out']:,.0f} tokens"
    cost = f", cost {lessons['cost']:,.4f}" if lessons["cost"] else ""
    return (
        f"{counted(int(lessons['asked']), 'session')} read: {lessons['kept']:,.0f} kept, "
        f"{lessons['confirmed']:,.0f} confirmed, {lessons['dropped']:,.0f} dropped, "
        f"{lessons['failed']:,.0f} failed; {tokens}{cost}"
    )


def _silence(stats: Stats, in_words: Callable[[str], str]) -> list[str]:
    reasons = sorted(((n, in_words(code)) for code, n in stats.skips.items() if n), reverse=True)
    if not reasons:
        return []
    most = reasons[0][0]
    bars = [f"  {bar(n, most):<{BAR_CHARS}} {n:>7,}  {reason}" for n, reason in reasons]
    return ["", "Why it stayed silent", *bars]


def _tools(stats: Stats, in_words: Callable[[str], str]) -> list[str]:
    shown = stats.beside[:MAX_TOOLS]
    if not shown:
        return []
    names = [row.tool or f"({row.door})" for row in shown]
    width = max(map(len, names))
    lines = [
        f"  {name:<{width}}  {row.decisions:>7,} looked  {row.surfaced:>6,} spoke"
        + (f"  mostly: {in_words(next(iter(row.skips)))}" if row.skips else "")
        for name, row in zip(names, shown, strict=True)
    ]
    left = len(stats.beside) - len(shown)
    return ["", "Where", *lines, *([f"  … and {left} more (--json)"] if left else [])]


def _savings(stats: Stats, gain: Mapping[str, Any]) -> list[str]:
    if not stats.saved:
        return [""]
    share = _share(stats.tokens_saved, stats.tokens_before)
    lines = [
        f"  {saving.tool}  {counted(saving.tokens_saved, 'token')} in "
        f"{counted(saving.results, 'result')}"
        for saving in stats.saved[:5]
    ]
    saved = counted(stats.tokens_saved, "token")
    return ["", f"Saved {saved} of long results ({share})", *lines, *balance(gain), ""]


def balance(gain: Mapping[str, Any]) -> list[str]:
    """Return the tokens saved, each of upwell's own costs that is not zero, and the net."""
    costs = [(name, -gain[key]) for key, name in COSTS.items() if gain[key]]
    rows = [("saved", gain["saved"]), *costs, ("net", gain["net"])]
    return [f"  {name:<12} {tokens:>12,} tokens" for name, tokens in rows]


def _times(number: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number:,} times")


def _share(part: int, total: int) -> str:
    return f"{100 * part / total:.0f} %" if total else "0 %"
