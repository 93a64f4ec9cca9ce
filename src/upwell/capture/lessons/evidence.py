"""What a session shows about the commands and names in a text: who ran, typed or wrote them, and
how that went."""

import re
from collections.abc import Iterator, Sequence
from enum import IntEnum

from msgspec import Struct, field

from upwell.capture.lessons.condense import is_failure
from upwell.episodes.events import Kind, SessionEvent
from upwell.episodes.failures import is_refused, real_steps
from upwell.episodes.signatures import CommandStep, command_of, steps_of

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
            witness._take(event)
        witness.typed = _flat([e.text for e in events if e.is_users] + [trusted])
        witness.said = _flat(
            [e.text for e in events if e.kind in (Kind.SAY, Kind.PROMPT) and not e.is_users]
        )
        witness.changed = _flat(
            [text for e in events if not command_of(e) for text in _texts(e.args)]
        )
        witness.shown = _flat([e.out for e in events])
        return witness

    def _take(self, event: SessionEvent) -> None:
        command = command_of(event)
        if command and not is_refused(event):
            self.runs.append(_Run(_flat([command]), steps_of(command), is_failure(event)))

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
    wanted = list(real_steps(command) or steps_of(command))
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
        if _follow(words, text, place):
            return True
        place = _place(words[0], text, place + 1, len(text))
    return False


def _follow(words: Sequence[str], text: str, place: int) -> bool:
    for word in words[1:]:
        after = _place(word, text, place + 1, place + len(word) + 120)
        if after < 0:
            return False
        place = after
    return True


def _place(word: str, text: str, start: int, end: int) -> int:
    """The place at which a whole word stands in a text; -1 if it does not."""
    place = text.find(word, start, end)
    while place >= 0:
        behind = place + len(word)
        before, after = text[max(0, place - 1) : place], text[behind : behind + 1]
        if not _is_inner(before) and not _is_inner(after):
            return place
        place = text.find(word, place + 1, end)
    return -1


def _is_inner(char: str) -> bool:
    return char.isalnum() or char in ("_", "-") if char else False


def _flat(texts: Sequence[str]) -> str:
    return " ".join(" ".join(texts).lower().replace('"', " ").replace("'", " ").split())


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
