"""The findings of a session in a folder that was reached through a link."""

from pathlib import Path

import pytest

from upwell.capture.sessions import Findings
from upwell.episodes.episode import Episode, EpisodeKind


@pytest.mark.parametrize("path", ["a.py", "{}/link/src/a.py", "{}/real/src/a.py"])
def test_files_are_relative_to_the_project(tmp_path: Path, path: str) -> None:
    (tmp_path / "real" / "src").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    cwd, path = str(tmp_path / "link" / "src"), path.format(tmp_path)
    episode = Episode(
        kind=EpisodeKind.PLACE, text="x", session="s", at=0.0, cwd=cwd, paths=(path,), triggers=()
    )
    findings = Findings()
    findings.add(episode, str(tmp_path / "real"), "session:s")
    assert findings.places[0].paths == ("src/a.py",)
