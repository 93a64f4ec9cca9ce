"""One event, one answer: Cursor, Copilot and VS Code also run Claude Code's hooks, so the same
event may come in twice, under two hosts' names."""

import hashlib
from collections import OrderedDict

from upwell.ground.limits import Clock
from upwell.hook.events import Event, EventKind

TOGETHER_SECONDS = 5.0
"""Hosts run the hooks of one event side by side; the same prompt later is another event."""
SHARING = frozenset({"claude", "cursor", "copilot", "vscode"})
_KEPT = 200


class Once:
    """Remembers what was answered lately, and to which of the hosts that share hooks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answered: OrderedDict[bytes, tuple[str, float]] = OrderedDict()

    def first(self, host: str, event: Event) -> bool:
        """Is it the first time that this event is seen, or the same host's again?"""
        if host not in SHARING:
            return True
        now = self._clock.monotonic()
        key = _fingerprint(event)
        before = self._answered.get(key)
        if before and before[0] != host and now - before[1] < TOGETHER_SECONDS:
            return False
        self._answered[key] = (host, now)
        self._answered.move_to_end(key)
        while len(self._answered) > _KEPT:
            self._answered.popitem(last=False)
        return True


class Heard:
    """Remembers the sessions of which something was heard."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, None] = OrderedDict()

    def missed(self, event: Event) -> bool:
        """Is a tool the first that is heard of this session? Then it began before the daemon was
        there, and no prompt has made up for it."""
        known = event.session in self._sessions
        self._sessions[event.session] = None
        self._sessions.move_to_end(event.session)
        while len(self._sessions) > _KEPT:
            self._sessions.popitem(last=False)
        return event.kind is EventKind.TOOL and not known


def _fingerprint(event: Event) -> bytes:
    """What stays the same whoever tells of it: sessions and names of events do not."""
    said = event.text if event.kind != "session" else ""
    args = {key: value for key, value in event.args.items() if isinstance(value, str | int)}
    parts = [str(event.kind), event.cwd or "", said, sorted(map(str, args.values()))]
    return hashlib.sha256(repr(parts).encode()).digest()
