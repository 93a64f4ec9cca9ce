"""An event: a cue, and everything that the decision about it needs to know. Each fact is derived
once: the project, the command, the file, the triggers, the options, and whether its tool writes.

An agent may work in a project that it reached through a link, or name a file through one. Memories
and rules know the real path, so an event has the real paths.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from upwell.episodes.events import Kind as StepKind
from upwell.episodes.events import SessionEvent
from upwell.episodes.triggers import triggers_of
from upwell.ground.names import first_match
from upwell.ground.project import link_into, project_of, real_folder
from upwell.ground.types.cue import AUTOMATIC_DOORS, Cue, ToolAnswer
from upwell.surface.options import PipelineOptions
from upwell.surface.query import (
    COMMAND_KEYS,
    CONTEXT_QUERY,
    OTHER_PATH_KEYS,
    PATH_KEYS,
    anchors_of,
)

MAX_COMMAND_CHARS = 1_500
MIN_WORDS_ASKED = 3


class Event(Cue, frozen=True, kw_only=True, dict=True):
    """A cue with its real paths, its time, and the `options` for its tool and context window."""

    options: PipelineOptions

    @classmethod
    def of(cls, cue: Cue, options: PipelineOptions, now: float) -> "Event":
        """The event that a cue tells of. `now` is its time if the cue has none."""
        facts = structs.asdict(with_real_paths(cue))
        facts["at"] = now if cue.at is None else cue.at
        return cls(**facts, options=options.for_cue(cue))

    @property
    def is_unasked(self) -> bool:
        """True if nobody asked for memories."""
        return self.door in AUTOMATIC_DOORS

    @cached_property
    def project(self) -> str | None:
        return project_of(self.cwd)

    @cached_property
    def command(self) -> str:
        """The command that the call runs, or ""."""
        return command_of(self.args)

    @cached_property
    def file(self) -> str:
        """The one file that the call is about, or ""."""
        return file_of(self)

    @cached_property
    def names(self) -> Sequence[str]:
        """The identifiers in the arguments of the call."""
        return anchors_of(self.tool or "", self.args)[1]

    @cached_property
    def step(self) -> SessionEvent:
        """The event as a step of a session, like those read from past sessions."""
        return as_session_event(self)

    @cached_property
    def triggers(self) -> tuple[str, ...]:
        return triggers_in(self)


MAX_TEXTS = 64
MAX_PATHS = 16
MAX_CHARS = 20_000
"""Links are looked for in the first texts of a cue, in at most this many absolute paths outside the
project, and in the beginning of each text."""
_ABSOLUTE = re.compile(r"(?<![\w.~/@-])(?:file://)?(/(?!/)[^\s'\"`:;,()<>|&=]++)")


def with_real_paths(cue: Cue) -> Cue:
    """The cue with its folder, and the paths into its project, as the project's root names them."""
    project = project_of(cue.cwd)
    if cue.cwd is None or project is None:
        return cue
    cwd = real_folder(cue.cwd)
    texts = (cue.cwd, *islice(_strings(cue.args.values()), MAX_TEXTS), cue.text)
    outside = (path for path in _paths(texts) if not path.startswith(f"{project}/"))
    found = (link_into(project, path) for path in islice(outside, MAX_PATHS))
    links = dict(link for link in found if link)
    if not links:
        return cue if cwd == cue.cwd else replace(cue, cwd=cwd)
    longest = sorted(map(re.escape, links), key=len, reverse=True)
    named = re.compile(rf"(?<![\w.~@-])(?:{'|'.join(longest)})(?![\w-]|\.\w)")

    def real(text: str) -> str:
        return named.sub(lambda match: links[match.group()], text)

    return replace(
        cue,
        cwd=cwd,
        text=real(cue.text),
        args={key: _mapped(value, real) for key, value in cue.args.items()},
        answer=replace(cue.answer, text=real(cue.answer.text)) if cue.answer else None,
    )


def _strings(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from (item for item in value if isinstance(item, str))


def _paths(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        if text[:1] == "/":
            # A path may contain spaces.
            yield text.partition("\n")[0]
        if "/" in text:
            yield from (match[1] for match in _ABSOLUTE.finditer(text[:MAX_CHARS]))


def _mapped(value: Any, real: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return real(value)
    if isinstance(value, list):
        return [_mapped(item, real) for item in value]
    if isinstance(value, Mapping):
        return {key: _mapped(item, real) for key, item in value.items()}
    return value


_NOTHING = re.compile(
    r"\s*+(?:no (?:matches|files|results)(?: were)?(?: found)?|found 0 (?:files|matches|results)|"
    r"0 (?:matches|results))?+[.\s]*+",
    re.IGNORECASE,
)
_ABSENT = re.compile(
    r"no such file or directory|file does not exist|could not find file|enoent", re.IGNORECASE
)
_USUAL: Mapping[str, str] = {
    **dict.fromkeys(("read_file", "read_text_file", "get_file_contents"), "Read"),
    **dict.fromkeys(("run_command", "execute_command", "shell", "bash", "run_shell"), "Bash"),
    **dict.fromkeys(("search_code", "grep", "grep_search"), "Grep"),
}
"""Common MCP tool names, each mapped to the built-in agent tool that does the same."""
_HEAD_CHARS = 400
_READERS = frozenset({"cat", "head", "tail", "sed", "less", "more", "bat", "nl", "grep", "rg"})
_SEARCH_KEYS = frozenset({"pattern", "query", "regex", "q", "glob"})
_QUESTION_KEYS = frozenset({"question", "query", "q", "search", "prompt", "topic", "message"})


def triggers_in(cue: Cue) -> tuple[str, ...]:
    """The triggers that a cue meets. An explicit request meets none. Nor does a call without a
    result, because a missing result looks like an empty search result."""
    is_unanswered = cue.tool is not None and cue.answer is None
    if cue.door not in AUTOMATIC_DOORS or is_unanswered:
        return ()
    return triggers_of(as_session_event(cue))


def as_session_event(cue: Cue) -> SessionEvent:
    """The cue as a `SessionEvent`, like those read from past sessions."""
    answer, args = cue.answer, cue.args
    tool = _USUAL.get((cue.tool or "").rpartition("__")[2], cue.tool or "")
    if tool == "Read" and "file_path" not in args and "path" in args:
        args = {**args, "file_path": args["path"]}
    return SessionEvent(
        session=cue.session,
        i=0,
        t=cue.at or 0.0,
        kind=StepKind.PROMPT if cue.tool is None else StepKind.TOOL,
        text=cue.text,
        tool=tool,
        args=args,
        out=answer.text if answer else "",
        failed=bool(answer and answer.failed),
        cwd=cue.cwd,
    )


def asks_in_words(args: Mapping[str, object]) -> bool:
    """True if the arguments contain a question, or a query of several plain words."""
    if isinstance(args.get(CONTEXT_QUERY), str):
        return True
    ignored = COMMAND_KEYS | frozenset(PATH_KEYS) | frozenset(OTHER_PATH_KEYS)
    names = _QUESTION_KEYS & args.keys() - ignored
    return any(_is_plain(text) for name in names if isinstance(text := args[name], str))


def file_of(cue: Cue) -> str:
    """The one file that a call is about, or "". A command that reads one file also counts, because
    some agents read files that way."""
    for name in PATH_KEYS:
        value = cue.args.get(name)
        if isinstance(value, str) and value:
            return value
    program, *words = command_of(cue.args)[:MAX_COMMAND_CHARS].split() or [""]
    paths = [word.strip("'\"") for word in words if "/" in word or "." in word]
    return paths[0] if program in _READERS and len(paths) == 1 else ""


def file_sought(cue: Cue) -> str:
    """The name of the file that a call did not find; "" if it searched for something else."""
    if searches(cue.args):
        return ""
    return file_of(cue).replace("\\", "/").rpartition("/")[2]


def _is_plain(text: str) -> bool:
    """True if `text` is a question or a phrase, rather than a pattern, a path or code."""
    words = text.split()
    plain = sum(word.strip("?.,!'\"").isalpha() for word in words)
    return len(words) >= MIN_WORDS_ASKED and plain >= 0.7 * len(words)


def command_of(args: Mapping[str, object]) -> str:
    """The command that a call runs, or ""."""
    return next((str(args[name]) for name in COMMAND_KEYS if args.get(name)), "")


def found_nothing(args: Mapping[str, object], answer: ToolAnswer) -> bool:
    """True if a result reports that a search found nothing or that a file does not exist."""
    if searches(args) and len(answer.text) < _HEAD_CHARS and _NOTHING.fullmatch(answer.text):
        return True
    return bool(_ABSENT.search(answer.text[:_HEAD_CHARS])) and not command_of(args)


def searches(args: Mapping[str, object]) -> bool:
    """True if the arguments contain something to search for."""
    return not _SEARCH_KEYS.isdisjoint(args) and any(args.get(name) for name in _SEARCH_KEYS)


# Tools that change something, by their annotations or, without annotations, by their names (seed
# 000, tests/NAMES.md). A name says what the tool does, and to what: `create_issue`,
# `container_run`, `browser_type`. If a tool that only reads counts as a writer, no memories surface
# for it, and a hook does not shorten its results. If a tool that writes counts as a reader,
# memories surface for it, but only after the change. To avoid both mistakes, an ambiguous verb such
# as `post` or `select` counts only if its position or the other words settle its meaning.
WRITE_PATTERNS = tuple(
    f"*{verb}*"
    for verb in (
        "write edit create delete remove update push send move rename insert "
        "append commit merge upload patch"
    ).split()
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WRITE_VERBS = _words(
    """
    abort accept ack acknowledge activate add adjust alter apply approve archive assign attach ban
    cancel change checkout cherry chmod chown claim clear click close comment copy cordon cp
    deactivate decline decrement demote deploy deregister destroy detach disable dismiss dispatch
    draft drain drop duplicate enable enroll erase escalate evict expire fill finalize finish flush
    follow forget fork forward fulfill grant impersonate increment ingest init install invite join
    kick kill launch leave lock login logout make manage mark migrate migration mkdir mkdirs modify
    mount mute mutate mv onboard overwrite park pause pay pin post prune promote provision publish
    purchase purge put react reassign rebase reboot recreate refund register reject release reload
    remember reopen reorder replace reply rerun reschedule reset restart restore resume retry revert
    revoke rm rmdir rollback rollout rotate save scale schedule seed set share shutdown silence skip
    snooze stash stop store submit subscribe suspend swap sync taint terminate toggle touch transfer
    transition trash trigger truncate unarchive unassign unban uncordon undo unfollow uninstall
    unlink unlock unmount unmute unpause unpin unpublish unregister unset unshare unstar unsubscribe
    unzip upgrade upsert vote wipe
    """
)
"""Verbs that mean a change in many APIs. They count as the first, second or last word of a tool's
name. The patterns above count anywhere in the name. Usually, neither counts if one of the first two
words is a verb for reading (`get_commit`)."""
_WRITE_OPENINGS = _words("book build buy complete import link new order play star start tag turn")
"""Verbs that are also common nouns or adjectives. They count only as the first word of a tool's
name."""
_COMMANDS_OF_STRUCTURES = re.compile(
    r"[hjlmsxz]?(?:set|add|del|rem|pop|push|trim|incr|decr)(?:nx|ex|xx|by|range)?", re.ASCII
)
"""Commands on a key-value store's structures (`sadd`, `hdel`, `zrem`, `setex`)."""

_INPUTS = _words(
    """
    dblclick drag fill focus handle hover input interact paste pinch press resize scroll select
    swipe tap type
    """
)
_SURFACES = _words(
    """
    android browser computer desktop device element emulator ios keyboard mobile mouse page
    playwright process puppeteer screen selenium simulator tab terminal webdriver window
    """
)
_INPUT_OBJECTS = _words("dialog key keys option options text")
"""A verb in `_INPUTS`, such as `type` or `select`, may be an action at a keyboard or a screen. It
counts only if the name of the tool or its server also contains a word in `_SURFACES` or
`_INPUT_OBJECTS`. Otherwise, it is taken to describe what is read."""

_RUNS = _words("call exec execute invoke run")
_RUN_TO_READ = _words(
    """
    analysis audit bash benchmark benchmarks cell check checks cmd code command commands coverage
    diagnostics eval evaluation expression graph hierarchy inspection javascript js lint linter
    notebook process prompt python queries query report scan script scripts search select sh shell
    snippet sql task tasks terminal test tests typecheck
    """
)
"""A tool that runs one of these counts as a reader. Like a shell, it may change something, but a
memory often helps with its result. A tool that runs anything else (`run_workflow`) counts as a
writer."""

_TRACKED = _words(
    """
    access alert alerts approval case change changes comment comments conflict conflicts
    conversation discussion discussions incident incidents issue issues item items review reviewer
    reviewers reviews thread threads ticket tickets
    """
)
_TRACKERS = _words("request resolve")
"""Verbs whose meaning depends on their object: `resolve_incident` and `request_review` change
something that is tracked, but `resolve_symbol` only reads."""

_READ_VERBS = _words(
    """
    analyze check compare count decompile describe diff disassemble download explain export fetch
    find get has info inspect is list lookup preview query read retrieve search show status tail
    validate verify view wait watch
    """
)
_NOUNS = _words(
    """
    book build claim import leave link order play post release rollout set star start store tag vote
    """
)
"""First words that count as nouns if the name ends with a word for something to read: `post_count`.
"""
_WHAT_IS_READ = _READ_VERBS | _words(
    """
    artifacts attempts details errors graph history log logs metrics notes output result results
    state stats summary usage
    """
)

_NAME_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def writes(cue: Cue) -> str:
    """The evidence that the cue's tool has side effects; "" if there is none.

    If the annotation `readOnlyHint` is present, it decides. Otherwise, `destructiveHint: true` is
    evidence. If the tool has neither, its name decides.
    """
    hints = cue.annotations
    if hints.get("readOnlyHint") is True:
        return ""
    if hints.get("readOnlyHint") is False:
        return "readOnlyHint: false"
    if hints.get("destructiveHint") is True:
        return "destructiveHint: true"
    server, _, name = (cue.tool or "").rpartition("__")
    words = _name_words(name)
    return _named_as_write(name.lower(), words, _name_words(server)) if words else ""


def _named_as_write(name: str, words: Sequence[str], server: Sequence[str]) -> str:
    begins, ends = words[0], words[-1]
    is_verb = begins in _WRITE_VERBS - _NOUNS or bool(first_match(begins, WRITE_PATTERNS))
    if len(words) > 1 and ends in _WHAT_IS_READ and not is_verb:
        return ""
    if begins not in _WRITE_VERBS and not is_verb and not _READ_VERBS.isdisjoint(words[:2]):
        return ""
    if begins in _WRITE_OPENINGS:
        return f"its name begins with {begins}"
    if verb := next((word for word in words[:2] if word in _WRITE_VERBS), ""):
        return f"its name begins with {verb}"
    if verb := _verb_in_company(words, server):
        return f"its name contains {verb}"
    if len(words) > 2 and ends in _WRITE_VERBS:
        return f"its name ends with {ends}"
    pattern = first_match(name, WRITE_PATTERNS)
    return f"its name matches {pattern}" if pattern else ""


def _verb_in_company(words: Sequence[str], server: Sequence[str]) -> str:
    """A verb that means a change, judging by the other words in the names of the tool and its
    server; "" if there is none. Only the first two words and the last word can be that verb."""
    company = {*words, *server}
    for verb in dict.fromkeys((*words[:2], words[-1])):
        others = company - {verb}
        if _COMMANDS_OF_STRUCTURES.fullmatch(verb):
            return verb
        if verb in _INPUTS and not others.isdisjoint(_SURFACES | _INPUT_OBJECTS):
            return verb
        if verb in _TRACKERS and not others.isdisjoint(_TRACKED):
            return verb
        if verb in _RUNS and len(words) > 1 and others.isdisjoint(_RUN_TO_READ | _WHAT_IS_READ):
            return verb
        if verb == "pull" and others.isdisjoint({"request", "requests"}):
            return verb
    return ""


def _name_words(name: str) -> list[str]:
    return [word.lower() for word in _NAME_WORD.findall(name)]
