"""Condenses a session to a transcript that a language model can read in one call, and tells what
the session shows about the commands and names in a text: who ran, typed or wrote them, and how that
went.

In the transcript, each event becomes one line, `[i] WHO: …`. Prompts, the agent's last words of
each turn, failures and what followed them matter most: they keep their place and their length when
the budget is small. A run of events that is left out becomes one line,
`[… 12 calls: Read ×9, Bash ×3]`.

Sessions are not trusted: every piece of text is put on one line, so that no content of an event can
imitate the line of another one. Secrets are masked before a text is shortened.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import groupby
from typing import Any

from msgspec import Struct, field

from upwell.episodes.events import WRITERS, Kind, SessionEvent
from upwell.episodes.failures import is_refused, real_steps, succeeded
from upwell.episodes.signatures import CommandStep, command_of, steps_of
from upwell.ground.secrets.redact import redact
from upwell.ground.text.safe import visible
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
            work = Weight.AFTER_FAILURE if watched else Weight.WORK
            yield work if is_work else Weight.LOOKING
            watched -= is_work and watched > 0
        else:
            yield None


def is_failure(event: SessionEvent) -> bool:
    """Whether a call failed, as far as its result shows."""
    return event.failed or (event.tool == "Bash" and not succeeded(event))


def is_empty(event: SessionEvent) -> bool:
    """Whether a search found nothing."""
    return event.tool in SEARCHES and len(event.out.strip()) < MAX_EMPTY_CHARS


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
    call = f"[{event.i}] {one_line(event.tool, 60)} {_arguments(event.args, shape.text, root)}"
    out = one_line(event.out, shape.out) if shape.out else ""
    if is_failure(event):
        label = "FAILED" if event.failed else "PROBABLY FAILED"
        return f"{call} => {label}: {out}" if shape.out else f"{call} => {label}"
    if is_empty(event):
        return f"{call} => EMPTY"
    shows_result = event.tool == "Bash" or event.tool in DELEGATES
    return f"{call} => {out}" if shows_result and shape.out and event.out.strip() else call


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


QUOTED = re.compile(r"`([^`\n]{1,300})`")
_PROGRAM = re.compile(r"[\w.@/~+-]{1,200}")
_CODE = frozenset(
    """
    and as async await break case catch class const continue def default delete do elif else enum
    except export extends finally fn for from func function global if impl import in interface is
    lambda let match mod mut new not null or pass pub raise return self static struct super switch
    this throw trait try type unsafe use var void while with yield select insert update create alter
    drop where error warning fatal no cannot unable failed expected
    """.split()
)
"""First words of code and of messages, which look like programs."""
_PROGRAMS = frozenset(
    """
    act ansible apt apt-get aws awk az bash bazel brew bun bunx bundle cargo cat cd chmod chown
    cmake composer conda corepack cp curl dart deno django-admin docker docker-compose dotnet emacs
    find flutter fly gcc gcloud gh git go gradle gradlew grep helm heroku java javac jest just kill
    kubectl ln ls make mix mkdir mongosh mvn mvnw mysql nc netlify netstat nix node npm npx nvm
    openssl php pip pip3 pipenv pkill pnpm podman poetry powershell pre-commit prisma psql pulumi
    pwsh py pytest python python3 pyenv rails rake redis-cli rm rsync ruby ruff rustup scp sed sh
    sls source sqlite3 ssh sudo supabase swift systemctl tar taskkill terraform tox tsc tsx uv uvx
    vercel vi vim vite vitest wget wrangler xargs xcodebuild yarn zsh
    """.split()
)
"""Programs whose name alone makes a quotation of several words a command."""
_RUN_VERB = re.compile(
    r"(?i)\b(?:runs?|running|ran|execut\w{1,4}|invok\w{1,4}|launch\w{0,3}|install|type|ejecut\w{1,4}|"
    r"corr[ea]r?|ausf[uü]hren|lan(?:ce|cer|ça)|exécut\w{1,4}|rode|rodar)\s{1,3}(?:the\s|el\s|la\s)?$"
)
_PLACEHOLDER = re.compile(r"[<>{}$…*%]|\.\.\.|^-?\d+$|^[A-Z][A-Z0-9_-]*$|^[A-Za-z]+_?(?:NAME|ID)$")
"""What stands for any word in a command."""
_ANGLED = re.compile(r"<[\w .|:-]{1,40}>")
_NAME = re.compile(r"[\w-]{3,}")
_BARE = re.compile(
    r"(?i)\b(?:run|execute|invoke|type|use|ejecuta[r]?|usa[r]?)\s{1,3}"
    r"(?!`|(?:the|an?|this|it|on|in|with|for|as|el|la)\b)([\w./@+-]{2,80})"
    r"((?:\s{1,3}(?!and\b|or\b|to\b|for\b|in\b|before\b|after\b)[^\s`.;,]{1,120}){0,8})"
)
"""A command that is not in backticks."""


class Standing(IntEnum):
    """How a command stands in a session, the best first."""

    SUCCEEDED = 0
    TYPED = 1
    """By the user, in a prompt."""
    FAILED = 2
    WRITTEN = 3
    """By the agent, in a file or in its words, but not run."""
    SHOWN = 4
    """Only by the result of a tool, which anyone may have written."""
    ABSENT = 5


class _Run(Struct, frozen=True):
    text: str
    steps: Sequence[CommandStep]
    failed: bool


class Witness(Struct):
    """A session, prepared for questions about what it shows. `trusted` is further text, of lessons
    that were checked before: their commands count as typed."""

    events: Sequence[SessionEvent]
    trusted: str = ""
    runs: list[_Run] = field(default_factory=list[_Run])
    typed: str = ""
    changed: str = ""
    said: str = ""
    shown: str = ""

    @classmethod
    def of(cls, events: Sequence[SessionEvent], trusted: str = "") -> "Witness":
        witness = cls(events, trusted)
        for event in events:
            command = command_of(event)
            if command and not is_refused(event):
                run = _Run(_flat([command]), steps_of(command), is_failure(event))
                witness.runs.append(run)
        witness.typed = _flat([e.text for e in events if e.is_users] + [trusted])
        witness.said = _flat(
            [e.text for e in events if e.kind in (Kind.SAY, Kind.PROMPT) and not e.is_users]
        )
        witness.changed = _flat(
            [text for e in events if not command_of(e) for text in _texts(e.args)]
        )
        witness.shown = _flat([e.out for e in events])
        return witness

    @property
    def programs(self) -> set[str]:
        """The names of the programs that the agent ran."""
        return {step.program for run in self.runs for step in run.steps}

    def standing(self, command: str) -> Standing:
        """How a command stands in the session. Placeholders (`<branch>`, `…`) match anything."""
        command = _ANGLED.sub("…", command)
        matching = [run for run in self.runs if _ran_in(command, run)]
        if any(not run.failed for run in matching):
            return Standing.SUCCEEDED
        if _stands_in(command, self.typed):
            return Standing.TYPED
        if matching:
            return Standing.FAILED
        if _stands_in(command, self.changed):
            return Standing.WRITTEN
        if _stands_in(command, self.shown):
            return Standing.SHOWN
        return Standing.WRITTEN if _stands_in(command, self.said) else Standing.ABSENT

    def names(self, quotation: str) -> bool:
        """Whether the session contains every name in a quotation."""
        runs = (run.text for run in self.runs)
        everywhere = (self.typed, self.said, self.changed, self.shown, *runs)
        parts = [
            part.lower()
            for part in _NAME.findall(_ANGLED.sub(" ", quotation))
            if not _PLACEHOLDER.search(part)
        ]
        return all(any(part.removesuffix("s") in text for text in everywhere) for part in parts)

    def was_tried(self, evidence: Sequence[SessionEvent]) -> bool:
        """Whether the user said it, or the agent ran something successfully after the first of
        these events."""
        if any(event.is_users for event in evidence):
            return True
        first = min(event.i for event in evidence)
        later = [event for event in self.events if event.i >= first and command_of(event)]
        return any(not is_failure(event) for event in later)


def commands_in(text: str, programs: set[str]) -> Iterator[str]:
    """The commands that a text mentions: in backticks, or after "run" and the like. `programs` were
    run in the session."""
    for match in QUOTED.finditer(text):
        if _is_command(match[1].strip(), text[: match.start()], programs):
            yield match[1].strip()
    for match in _BARE.finditer(QUOTED.sub("``", text)):
        program, args = match[1].rpartition("/")[2].lower(), match[2].split()
        is_known = program in _PROGRAMS | programs and program not in _CODE
        if is_known or match[1][0] in "./~" or any(a.startswith("--") or a == "|" for a in args):
            yield f"{match[1]}{match[2]}"


def _is_command(quotation: str, before: str, programs: set[str]) -> bool:
    steps = steps_of(quotation)
    if not steps or not _PROGRAM.fullmatch(steps[0].words[0]):
        return False
    program, args = steps[0].program, steps[0].args
    if program.lower() in _CODE or steps[0].words[0].endswith((":", ",", ";", "(")):
        return False
    if _RUN_VERB.search(before[-40:]):
        return bool(args) or program in _PROGRAMS | programs or "/" in steps[0].words[0]
    return bool(args) and (
        program in _PROGRAMS | programs or any(arg.startswith("-") for arg in args)
    )


def _ran_in(command: str, run: _Run) -> bool:
    if (flat := _flat([command])) in run.text and _PLACEHOLDER.search(flat) is None:
        return True
    wanted = real_steps(command) or steps_of(command)
    return bool(wanted) and all(any(_is_run_by(w, step) for step in run.steps) for w in wanted)


def _is_run_by(wanted: CommandStep, step: CommandStep) -> bool:
    if wanted.program != step.program:
        return False
    words = {word.lower() for word in step.words}
    literal = [word.lower() for word in wanted.args if not _PLACEHOLDER.search(word)]
    return all(any(_names(word, other) for other in words) for word in literal)


def _names(word: str, other: str) -> bool:
    """Whether a word of a lesson's command is a word that was run, or a part of its path."""
    bare = word.removeprefix("./").strip("/")
    if not bare or word == other:
        return word == other
    return other.endswith(f"/{bare}") or other.startswith((f"{bare}/", f"{word}="))


def _stands_in(command: str, text: str) -> bool:
    """Whether the words of a command stand in a text, in this order and close to each other."""
    words = [word for word in _flat([command]).split() if not _PLACEHOLDER.search(word)]
    if not words:
        return False
    place = _place(words[0], text, 0, len(text))
    for _ in range(200):
        if place < 0:
            return False
        after = place
        for word in words[1:]:
            after = _place(word, text, after + 1, after + len(word) + 120) if after >= 0 else -1
        if after >= 0:
            return True
        place = _place(words[0], text, place + 1, len(text))
    return False


def _place(word: str, text: str, start: int, end: int) -> int:
    """The place at which a whole word stands in a text; -1 if it does not."""
    place = text.find(word, start, end)
    while place >= 0:
        behind = place + len(word)
        around = text[max(0, place - 1) : place] + text[behind : behind + 1]
        if not any(char.isalnum() or char in "_-" for char in around):
            return place
        place = text.find(word, place + 1, end)
    return -1


def _flat(texts: Sequence[str]) -> str:
    return " ".join(" ".join(texts).lower().replace('"', " ").replace("'", " ").split())


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)
