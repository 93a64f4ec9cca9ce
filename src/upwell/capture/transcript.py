"""A session's transcript: the memories to propose from it, the texts that the agent wrote, and
whether a compression has removed our memories from it."""

import time
from collections.abc import Iterator, Sequence

from upwell.capture.commands import command_findings
from upwell.capture.entries import Call, Entry, Message, entries_of, tail_of
from upwell.capture.inbox import Proposal
from upwell.capture.rules import Finding, agent_findings, user_findings

MAX_PROPOSALS = 20
WRITTEN_BYTES = 500_000
HISTORY_BYTES = 20_000_000
_FINDINGS = {"user": user_findings, "assistant": agent_findings}
_REWRITTEN = b'\n{"$set":{"messages":'
"""How Gemini CLI records a compression: its transcript then holds the whole history again in one
line, and continues from there (`chatCompressionService` and recorded chats of 0.61.0)."""


def proposals_in(path: str, *, source: str, project: str | None, session: str) -> list[Proposal]:
    """The proposals of a transcript's end; none where the file does not belong to the user."""
    entries = list(entries_of(path))
    return proposals_of(entries, source=source, project=project, session=session, at=time.time())


def proposals_of(
    entries: list[Entry], *, source: str, project: str | None, session: str, at: float
) -> list[Proposal]:
    """The proposals of these entries of a session, made at the time `at`."""
    proposals: dict[str, Proposal] = {}
    for finding in (*_message_findings(entries), *command_findings(entries, project)):
        proposal = Proposal(
            text=finding.text,
            source=source,
            why=finding.why,
            namespace=finding.namespace,
            project=project,
            session=session,
            at=at,
        )
        proposals.setdefault(proposal.id, proposal)
    return list(proposals.values())[-MAX_PROPOSALS:]


def written_in(path: str, since: float) -> list[tuple[float, str]]:
    """The agent's messages and the arguments of its calls since then, with their times. No hook
    reports the files that the agent writes; the transcript has them."""
    texts: list[tuple[float, str]] = []
    for entry in entries_of(path, WRITTEN_BYTES):
        if entry.at < since:
            continue
        if isinstance(entry, Message) and entry.role == "assistant":
            texts.append((entry.at, entry.text))
        elif isinstance(entry, Call):
            values = [value for value in entry.args.values() if isinstance(value, str)]
            texts.append((entry.at, "\n".join(values)))
    return texts


def has_lost_marks(path: str, marks: Sequence[str]) -> bool:
    """Has a compression removed one of `marks` from the history? False where the file does not
    belong to the user."""
    history = tail_of(path, HISTORY_BYTES)
    rewritten = history.rfind(_REWRITTEN)
    if rewritten < 0:
        return False
    encoded = [mark.encode() for mark in marks]
    return any(
        history.find(mark, 0, rewritten) >= 0 > history.find(mark, rewritten) for mark in encoded
    )


def _message_findings(entries: list[Entry]) -> Iterator[Finding]:
    for entry in entries:
        if isinstance(entry, Message):
            yield from _FINDINGS[entry.role](entry.text)
