"""Episodes concluded from the events of a session."""

from typing import Any

from upwell.episodes.episode import EpisodeKind
from upwell.episodes.events import Event, Kind
from upwell.episodes.miner import EpisodeMiner
from upwell.episodes.triggers import triggers_of


def call(i: int, tool: str, out: str = "", *, failed: bool = False, **args: Any) -> Event:
    return Event(
        session="s",
        i=i,
        t=float(i),
        kind=Kind.TOOL,
        tool=tool,
        args=args,
        out=out,
        failed=failed,
        cwd="/p",
    )


def test_a_moved_file_is_reported_where_it_is_missed_again() -> None:
    missed = call(1, "Read", "Error: File does not exist.", failed=True, file_path="/p/store.ts")
    miner = EpisodeMiner()
    assert miner.feed(missed) == ()
    (episode,) = miner.feed(call(2, "Read", "export", file_path="/p/src/store.ts"))
    assert episode.kind is EpisodeKind.PLACE
    assert episode.paths == ("/p/src/store.ts",)
    assert set(episode.triggers) & set(triggers_of(missed))
