"""A document speaks at a failure that names the host or the file which it is about."""

from pathlib import Path

import pytest

from upwell import Cue, Surfacing
from upwell.app import Settings, build
from upwell.ground.types.cue import Door, Skip, ToolAnswer
from upwell.surface.event import Event
from upwell.surface.moments import names_in
from upwell.surface.options import PipelineOptions

GUIDE = """# Tide gauge

## Local database

The readings are stored in the database on `localhost:5433`, which `harbour db up` starts in a
container.

## Certificates

Ask the harbour master for `certs/gauge.pem`, because the script that made it is gone since spring.

## Crane

The crane is started by hand, and it lifts at most two boxes of twelve tonnes at the same time.
"""


def failed(out: str, command: str = "harbour sync", cwd: str = "/srv/harbour") -> Cue:
    answer = ToolAnswer(text=out, failed=True)
    args = {"command": command}
    return Cue(door=Door.TOOL, tool="Bash", args=args, answer=answer, session="s", cwd=cwd)


@pytest.mark.parametrize(
    ("out", "names"),
    [
        ("connect ECONNREFUSED 127.0.0.1:5433", ["127.0.0.1:5433"]),
        ("could not connect to postgres://u:p@localhost:5433/db", ["localhost:5433"]),
        ("ssh: Could not resolve hostname gauge.harbour.example", ["gauge.harbour.example"]),
        ("open /srv/harbour/certs/gauge.pem: no such file or directory", ["certs/gauge.pem"]),
        ("curl: (6) Could not resolve host: github.com", []),
        ("src/gauge.py:12: Error: module not found", []),
        ("Traceback: src/gauge.py line 12 in v1.2.3", []),
        ("listening on localhost:5433", []),
        ("E: cannot find 1.20.3", []),
    ],
)
def test_the_error_lines_name_hosts_and_files_but_no_code(out: str, names: list[str]) -> None:
    event = Event.of(failed(out), PipelineOptions(), 0.0)
    assert names_in(event) == names


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("connect ECONNREFUSED localhost:5433", "harbour db up"),
        ("open certs/gauge.pem: no such file or directory", "harbour master"),
        ("connect ECONNREFUSED localhost:54331", ""),
        ("the crane and the database of the tide gauge timed out", ""),
    ],
)
async def test_a_document_is_said_where_a_failure_names_its_matter(
    tmp_path: Path, out: str, said: str
) -> None:
    project = tmp_path / "harbour"
    (project / ".git").mkdir(parents=True)
    (project / "docs").mkdir()
    (project / "docs" / "gauge.md").write_text(GUIDE, encoding="utf-8")
    app = await build(Settings(home=tmp_path / "home", environment={}))
    try:
        await app.imports.add(project / "docs", project, "markdown", lambda done, total: None)
        outcome = await app.surfacer.surface(failed(out, cwd=str(project)))
    finally:
        await app.aclose()
    if said:
        assert isinstance(outcome, Surfacing)
        assert said in outcome.text
    else:
        assert isinstance(outcome, Skip)
