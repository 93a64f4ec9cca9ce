"""What a session's transcript leaves behind: candidates for the inbox, and what the agent wrote."""

from collections.abc import Iterator

from upwell.capture.commands import that_worked
from upwell.capture.entries import Called, Entry, Spoken, entries_of
from upwell.capture.inbox import Proposal, now
from upwell.capture.rules import Found, said_by_agent, said_by_user

MAX_PROPOSALS = 20
WRITTEN_BYTES = 500_000
_READS = {"user": said_by_user, "assistant": said_by_agent}


def proposals_in(path: str, *, source: str, project: str | None, session: str) -> list[Proposal]:
    """What the end of a transcript proposes; nothing where the file is not the user's own."""
    entries = list(entries_of(path))
    found: dict[str, Proposal] = {}
    for one in (*_said(entries), *that_worked(entries, project)):
        proposal = Proposal(
            text=one.text,
            source=source,
            why=one.why,
            namespace=one.namespace,
            project=project,
            session=session,
            at=now(),
        )
        found.setdefault(proposal.id, proposal)
    return list(found.values())[-MAX_PROPOSALS:]


def written_in(path: str, since: float) -> list[tuple[float, str]]:
    """What the agent said, and gave to its tools, since then, with the times; also what no hook
    tells of, as the files that it wrote."""
    found: list[tuple[float, str]] = []
    for entry in entries_of(path, WRITTEN_BYTES):
        if entry.at < since:
            continue
        if isinstance(entry, Spoken) and entry.who == "assistant":
            found.append((entry.at, entry.text))
        elif isinstance(entry, Called):
            texts = [value for value in entry.args.values() if isinstance(value, str)]
            found.append((entry.at, "\n".join(texts)))
    return found


def _said(entries: list[Entry]) -> Iterator[Found]:
    for entry in entries:
        if isinstance(entry, Spoken):
            yield from _READS[entry.who](entry.text)
