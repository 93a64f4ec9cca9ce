"""The readers on transcripts that the agents wrote while they played the drill of `tests/live`.

`make live-fixtures` writes the transcripts anew.
"""

from pathlib import Path

import pytest
from tests.live.drill import FORKED, PARTS, expected, prompt, seen, sessions_at
from tests.live.recording import PROJECT, RECORDED, recording_of, restored


@pytest.mark.parametrize("part", PARTS)
def test_a_recording_yields_what_the_script_did(part: str, tmp_path: Path) -> None:
    sessions, tally = sessions_at(restored(recording_of(part), tmp_path))
    steps = expected(part, PROJECT)
    session, *forks = sorted(sessions.values(), key=len)
    assert seen(session, steps) == steps
    forked = [*steps, prompt(FORKED), steps[-1]]
    assert [seen(fork, forked) for fork in forks] == [forked] * (part == "claude")
    assert tally.unknown == {}


def test_the_recordings_are_of_the_versions_that_the_live_tests_install() -> None:
    recorded = {folder.name for folder in RECORDED.iterdir()}
    assert recorded == {recording_of(part).name for part in PARTS}
