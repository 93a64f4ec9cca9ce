"""Merges streams of events by time. A stream is opened only when its first event is due."""

import heapq
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from upwell.episodes.events import SessionEvent


class EventStream(Struct, frozen=True):
    """A stream of events in chronological order. `begins` is the time of the first event, in
    seconds since the epoch."""

    begins: float
    open: Callable[[], Iterator[SessionEvent]]


def merged(streams: Iterable[EventStream]) -> Iterator[SessionEvent]:
    """All events in chronological order. Events at the same time are in the order of their
    streams."""
    numbered = enumerate(streams)
    unopened = sorted(numbered, key=lambda pair: (pair[1].begins, pair[0]), reverse=True)
    running: list[tuple[float, int, SessionEvent, Iterator[SessionEvent]]] = []
    while unopened or running:
        while unopened and (not running or unopened[-1][1].begins <= running[0][0]):
            number, stream = unopened.pop()
            _push_next(running, number, stream.open())
        if running:
            _, number, event, rest = heapq.heappop(running)
            yield event
            _push_next(running, number, rest)


def _push_next(
    running: list[tuple[float, int, SessionEvent, Iterator[SessionEvent]]],
    number: int,
    rest: Iterator[SessionEvent],
) -> None:
    event = next(rest, None)
    if event is not None:
        heapq.heappush(running, (event.t, number, event, rest))
