"""The scores that memories need, and the effect of another threshold."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from upwell.app import reporting
from upwell.app.dashboard.commands import run_command
from upwell.app.dashboard.sessions import is_indexed
from upwell.app.wiring import App
from upwell.ground.errors import UsageError
from upwell.ground.types.cue import SkipReason
from upwell.web.dashboard.routes import Fields

LOOKED_AT = 5_000
WHAT_IFS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
REPLAY_SECONDS = 120.0
REPLAY_SPANS = ("7d", "30d")
MAX_REPLAYED = 20


async def thresholds(app: App, fields: Fields) -> Mapping[str, Any]:
    """The thresholds in use. `what_if` lists several thresholds, each with the number of the latest
    decisions whose best memory reaches it."""
    decisions = await app.surfacer.journal.latest(LOOKED_AT)
    return {
        "learned": await reporting.learned(app),
        "min_score": app.config.surface.min_score,
        "auto_tune": app.config.learn.auto_tune,
        "what_if": _what_if(decisions),
    }


async def replay(app: App, fields: Fields) -> Mapping[str, Any]:
    """The memories that would have surfaced in past sessions, with a link to each session that has
    a page.

    Raises:
        UsageError: a field is invalid.
        UpwellError: the replay failed.
    """
    since = fields.get("since", REPLAY_SPANS[0])
    score = fields.get("min_score", str(app.config.surface.min_score))
    if since not in REPLAY_SPANS or not _is_share(score):
        raise UsageError(
            "a replay needs a time span and a score",
            hint="such as 30d and 0.5",
        )
    try:
        output = await run_command(
            app,
            *("replay", "--since", since, "--json"),
            seconds=REPLAY_SECONDS,
            environment={"UPWELL_SURFACE__MIN_SCORE": score},
        )
    except UsageError as error:
        # Not reported as an error, because a new user has no sessions in this period.
        return {"since": since, "score": score, "trouble": str(error)}
    rows = [json.loads(line) for line in output.splitlines()]
    surfacings = [row for row in rows if row.get("memories")]
    summary: Mapping[str, Any] = next((row["summary"] for row in rows if "summary" in row), {})
    shown = surfacings[:MAX_REPLAYED]
    names = list({row["session"] for row in shown})
    return {
        "since": since,
        "score": score,
        "summary": summary,
        "said": shown,
        "more": len(surfacings) - len(shown),
        "linked": await app.past_sessions().known_names(names) if is_indexed(app) else (),
    }


def _what_if(decisions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """For each threshold, the number and percentage of decisions whose best memory reaches it."""
    scores = []
    for decision in decisions:
        if decision["memories"]:
            scores.append(max(score for _, score in decision["memories"]))
        elif decision["outcome"] == SkipReason.BELOW_MIN_SCORE and decision["held_back"]:
            scores.append(max(score for _, score in decision["held_back"]))
    events_count = len(decisions) or 1
    return {
        "events": len(decisions),
        "rows": [
            (limit, number, 100 * number / events_count)
            for limit in WHAT_IFS
            for number in [sum(score >= limit for score in scores)]
        ],
    }


def _is_share(text: str) -> bool:
    try:
        return 0.0 <= float(text) <= 1.0
    except ValueError:
        return False
