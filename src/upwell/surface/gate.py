"""May it speak? The gates that need no search, in order (seed 000). Each says why not."""

from collections import deque
from dataclasses import dataclass

from upwell.ground.limits import Clock, RateLimit
from upwell.ground.names import first_match
from upwell.ground.text.words import jaccard, terms
from upwell.ground.types import (
    AUTOMATIC_DOORS,
    Cue,
    Door,
    Intent,
    Query,
    SkipReason,
)
from upwell.surface.context import says_little, usable
from upwell.surface.messages import messages_of
from upwell.surface.options import InjectionMode, Options

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
_READ_VERBS = ("get", "list", "read", "search", "find", "show", "fetch", "view", "describe")
_SESSIONS_KEPT = 500


@dataclass(frozen=True, slots=True)
class Refusal:
    """A gate that stayed shut, and a word on why."""

    reason: SkipReason
    detail: str = ""


@dataclass(slots=True)
class _Session:
    """What the gates remember of a session."""

    rate: RateLimit
    recent: deque[tuple[float, frozenset[str]]]


class Gate:
    """Everything that is decided before anything is searched."""

    def __init__(self, options: Options, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._sessions: dict[str, _Session] = {}

    def refusal(self, cue: Cue, query: Query | None, intent: Intent) -> Refusal | None:
        """The first gate that is shut for this cue, or None when all are open."""
        return (
            self._unfit_cue(cue)
            or self._unfit_tool(cue)
            or self._unfit_query(query)
            or self._unfit_intent(cue, intent)
            or self._too_often(cue, query)
        )

    def spoke(self, cue: Cue, query: Query) -> None:
        """Remember that something was said, for cooldown and rate."""
        session = self._session(cue.session)
        session.rate.take()
        session.recent.append((self._clock.monotonic(), _terms_of(query)))

    def unspoke(self, cue: Cue, query: Query) -> None:
        """What was said did not reach the agent: it counts for neither."""
        session = self._session(cue.session)
        session.rate.give_back()
        asked = _terms_of(query)
        kept = [entry for entry in session.recent if entry[1] != asked]
        session.recent.clear()
        session.recent.extend(kept)

    def _unfit_cue(self, cue: Cue) -> Refusal | None:
        surface = self._options.beside(cue).surface
        if not surface.enabled:
            return Refusal(SkipReason.DISABLED, "surface.enabled = false")
        messages = messages_of(self._options.lexicon)
        if cue.tool is None and (why := messages.not_applicable(cue.text)):
            return Refusal(SkipReason.NOT_APPLICABLE, why)
        if cue.progressive and surface.injection_mode is InjectionMode.PREPEND:
            return Refusal(SkipReason.PROGRESSIVE, "prepend would shift the offsets")
        known = cue.reply_chars is not None and cue.door == Door.TOOL
        if known and (cue.reply_chars or 0) < surface.min_response_chars:
            return Refusal(SkipReason.RESPONSE_TOO_SHORT, f"{cue.reply_chars} characters")
        return None

    def _unfit_tool(self, cue: Cue) -> Refusal | None:
        if cue.tool is None:
            return None
        if first_match(cue.tool, self._options.surface.exclude_tools):
            return Refusal(SkipReason.EXCLUDED_TOOL, cue.tool)
        if why := writes(cue):
            return Refusal(SkipReason.WRITE_TOOL, why)
        return None

    def _unfit_query(self, query: Query | None) -> Refusal | None:
        if query is None:
            return Refusal(SkipReason.NO_QUERY)
        joined = query.paths or query.symbols
        if not joined and not any(usable(text) for text in query.texts):
            return Refusal(SkipReason.UNSUITABLE_QUERY, "no word that says something")
        if not joined and says_little(query, self._options.lexicon):
            return Refusal(SkipReason.UNSUITABLE_QUERY, "only the tool's name is known")
        return None

    def _unfit_intent(self, cue: Cue, intent: Intent) -> Refusal | None:
        options = self._options.intent
        if options.required and cue.tool is None and intent.confidence < options.min_confidence:
            return Refusal(SkipReason.LOW_INTENT, f"{intent.confidence:.2f}")
        return None

    def _too_often(self, cue: Cue, query: Query | None) -> Refusal | None:
        if cue.door not in AUTOMATIC_DOORS or query is None:
            return None
        surface = self._options.surface
        session = self._session(cue.session)
        horizon = self._clock.monotonic() - surface.cooldown_seconds
        asked = _terms_of(query)
        for at, before in session.recent:
            if at >= horizon and jaccard(asked, before) > surface.cooldown_similarity:
                return Refusal(
                    SkipReason.COOLDOWN, f"the same within {surface.cooldown_seconds:g} s"
                )
        if not session.rate.allow():
            return Refusal(SkipReason.RATE, f"{surface.rate_per_minute} a minute")
        return None

    def _session(self, name: str) -> _Session:
        session = self._sessions.pop(name, None) or _Session(
            RateLimit(self._options.surface.rate_per_minute, self._clock), deque(maxlen=50)
        )
        self._sessions[name] = session
        if len(self._sessions) > _SESSIONS_KEPT:
            self._sessions.pop(next(iter(self._sessions)))
        return session


def writes(cue: Cue) -> str:
    """Why the cue's tool is taken to have side effects, or "" when it is not.

    `readOnlyHint: false` and `destructiveHint: true` say so; a missing annotation says nothing,
    and `readOnlyHint: true` outweighs the name.
    """
    hints, name = cue.annotations, (cue.tool or "").rpartition("__")[2].lower()
    if hints.get("readOnlyHint") is True:
        return ""
    if hints.get("readOnlyHint") is False:
        return "readOnlyHint: false"
    if hints.get("destructiveHint") is True:
        return "destructiveHint: true"
    if name.split("_")[0] in _READ_VERBS:
        return ""
    pattern = first_match(name, WRITE_PATTERNS)
    return f"its name matches {pattern}" if pattern else ""


def _terms_of(query: Query) -> frozenset[str]:
    found = {term for text in query.texts for term in terms(text)}
    return frozenset(found | set(query.paths) | set(query.symbols))
