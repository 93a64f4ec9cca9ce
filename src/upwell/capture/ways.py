"""The ways in which a project's jobs were run in its sessions: derived data, kept in the TTL
store."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from upwell.capture.inbox import HABIT_SESSIONS, WHY_RULE, Proposal
from upwell.capture.sessions import Findings, proposed
from upwell.episodes.quoting import quoted
from upwell.episodes.trials import Trial
from upwell.episodes.ways import Complaint, Way, learned, recurring, with_trials
from upwell.ground.secrets.redact import has_secret
from upwell.ground.ttl_store import EntryKind, TtlStore
from upwell.surface.scopes import RuleScope

TTL_SECONDS = 180 * 86_400.0
MAX_JOBS = 200
"""At most this many jobs of one reading of a session are kept, the latest."""
_DECODER = msgspec.json.Decoder(list[Way])


class Ways:
    """The ways of all jobs. `add()` raises StoreError if the store fails."""

    def __init__(self, ttl_store: TtlStore) -> None:
        self._ttl_store = ttl_store

    async def add(self, findings: Findings) -> Sequence[Proposal]:
        """Store the trials of a session. Returns what its project's sessions teach together, and a
        rule for each mistake that was made in `HABIT_SESSIONS` sessions without a known remedy."""
        by_job: defaultdict[str, list[Trial]] = defaultdict(list)
        for trial in findings.trials:
            if not has_secret("\n".join((trial.launcher, trial.form, trial.message, trial.after))):
                by_job[trial.job].append(trial)
        jobs = list(by_job.items())[-MAX_JOBS:]
        keys = {job: _key(findings.project, job) for job, _ in jobs}
        known = await self._ttl_store.get(EntryKind.WAY, list(keys.values()))
        values: dict[str, bytes] = {}
        proposals: list[Proposal] = []
        for job, trials in jobs:
            item = known.get(keys[job])
            ways = with_trials(_decoded(item.value) if item else [], trials)
            habits = recurring(ways, HABIT_SESSIONS)
            proposals += [_rule_against(habit, findings.project) for habit in habits]
            values[keys[job]] = msgspec.json.encode(ways)
            proposals += [
                proposed(episode, findings.project, f"session:{episode.session[:40]}")
                for episode in learned(ways, min(trial.at for trial in trials))
            ]
        if values:
            await self._ttl_store.put(EntryKind.WAY, values, ttl_seconds=TTL_SECONDS)
        return proposals


def _rule_against(habit: Complaint, project: str) -> Proposal:
    """A rule that the agent gets when it runs the command, if the user wants it."""
    trial = habit.trial
    complaint = f"`{trial.command}` fails here with {quoted(trial.message)}"
    seen = tuple(sorted(habit.sessions.items(), key=lambda session: session[1]))
    return Proposal(
        text=f"{complaint}. Do not repeat it as it is.",
        source=f"session:{trial.session[:40]}",
        why=WHY_RULE,
        namespace="patterns",
        triggers=RuleScope(tools=(f"Bash({trial.start}*)",)).triggers(),
        occurrences=len(seen),
        seen=seen,
        project=project,
        session=trial.session,
        at=habit.at,
    )


def _decoded(value: bytes) -> list[Way]:
    try:
        return _DECODER.decode(value)
    except msgspec.MsgspecError:
        return []


def _key(project: str, job: str) -> str:
    return hashlib.sha256(f"{project}\0{job}".encode("utf-8", "replace")).hexdigest()[:24]
