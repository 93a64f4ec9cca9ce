"""kill -9 at any moment: `stm.json` is never torn, no acknowledged note is lost or doubled.

The reader writes, too, because a search records which notes were viewed. `pytest -m slow` runs 200
rounds; UPWELL_KILL_ROUNDS=1000 is run by hand before a release.
"""

import json
from pathlib import Path

import pytest

from tests.faults.killing import SLOW_ROUNDS, Scripts, rounds
from upwell.memory.notes import Origin, Origins
from upwell.memory.stm import ShortTerm

WRITER = """
    import sys
    from pathlib import Path
    from upwell.memory.notes import Origin, Origins
    from upwell.memory.stm import ShortTerm

    path, name = Path(sys.argv[1]), sys.argv[2]
    notes = ShortTerm(path, origins=Origins(path.with_name("stm.origins.json")))
    i = 0
    while True:
        token = f"{name}x{i}"
        notes.add(f"{token} kettle", Origin(project="/somewhere"))
        print(token if i else f"ready\\n{token}", flush=True)
        i += 1
"""
READER = """
    import logging, sys
    from pathlib import Path
    from upwell.ground.trace import LOG
    from upwell.memory.notes import Origins
    from upwell.memory.stm import ShortTerm

    LOG.addHandler(logging.StreamHandler(sys.stderr))
    path = Path(sys.argv[1])
    notes = ShortTerm(path, origins=Origins(path.with_name("stm.origins.json")))
    print("ready", flush=True)
    seen = 0
    while True:
        hits = notes.search(query="kettle", project="/somewhere")
        there = len(notes.entries())
        assert there >= seen, f"{there} notes after {seen}"
        assert len(hits) >= min(seen, 3), f"{len(hits)} found among {seen}"
        seen = there
"""


def written(path: Path) -> list[str]:
    """The notes in the file. A plain JSON parser and our code must read the same ones."""
    notes = json.loads(path.read_text()) if path.exists() else []
    for note in notes:
        assert list(note) == ["id", "content", "created_at", "viewed_at"]
    origins = Origins(path.with_name("stm.origins.json"))
    assert {note["id"] for note in notes} <= origins.all().keys()
    short_term = ShortTerm(path, origins=origins)
    assert [entry.id for entry in short_term.entries()] == [note["id"] for note in notes]
    return [note["content"].split()[0] for note in notes]


def killed(folder: Path, count: int) -> list[Path]:
    return rounds(folder, "stm.json", Scripts(WRITER, READER), written, count).files


def test_a_few_rounds_of_kill_9_tear_nothing(tmp_path: Path) -> None:
    (path,) = killed(tmp_path, 3)
    assert written(path), "the notes of all three rounds are in one file"


@pytest.mark.slow
@pytest.mark.nightly
def test_hundreds_of_rounds_of_kill_9_tear_nothing(tmp_path: Path) -> None:
    for path in killed(tmp_path, SLOW_ROUNDS):
        short_term = ShortTerm(path, origins=Origins(path.with_name("stm.origins.json")))
        short_term.add("the last one", Origin())
        left = {entry.name.split("-")[0] for entry in path.parent.iterdir()}
        assert not [name for name in left if name.startswith(".")], "halves of writers that died"


def test_only_files_of_dead_writers_are_cleared(tmp_path: Path) -> None:
    path = tmp_path / "stm.json"
    for name in (".stm.json-abc", ".stm.trash.json-abc", "stm.json-mine"):
        (tmp_path / name).write_text("[half")
    ShortTerm(path).add("kettle")
    left = {entry.name for entry in tmp_path.iterdir()}
    assert left == {"stm.json", "stm.json.lock", ".stm.trash.json-abc", "stm.json-mine"}
