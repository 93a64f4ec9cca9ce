"""The state of the last work as a text: what was asked, done and left open in a past session, from
its record. The agent's own words are quoted."""

from collections.abc import Callable

from upwell.episodes.events import ACCEPTED_PLAN
from upwell.ground.types.memory import STATE, Memory, Provenance, Trust
from upwell.memory.records import content_hash
from upwell.sessions.landmarks import TRUNKS
from upwell.sessions.record import RecordedRequest, SessionRecord
from upwell.sessions.telling import telling

MAX_CHARS = 500
REQUEST_CHARS, MAX_FILES, FILES_CHARS = 110, 4, 150
ID, NAMESPACE = "state:", "state"
_MINUTE, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0


Bears = Callable[[str], float]
"""How much a sentence bears on a prompt (`telling.telling`)."""


def state_of(
    record: SessionRecord,
    now: float,
    request: RecordedRequest | None = None,
    bears: Bears = lambda sentence: 0.0,
) -> Memory:
    """The state in which a session left its work, as a memory. `request` is the turn that bears on
    the moment; without it, the last turn that came to a conclusion."""
    text = state_text(record, now, request or _last(record), bears)
    branches = [branch for branch in record.branches if branch not in TRUNKS]
    pulls = [f"#{number}" for number in record.pulls]
    return Memory(
        id=f"{ID}{record.name}",
        text=text,
        namespace=NAMESPACE,
        tags=tuple(branches),
        symbols=(*record.tickets, *pulls),
        paths=record.changed,
        project=record.project or None,
        source=f"session:{record.name}",
        provenance=Provenance(door=STATE, session=record.name),
        trust=Trust.AGENT,
        content_hash=content_hash(text),
        created_at=record.ended,
        updated_at=record.ended,
    )


def state_text(record: SessionRecord, now: float, told: RecordedRequest, bears: Bears) -> str:
    """At most `MAX_CHARS` characters. The agent's words fill what the facts leave."""
    asked = _shortened(_subject(told.question), REQUEST_CHARS)
    facts = "; ".join(filter(None, (_files(record, told), _landmarks(record), _red(record))))
    head = f"{age(now - record.ended)} a session ({record.host or 'agent'}) was asked “{asked}”."
    if facts:
        head = f"{head} It {facts}."
    quote = telling(_conclusion(record, told, bears), MAX_CHARS - len(head) - 22, bears).replace(
        "\n", " "
    )
    return f"{head} Its conclusion: “{quote}”" if quote else head


def age(seconds: float) -> str:
    """How long ago, in words."""
    for unit, name in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute")):
        if seconds >= 1.5 * unit or (unit == _MINUTE):
            count = max(1, round(seconds / unit))
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return ""


def _conclusion(record: SessionRecord, told: RecordedRequest, bears: Bears) -> str:
    """The conclusion of the request. What became of the first one stands at the end, unless the
    session had turned to something else by then. What a discussion came to stands only there:
    before it, the agent proposes what the user may reject."""
    closing = _last(record).conclusion
    if record.is_discussion:
        return closing
    if told.number > 0 or closing == told.conclusion or bears(closing) < bears(told.conclusion):
        return told.conclusion
    return f"{closing}\n{told.conclusion}"


def _last(record: SessionRecord) -> RecordedRequest:
    concluded = [request for request in record.requests if request.conclusion]
    return (concluded or list(record.requests))[-1]


def _subject(question: str) -> str:
    """The question on one line. A plan is named by its first heading."""
    question = question.removeprefix(ACCEPTED_PLAN)
    first, _, rest = question.strip().partition("\n")
    heading = next((line for line in rest.split("\n") if line.startswith("# ")), "")
    return " ".join(
        (heading.removeprefix("# ") if heading and first.endswith(":") else question).split()
    )


def _files(record: SessionRecord, told: RecordedRequest) -> str:
    paths = list(dict.fromkeys([*told.facts.changed, *record.changed]))
    shown: list[str] = []
    for path in paths[:MAX_FILES]:
        if not shown or len(", ".join([*shown, path])) <= FILES_CHARS:
            shown.append(path)
    more = f" and {len(paths) - len(shown)} more" if len(paths) > len(shown) else ""
    return f"changed {', '.join(shown)}{more}" if paths else ""


def _landmarks(record: SessionRecord) -> str:
    branch = next((name for name in record.branches if name not in TRUNKS), "")
    on = f" on branch {branch}" if branch else ""
    parts = [f"committed {record.commits[0]}{on}"] if record.commits else [f"worked{on}"] * bool(on)
    parts += [f"opened or used PR #{record.pulls[0]}"] if record.pulls else []
    return "; ".join(parts)


def _red(record: SessionRecord) -> str:
    return f"left `{record.red[0]}` failing" if record.red else ""


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit].rpartition(' ')[0]} …"
