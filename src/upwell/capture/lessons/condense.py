"""Condenses a session to a transcript that a language model can read in one call.

Each event becomes one line, `[i] WHO: …`. Prompts, the agent's last words of each turn, failures
and what followed them matter most: they keep their place and their length when the budget is small.
A run of events that is left out becomes one line, `[… 12 calls: Read ×9, Bash ×3]`.

Sessions are not trusted: every piece of text is put on one line, so that no content of an event can
imitate the line of another one. Secrets are masked before a text is shortened.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import groupby
from typing import Any

from msgspec import Struct, field

from upwell.episodes.events import WRITERS, Kind, SessionEvent
from upwell.episodes.failures import succeeded
from upwell.ground.secrets.redact import redact
from upwell.ground.text.invisible import visible
from upwell.ground.text.tokens import count

MAX_TOKENS = 12_000
"""The size of a transcript that every model can read at once, at a cost of about a cent."""
MAX_RAW_CHARS = 20_000
"""At most this many characters from the head and from the tail of a text are read."""
AFTER_FAILURE = 2
"""How many calls after a failure show how it was dealt with."""
SEARCHES = frozenset({"Grep", "Glob", "LS", "WebSearch", "ToolSearch"})
DELEGATES = frozenset({"Agent", "Task"})
MAX_EMPTY_CHARS = 60
_SHOWN_ARGS = (
    *("command", "file_path", "path", "pattern", "query", "url", "glob", "prompt"),
    *("description", "new_string", "content", "input"),
)
MAX_ATTEMPTS = 4
MIN_CALLS, MIN_SAID_CHARS = 4, 400


class Weight(IntEnum):
    """How much a line tells about what the session taught, the most important first."""

    PROMPT = 0
    LAST_WORDS = 1
    FAILURE = 2
    AFTER_FAILURE = 3
    WORK = 4
    """Commands, changes, delegated work, and searches without a result."""
    WORDS = 5
    LOOKING = 6


class Shape(Struct, frozen=True):
    """How many characters of an event's text (or arguments) and of its result are shown."""

    text: int
    out: int = 0


_SHAPES: Mapping[Weight, tuple[Shape, Shape]] = {
    Weight.PROMPT: (Shape(400), Shape(2_000)),
    Weight.LAST_WORDS: (Shape(400), Shape(1_200)),
    Weight.FAILURE: (Shape(180, 180), Shape(400, 500)),
    Weight.AFTER_FAILURE: (Shape(160, 60), Shape(400, 200)),
    Weight.WORK: (Shape(140), Shape(300, 120)),
    Weight.WORDS: (Shape(140), Shape(400)),
    Weight.LOOKING: (Shape(100), Shape(160)),
}
"""The short and the long form of a line of each weight."""


class _Line(Struct):
    """An event whose short form (0), long form (1) or no form (None) is shown. `forms` holds the
    text of each form and its tokens, once they are needed."""

    event: SessionEvent
    weight: Weight
    root: str
    form: int | None = None
    forms: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])

    def as_form(self, form: int) -> tuple[str, int]:
        if form not in self.forms:
            text = _line(self.event, _SHAPES[self.weight][form], self.root)
            self.forms[form] = (text, count(text) + 1)
        return self.forms[form]

    @property
    def tokens(self) -> int:
        return 0 if self.form is None else self.as_form(self.form)[1]


def condensed(events: Sequence[SessionEvent], max_tokens: int = MAX_TOKENS) -> str:
    """The transcript of a session, oldest event first, of at most `max_tokens` (unless a single
    line takes more). Files in the session's first folder are shown relative to it."""
    root = next((f"{event.cwd.rstrip('/')}/" for event in events if event.cwd), "")
    weighed = zip(events, weights(events), strict=True)
    lines = [_Line(event, weight, root) for event, weight in weighed if weight is not None]
    budget, text = max_tokens, ""
    for _ in range(MAX_ATTEMPTS):
        for line in lines:
            line.form = None
        used = _fit(lines, budget, 0)
        _fit(lines, budget - used, 1)
        text = "\n".join(_rendered(lines))
        # The lines for left-out runs are known only now.
        if (excess := count(text) - max_tokens) <= 0:
            break
        budget -= 2 * excess
    return text


def is_worth_reading(events: Sequence[SessionEvent]) -> bool:
    """Whether a session is long enough to have taught something."""
    kinds = Counter(event.kind for event in events)
    said = sum(len(e.text) for e in events if e.kind in (Kind.PROMPT, Kind.SAY))
    return kinds[Kind.PROMPT] > 0 and (kinds[Kind.TOOL] >= MIN_CALLS or said >= MIN_SAID_CHARS)


def line_of(event: SessionEvent) -> str:
    """An event on one line, as a person would quote it."""
    return _line(event, Shape(200, 160), f"{event.cwd.rstrip('/')}/" if event.cwd else "")


def weights(events: Sequence[SessionEvent]) -> Iterator[Weight | None]:
    """The weight of each event; None for one that says nothing."""
    watched = 0
    for place, event in enumerate(events):
        if event.kind is Kind.PROMPT:
            yield Weight.PROMPT
        elif event.kind is Kind.SAY:
            yield Weight.LAST_WORDS if _ends_turn(events, place) else Weight.WORDS
        elif event.kind is Kind.TOOL and is_failure(event):
            watched = AFTER_FAILURE
            yield Weight.FAILURE
        elif event.kind is Kind.TOOL:
            is_work = event.tool == "Bash" or event.tool in WRITERS | DELEGATES or is_empty(event)
            yield _weight(is_work=is_work, watched=watched > 0)
            watched -= is_work and watched > 0
        else:
            yield None


def is_failure(event: SessionEvent) -> bool:
    """Whether a call failed, as far as its result shows."""
    return event.failed or (event.tool == "Bash" and not succeeded(event))


def is_empty(event: SessionEvent) -> bool:
    """Whether a search found nothing."""
    return event.tool in SEARCHES and len(event.out.strip()) < MAX_EMPTY_CHARS


def _weight(*, is_work: bool, watched: bool) -> Weight:
    if not is_work:
        return Weight.LOOKING
    return Weight.AFTER_FAILURE if watched else Weight.WORK


def _ends_turn(events: Sequence[SessionEvent], place: int) -> bool:
    for event in events[place + 1 :]:
        if event.kind in (Kind.PROMPT, Kind.END):
            return True
        if event.kind in (Kind.SAY, Kind.TOOL):
            return False
    return True


def _fit(lines: Sequence[_Line], budget: int, form: int) -> int:
    """Give as many lines as possible this form, in the order of their weight. Only lines that are
    already shown get the long form. Returns the tokens that were spent."""
    used = 0
    for _, alike in groupby(sorted(lines, key=lambda line: line.weight), lambda line: line.weight):
        for line in _from_both_ends(list(alike)):
            if form and line.form is None:
                continue
            more = line.as_form(form)[1] - line.tokens
            if used + more <= budget:
                used += more
                line.form = form
    return used


def _from_both_ends(lines: list[_Line]) -> Iterator[_Line]:
    """The lines from the end and from the beginning in turn: how a session ended tells most."""
    first, last = 0, len(lines) - 1
    while first <= last:
        yield lines[last]
        if first < last:
            yield lines[first]
        first, last = first + 1, last - 1


def _rendered(lines: Sequence[_Line]) -> Iterator[str]:
    for is_shown, run in groupby(lines, lambda line: line.form is not None):
        if is_shown:
            yield from (line.as_form(line.form or 0)[0] for line in run)
            continue
        names = Counter(one_line(line.event.tool, 40) or str(line.event.kind) for line in run)
        listed = ", ".join(f"{name} ×{number}" for name, number in names.most_common(3))
        yield f"[… {names.total()} left out: {listed}]" if names.total() > 3 else "[…]"


def _line(event: SessionEvent, shape: Shape, root: str) -> str:
    if event.kind is Kind.PROMPT:
        return f"[{event.i}] USER: {one_line(event.text, shape.text)}"
    if event.kind is Kind.SAY:
        return f"[{event.i}] AGENT: {one_line(event.text, shape.text)}"
    call = f"{one_line(event.tool, 60)} {_arguments(event.args, shape.text, root)}"
    return f"[{event.i}] {call}{_outcome(event, shape.out)}"


def _outcome(event: SessionEvent, limit: int) -> str:
    if is_failure(event):
        label = "FAILED" if event.failed else "PROBABLY FAILED"
        return f" => {label}: {one_line(event.out, limit)}" if limit else f" => {label}"
    if is_empty(event):
        return " => EMPTY"
    if limit and (event.tool == "Bash" or event.tool in DELEGATES) and event.out.strip():
        return f" => {one_line(event.out, limit)}"
    return ""


def _arguments(args: Mapping[str, Any], limit: int, root: str) -> str:
    shown = [name for name in _SHOWN_ARGS if isinstance(args.get(name), str) and args[name].strip()]
    if not shown:
        shown = [name for name, value in args.items() if isinstance(value, str)]
    texts = []
    for name in shown[:3]:
        text = one_line(args[name].replace(root, "") if root else args[name], limit)
        texts.append(text if name == "command" else f"{one_line(name, 40)}={text}")
        limit -= len(text)
        if limit < MAX_EMPTY_CHARS:
            break
    return " ".join(texts)


def one_line(text: str, limit: int) -> str:
    """A text on one line, without secrets and invisible characters: two thirds of the limit from
    its beginning and the rest from its end."""
    if len(text) > 2 * MAX_RAW_CHARS:
        text = f"{text[:MAX_RAW_CHARS]}\n…\n{text[-MAX_RAW_CHARS:]}"
    flat = " ".join(redact(visible(text))[0].split())
    if len(flat) <= limit:
        return flat
    head = limit * 2 // 3
    return f"{flat[:head]} … {flat[head + 3 - limit :]}"
