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


def test_a_files_place_is_given_where_it_is_missed() -> None:
    miner = EpisodeMiner()
    assert miner.feed(call(1, "Read", "export", file_path="/p/src/domain/session-store.ts")) == ()
    (episode,) = miner.end()
    missed = call(2, "Read", "File does not exist.", failed=True, file_path="/p/session-store.ts")
    assert episode.kind is EpisodeKind.PLACE
    assert episode.text == "`session-store.ts` is at `src/domain/session-store.ts`."
    assert episode.paths == ("src/domain/session-store.ts",)
    assert set(episode.triggers) & set(triggers_of(missed))


def test_a_working_command_is_given_where_the_other_fails_again() -> None:
    error = "Error: Either --session or --path must be provided"
    miner = EpisodeMiner()
    failed = call(1, "Bash", error, failed=True, command="cd /p && kiln git pr 2>&1")
    assert miner.feed(failed) == ()
    (episode,) = miner.feed(call(2, "Bash", "# Pull request", command="kiln git pr --path ."))
    assert episode.kind is EpisodeKind.COMMAND
    assert episode.text == f'`kiln git pr` fails with "{error}"; `kiln git pr --path .` works.'
    assert episode.evidence == (1, 2)
    again = call(9, "Bash", error, failed=True, command="kiln git pr > pr.md")
    assert episode.triggers == triggers_of(again)
