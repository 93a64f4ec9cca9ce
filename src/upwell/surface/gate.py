"""Decides which cues may start a search: not while upwell is paused, not for greetings, and not for
tools that write.

Detects tools that change something, by their annotations or, without annotations, by their names
(seed 000, tests/NAMES.md).

A name says what the tool does, and to what: `create_issue`, `container_run`, `browser_type`. If a
tool that only reads counts as a writer, no memories surface for it, and a hook does not shorten its
results. If a tool that writes counts as a reader, memories surface for it, but only after the
change. To avoid both mistakes, an ambiguous verb such as `post` or `select` counts only if its
position or the other words settle its meaning.
"""

import re
from collections.abc import Sequence

from upwell.ground.names import first_match
from upwell.ground.types.cue import Cue, Door, Intent, Skip, SkipReason
from upwell.ground.types.memory import Query
from upwell.surface.event import Event
from upwell.surface.options import InjectionMode, PipelineOptions
from upwell.surface.query import messages_of, says_little, usable

WRITE_PATTERNS = (
    "*write*",
    "*edit*",
    "*create*",
    "*delete*",
    "*remove*",
    "*update*",
    "*push*",
    "*send*",
    "*move*",
    "*rename*",
    "*insert*",
    "*append*",
    "*commit*",
    "*merge*",
    "*upload*",
    "*patch*",
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


class Gate:
    """The checks on a cue and its query before the search."""

    def __init__(self, options: PipelineOptions) -> None:
        self._options = options

    def silencing(self, cue: Event, triggers: Sequence[str] = ()) -> Skip | None:
        """The reason to show no memories for this cue, whatever its query; None if there is none.
        `StandingRules` decides separately about standing rules."""
        return self._check_cue(cue, triggers) or self._check_tool(cue)

    def refusal(self, cue: Event, query: Query | None, intent: Intent) -> Skip | None:
        """The reason not to search for this query, or None. Call `silencing()` first."""
        return self._check_query(query) or self._check_intent(cue, intent)

    def _check_cue(self, cue: Event, triggers: Sequence[str]) -> Skip | None:
        if cue.is_unasked and self._options.is_paused(cue.session):
            return Skip(reason=SkipReason.PAUSED)
        surface = cue.options.surface
        if not surface.enabled:
            return Skip(reason=SkipReason.DISABLED, detail="surface.enabled = false")
        messages = messages_of(self._options.lexicon)
        is_bare_message = cue.tool is None and not triggers
        if is_bare_message and (why := messages.not_applicable(cue.text)):
            return Skip(reason=SkipReason.NOT_APPLICABLE, detail=why)
        if cue.progressive and surface.injection_mode is InjectionMode.PREPEND:
            detail = "surface.injection_mode = prepend would shift the offsets"
            return Skip(reason=SkipReason.PROGRESSIVE, detail=detail)
        chars = cue.reply_chars if cue.door == Door.TOOL else None
        if chars is not None and chars < surface.min_response_chars:
            return Skip(reason=SkipReason.RESPONSE_TOO_SHORT, detail=f"{chars} characters")
        return None

    def _check_tool(self, cue: Event) -> Skip | None:
        if cue.tool is None:
            return None
        if why := writes(cue):
            return Skip(reason=SkipReason.WRITE_TOOL, detail=why)
        return None

    def _check_query(self, query: Query | None) -> Skip | None:
        if query is None:
            return Skip(reason=SkipReason.NO_QUERY)
        if query.paths or query.symbols or query.triggers:
            return None
        if not any(usable(text) for text in query.texts):
            return Skip(reason=SkipReason.UNSUITABLE_QUERY, detail="only function words")
        if says_little(query, self._options.lexicon):
            return Skip(reason=SkipReason.UNSUITABLE_QUERY, detail="only the tool's name is known")
        return None

    def _check_intent(self, cue: Event, intent: Intent) -> Skip | None:
        options = self._options.intent
        if options.required and cue.tool is None and intent.confidence < options.min_confidence:
            detail = f"confidence {intent.confidence:.2f} < {options.min_confidence:.2f}"
            return Skip(reason=SkipReason.LOW_INTENT, detail=detail)
        return None
