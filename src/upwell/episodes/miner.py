"""The miner reads the events of one session and concludes episodes from them."""

from collections.abc import Sequence

from upwell.episodes.episode import Episode, EpisodeKind
from upwell.episodes.events import Event, Kind
from upwell.episodes.signatures import missing_path
from upwell.episodes.triggers import missing_file

MAX_OPEN = 32
"""Questions of a session that are still without an answer; the oldest is dropped first."""


class EpisodeMiner:
    """Collects the episodes of one session. `feed` takes its events in order; `end` concludes."""

    def __init__(self) -> None:
        self._missing: dict[str, Event] = {}

    def feed(self, event: Event) -> Sequence[Episode]:
        """Take the next event; the episodes that it completes."""
        if event.kind is not Kind.TOOL:
            return ()
        if path := missing_path(event):
            self._missing[path.rpartition("/")[2]] = event
            while len(self._missing) > MAX_OPEN:
                self._missing.pop(next(iter(self._missing)))
            return ()
        return self._place(event)

    def end(self) -> Sequence[Episode]:
        """The session is over; the episodes that waited for its end."""
        self._missing.clear()
        return ()

    def _place(self, event: Event) -> Sequence[Episode]:
        place = event.args.get("file_path")
        if event.tool not in ("Read", "Edit") or event.failed or not isinstance(place, str):
            return ()
        name = place.rpartition("/")[2]
        missed = self._missing.pop(name, None)
        if missed is None:
            return ()
        return (
            Episode(
                kind=EpisodeKind.PLACE,
                text=f"`{name}` is at `{place}`; `{missed.args['file_path']}` does not exist.",
                triggers=(missing_file(name),),
                paths=(place,),
                cwd=event.cwd,
                tool=event.tool,
                session=event.session,
                at=event.t,
                evidence=(missed.i, event.i),
            ),
        )
