"""The record of a session: what was asked, which files changed, which checks ran with which result,
and the commits, branches, tickets and pull requests; and the state in which the session left its
work, as a text in which the agent's own words are quoted.

A record is derived from the turns, without a model. Each turn keeps its own part (`Facts`), so that
a session that goes on only adds to its record.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import msgspec
from msgspec import Struct

from upwell.episodes.events import ACCEPTED_PLAN
from upwell.ground.secrets.redact import redact
from upwell.ground.text.anchors import paths_in, relative_to, symbols_in
from upwell.ground.types.memory import STATE, Memory, Provenance, Trust
from upwell.memory.records import content_hash
from upwell.sessions.turns import TRUNKS, Turn, worth_repeating

MAX_CHANGED, MAX_CHECKS, MAX_LANDMARKS = 24, 8, 6
_CHECK = re.compile(
    r"(?:^|[\s:/._-])(?:tests?|check|lint|build|typecheck|type-check|tsc|pytest|mypy|ruff|clippy|"
    r"eslint|vitest|jest|verify|validate|deploy|publish|migrate|compile|e2e|spec)(?:$|[\s:/._-])"
)
"""A command that checks or ships the work, in contrast to one that looks around."""
_CHECK_WORDS = 4
"""Only the first words of a command say what it does, and of these only the first two may be a
script: later ones are the files that it works on."""


class Facts(Struct, frozen=True, omit_defaults=True):
    """A turn's part of the record. `changed` are paths relative to the project. `checks` maps each
    command that checks the work to whether its last run worked."""

    changed: tuple[str, ...] = ()
    checks: dict[str, bool] = msgspec.field(default_factory=dict)
    commits: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    tickets: tuple[str, ...] = ()
    pulls: tuple[str, ...] = ()


class RecordedRequest(Struct, frozen=True):
    """A turn of a record: the masked excerpts of its question and its conclusion."""

    number: int
    at: float
    question: str
    conclusion: str
    facts: Facts


class SessionRecord(Struct, frozen=True):
    """The record of the session `name`, which last did something at `ended` (epoch seconds)."""

    name: str
    host: str
    project: str
    ended: float
    requests: tuple[RecordedRequest, ...]

    @property
    def changed(self) -> tuple[str, ...]:
        """The changed files, those of the last turn first."""
        return _newest([request.facts.changed for request in self.requests])

    @property
    def red(self) -> tuple[str, ...]:
        """The checks that failed and did not work later, newest first."""
        last: dict[str, bool] = {}
        for request in self.requests:
            for check, worked in request.facts.checks.items():
                # A command line that worked is joined by `&&`: so did each command in it.
                for done in (check, *(part.strip() for part in check.split("&&") if worked)):
                    last.pop(done, None)
                last[check] = worked
        return tuple(check for check, worked in reversed(last.items()) if not worked)

    @property
    def commits(self) -> tuple[str, ...]:
        """The commits (hash and subject), newest first."""
        return _newest([request.facts.commits[::-1] for request in self.requests])

    @property
    def branches(self) -> tuple[str, ...]:
        """The branches that the session created or committed to, newest first."""
        return _newest([request.facts.branches[::-1] for request in self.requests])

    @property
    def is_discussion(self) -> bool:
        """True if the session changed, ran and committed nothing. What was said does not go out of
        date as work does."""
        return not any(
            each.facts.changed or each.facts.checks or each.facts.commits for each in self.requests
        )

    @property
    def tickets(self) -> tuple[str, ...]:
        """The tickets that the user or the agent named."""
        return _newest([request.facts.tickets for request in self.requests])

    @property
    def pulls(self) -> tuple[str, ...]:
        """The numbers of the pull requests."""
        return _newest([request.facts.pulls for request in self.requests])


def facts_of(turn: Turn, project: str | None) -> Facts:
    """The part of the record that a turn contributes, with secrets masked."""
    landmarks = turn.landmarks
    root = project or turn.cwd
    # Without the files of other folders, such as a plan in the agent's own.
    changed = dict.fromkeys(
        relative_to(path, root)
        for path in turn.changed
        if root is None or not path.startswith(("/", "~")) or path.startswith(f"{root}/")
    )
    checks: dict[str, bool] = {}
    for run in turn.runs:
        shown = worth_repeating(run.command)
        words = shown.split()[:_CHECK_WORDS]
        if _CHECK.search(" ".join([*words[:2], *(word for word in words[2:] if "/" not in word)])):
            checks.pop(shown, None)
            checks[shown] = run.worked
    return Facts(
        changed=_masked(list(changed)[:MAX_CHANGED]),
        checks=dict(list(checks.items())[-MAX_CHECKS:]),
        commits=_masked(list(landmarks.commits)[-MAX_LANDMARKS:]),
        branches=_masked(list(landmarks.branches)[-MAX_LANDMARKS:]),
        tickets=tuple(landmarks.tickets)[:MAX_LANDMARKS],
        pulls=tuple(landmarks.pulls)[:MAX_LANDMARKS],
    )


def encoded(facts: Facts) -> bytes:
    """The facts as JSON."""
    return msgspec.json.encode(facts)


def decoded(value: bytes) -> Facts:
    """The facts that `encoded()` wrote."""
    return _DECODER.decode(value)


_DECODER = msgspec.json.Decoder(Facts)


def _masked(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(redact(text)[0] for text in texts)


def _newest(groups: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for group in reversed(groups) for text in group))


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
    asked = _subject(told.question)
    if len(asked) > REQUEST_CHARS:
        asked = f"{asked[:REQUEST_CHARS].rpartition(' ')[0]} …"
    red = f"left `{record.red[0]}` failing" if record.red else ""
    facts = "; ".join(filter(None, (_files(record, told), _landmarks(record), red)))
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


MAX_SENTENCE_CHARS = 240
MIN_SENTENCE_CHARS = 12
_FENCE = ("```", "~~~")
_LINK = re.compile(r"\[([^\[\]]{1,200})\]\([^()\s]{1,400}\)")
_RULE = re.compile(r"[\s|:=*_-]*")
_BULLET = re.compile(r"(?:[-*+•>]|\d{1,2}[.)])\s+")
_BREAK = re.compile(r"(?<=[.!?])\s+(?=\S)")
_OPENER = re.compile(
    r"\W*(?:now,? )?(?:done|perfect|great|excellent|all set|here(?:'s| is| are)|let me|let's|"
    r"i(?:['’]ll| will|['’]m going| now|['’]m now)|summary|changes|"
    r"perfecto|listo|excelente|resumen|voy a|ahora|fertig|hier|voici|"
    r"pronto)\b",
    re.IGNORECASE,
)
_OPEN = re.compile(
    r"\b(?:remain\w*|pending|still|not yet|open|todo|follow-?up|next steps?|blocked|left|missing|"
    r"untested|not (?:been )?(?:verified|tested|run|pushed|merged|committed)|fail\w*|pendientes?|"
    r"falta\w*|todav[ií]a|noch|offen|fehlt\w*|reste\w*|encore|ainda)\b",
    re.IGNORECASE,
)
_RESULT = re.compile(
    r"\b[0-9a-f]{7,40}\b|#\d+|\b(?:root cause|because|fix\w*|add\w*|remov\w*|creat\w*|implement\w*|"
    r"merg\w*|push\w*|pass\w*|caus\w*|porque|agreg\w*|elimin\w*|cre[oó]\b|cread\w*|corregi\w*|"
    r"weil|behoben|ajout\w*)\b",
    re.IGNORECASE,
)


def telling(text: str, limit: int, bears: Callable[[str], float] = lambda sentence: 0.0) -> str:
    """The first sentence, and those that name files, results or open work, in their order, each on
    a line, at most `limit` characters together. "" if there is no whole sentence. `bears()` returns
    how much a sentence bears on the moment, about 1 for a rare word that it has."""
    sentences = list(dict.fromkeys(_sentences(text)))
    worth: dict[str, float] = {}
    for place, sentence in enumerate(sentences):
        if not _OPENER.match(sentence):
            names = len(paths_in(sentence)) + len(symbols_in(sentence))
            said = bool(_RESULT.search(sentence)) + 1.5 * bool(_OPEN.search(sentence))
            order = (2.0 if place == 0 else 0.5) - 0.02 * place
            if value := min(names, 2) + said + order:
                worth[sentence] = value + bears(sentence)
    ordered = sorted(worth, key=lambda sentence: -worth[sentence])
    chosen: set[str] = set()
    used = 0
    for sentence in ordered:
        if used + len(sentence) + 1 <= limit:
            chosen.add(sentence)
            used += len(sentence) + 1
    return "\n".join(sentence for sentence in sentences if sentence in chosen)


def _sentences(text: str) -> Iterator[str]:
    is_code = False
    for line, below in pairwise([*map(str.strip, text.split("\n")), ""]):
        if line.startswith(_FENCE):
            is_code = not is_code
        elif not (is_code or line.startswith("#") or _RULE.fullmatch(line)):
            is_table_head = line.startswith("|") and "-" in below and _RULE.fullmatch(below)
            if not is_table_head:
                yield from _of_line(line)


def _of_line(line: str) -> Iterator[str]:
    """The sentences of a line of Markdown. A row of a table is one sentence."""
    bullet = _BULLET.match(line)
    plain = _LINK.sub(r"\1", line[bullet.end() if bullet else 0 :]).replace("**", "")
    if plain.startswith("|"):
        plain = ": ".join(cell.strip() for cell in plain.strip("|").split("|") if cell.strip())
    for sentence in _BREAK.split(plain):
        sentence = sentence.strip()
        if len(sentence) > MAX_SENTENCE_CHARS:
            sentence = f"{sentence[:MAX_SENTENCE_CHARS].rpartition(' ')[0]} …"
        if len(sentence) >= MIN_SENTENCE_CHARS and not sentence.endswith(":"):
            yield sentence
