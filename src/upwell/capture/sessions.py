"""What a session yields without a model.

`findings_in()` collects the conclusions and rules to propose, and the places to remember.

`Ways` remembers how the jobs of a project were run in its sessions, and proposes what they teach
together. The ways are derived data, kept in the TTL store.

`written_in()` and `has_lost_marks()` look at the end of a transcript: what the agent wrote, and
whether a compaction by Gemini CLI has removed the memories that upwell delivered. `written_in()`
reads the JSON lines of Claude Code and Codex itself, because the readers in `replay/transcripts`
leave out subagents and calls without a result.
"""

import hashlib
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

import msgspec
import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from upwell.capture.inbox import HABIT_SESSIONS, WHY_COMMAND, WHY_RULE, Proposal
from upwell.episodes.events import SessionEvent, inside
from upwell.episodes.miner import EpisodeMiner, in_words
from upwell.episodes.trials import Trial, quoted
from upwell.episodes.triggers import Episode, EpisodeKind
from upwell.episodes.ways import Complaint, Way, learned, recurring, with_trials
from upwell.ground.ledger import EntryKind, TtlStore
from upwell.ground.project import in_project, main_worktree_of
from upwell.ground.secrets.redact import has_secret
from upwell.ground.text.anchors import relative_to
from upwell.ground.types.memory import Memory, Provenance
from upwell.hosts.events import plain_args
from upwell.surface.rules import RuleScope

MAX_PROPOSALS = 20
"""The maximum number of proposals from one reading of a session. Only the latest are kept."""
PLACES = frozenset({EpisodeKind.PLACE, EpisodeKind.TICKET})
"""Kinds of episodes that are stored without asking a person. They only say where something is, and
stay valid as long as it exists.
"""


class Findings(Struct):
    """The findings of one session, or of a part of it, oldest first. `trials` are the commands
    that show how something is run in `project`; their folders are relative to it."""

    proposals: list[Proposal] = field(default_factory=list)
    places: list[Memory] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    project: str = ""

    def add(self, episode: Episode, project: str, source: str) -> None:
        """Add an episode from a session in `project`."""
        paths = tuple(_in_project(path, episode.cwd, project) for path in episode.paths)
        if episode.kind in PLACES:
            self.places.append(_place(episode, paths, project))
            return
        proposal = replace(proposed(episode, project, source), paths=paths)
        self.proposals = [*self.proposals, proposal][-MAX_PROPOSALS:]


def findings_in(events: Iterable[SessionEvent], project: str, source: str) -> Findings:
    """Return the findings of a session, or of a part of it, in `project`. `source` names the
    session.
    """
    miner, findings = EpisodeMiner(), Findings()
    for event in events:
        _add(findings, miner.feed(event), project, source)
    _add(findings, miner.end(), project, source)
    findings.project = main_worktree_of(project) or project
    findings.trials = [
        replace(trial, folder=_folder(trial.folder, project)) for trial in miner.trials
    ]
    return findings


def proposed(episode: Episode, project: str, source: str) -> Proposal:
    """An episode from a session in `project` as a proposal."""
    is_rule = episode.kind is EpisodeKind.RULE
    return Proposal(
        text=episode.text,
        source=source,
        why=WHY_RULE if is_rule else WHY_COMMAND,
        namespace="patterns" if is_rule else "learnings",
        paths=episode.paths,
        symbols=episode.identifiers,
        triggers=episode.triggers,
        project=main_worktree_of(project) or project,
        session=episode.session,
        at=episode.at,
    )


def without_excluded(
    events: Sequence[SessionEvent], is_excluded: Callable[[str | None], bool] | None
) -> Sequence[SessionEvent]:
    """The events of a session outside excluded projects. Empty if it began in one."""
    if is_excluded is None:
        return events
    excluded = {cwd for cwd in {event.cwd for event in events} if is_excluded(cwd)}
    first = next((event.cwd for event in events if event.cwd), None)
    if first in excluded:
        return []
    return [event for event in events if event.cwd not in excluded] if excluded else events


def _add(findings: Findings, episodes: Iterable[Episode], project: str, source: str) -> None:
    for episode in episodes:
        findings.add(episode, project, source)


def _in_project(path: str, cwd: str | None, project: str) -> str:
    """Return the path relative to the project's root. A relative `path` starts from `cwd`."""
    absolute = str(PurePosixPath(cwd or project, path))
    return relative_to(in_project(absolute, project), project)


def _folder(folder: str, project: str) -> str:
    """The folder relative to the project's root, which is "". One outside stays absolute."""
    return inside(in_project(f"{folder}/", project), project).rstrip("/")


def _place(episode: Episode, paths: tuple[str, ...], project: str) -> Memory:
    """Return the place as a memory. Its text names the location relative to the project's root,
    because the next session may run in another of the project's folders."""
    if episode.kind is EpisodeKind.TICKET:
        text = episode.text.replace(f"`{episode.paths[0]}`", f"`{paths[0]}`")
    else:
        text = in_words(paths, episode.identifiers)
    return Memory(
        text=text,
        paths=paths,
        symbols=episode.identifiers,
        triggers=episode.triggers,
        project=project,
        provenance=Provenance(door="capture", tool=str(episode.kind), session=episode.session),
        created_at=episode.at,
        updated_at=episode.at,
    )


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


WRITTEN_BYTES = 500_000
HISTORY_BYTES = 20_000_000
_REWRITTEN = b'\n{"$set":{"messages":'
"""The mark of a compaction by Gemini CLI. The line with this mark repeats the whole history.
Source: `chatCompressionService` and recorded chats of Gemini CLI 0.61.0.
"""
_CALLS = ("function_call", "custom_tool_call")
_TEXTS = ("text", "output_text")


def written_in(path: str, since: float) -> list[tuple[float, str]]:
    """Return the agent's messages and the arguments of its calls from the time `since` on, each
    with its timestamp. The arguments include the content of files that the agent wrote, which no
    hook reports."""
    texts: list[tuple[float, str]] = []
    for line in _tail_of(path, WRITTEN_BYTES).splitlines():
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if not isinstance(record, dict) or record.get("isMeta"):
            continue
        at = _time_of(record.get("timestamp"))
        message = record.get("message", record.get("payload", record))
        if at >= since and isinstance(message, dict):
            texts += ((at, text) for text in _texts_of(message))
    return texts


def has_lost_marks(path: str, marks: Sequence[str]) -> bool:
    """Return whether a compaction by Gemini CLI has removed one of the texts in `marks` from the
    history. Returns False if the file does not belong to the user.
    """
    history = _tail_of(path, HISTORY_BYTES)
    rewritten = history.rfind(_REWRITTEN)
    if rewritten < 0:
        return False
    encoded = [mark.encode() for mark in marks]
    return any(
        history.find(mark, 0, rewritten) >= 0 > history.find(mark, rewritten) for mark in encoded
    )


def _tail_of(path: str, max_bytes: int) -> bytes:
    """Return the last whole lines of a regular `.jsonl` file that the user owns, up to `max_bytes`.
    Returns b"" for any other path."""
    if not path.startswith("/") or not path.endswith(".jsonl"):
        return b""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid():
                return b""
            if info.st_size > max_bytes:
                file.seek(info.st_size - max_bytes)
                file.readline()
            return file.read(max_bytes)
    except (OSError, ValueError):
        return b""


def _texts_of(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield the agent's texts in one record. Claude Code records a message together with its calls,
    but Codex records each call separately.
    """
    if message.get("type") in _CALLS:
        yield _arguments(message.get("arguments", message.get("input")))
    elif message.get("role") == "assistant":
        content = message.get("content")
        if isinstance(content, str):
            yield content
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict):
                yield from _texts_of_block(block)


def _texts_of_block(block: Mapping[str, Any]) -> Iterator[str]:
    kind, text = block.get("type"), block.get("text")
    if kind in _TEXTS and isinstance(text, str):
        yield text
    elif kind == "tool_use":
        yield _arguments(block.get("input"))


def _arguments(args: Any) -> str:
    if isinstance(args, str):
        try:
            args = orjson.loads(args)
        except orjson.JSONDecodeError:
            args = {"input": args}
    return "\n".join(value for value in plain_args(args).values() if isinstance(value, str))


def _time_of(value: Any) -> float:
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else 0.0
    except ValueError:
        return 0.0
