"""A memory's project and files are named by their real paths."""

from pathlib import Path

from upwell.ground.types.memory import Memory
from upwell.memory.records import memory_of


def test_a_project_and_files_given_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    project, text = str(tmp_path / "link"), f"{tmp_path}/link/a.py is generated"
    named = Memory(text="generated", project=project, paths=(f"{project}/b.py", "c.py", "src/*.py"))
    for memory, paths in (
        (named, (f"{tmp_path}/real/b.py", "c.py", "src/*.py")),
        (Memory(text=text, project=project), (f"{tmp_path}/real/a.py",)),
    ):
        stored = memory_of(memory)
        assert stored.project == str(tmp_path / "real")
        assert stored.paths == paths
