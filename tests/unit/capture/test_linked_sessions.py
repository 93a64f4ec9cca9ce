"""The findings of a session in a folder that was reached through a link."""

from pathlib import Path

import pytest

from upwell.capture.sessions import Findings
from upwell.episodes.triggers import Episode, EpisodeKind


@pytest.mark.parametrize(
    ("kind", "path", "text", "expected"),
    [
        (EpisodeKind.PLACE, "lib/a.py", "`a.py` is at `lib/a.py`.", "`a.py` is at `src/lib/a.py`."),
        (EpisodeKind.PLACE, "a.py", "`a.py` is in the root folder.", "`a.py` is at `src/a.py`."),
        (EpisodeKind.TICKET, "4.md", "Ticket 4: `4.md`.", "Ticket 4: `src/4.md`."),
    ],
)
def test_a_place_is_told_from_the_root_of_the_project(
    tmp_path: Path, kind: EpisodeKind, path: str, text: str, expected: str
) -> None:
    (tmp_path / "src").mkdir()
    episode = Episode(
        kind=kind,
        text=text,
        session="s",
        at=0.0,
        cwd=str(tmp_path / "src"),
        paths=(path,),
        triggers=(),
    )
    findings = Findings()
    findings.add(episode, str(tmp_path), "session:s")
    assert findings.places[0].text == expected
