"""Paths in a cue that lead into its project through a link."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from upwell.ground.ledger import TtlStore
from upwell.ground.types.cue import Cue, Door, ToolAnswer
from upwell.ground.types.memory import Memory
from upwell.surface.event import with_real_paths
from upwell.surface.options import PipelineOptions, SurfaceOptions
from upwell.surface.pipeline import Surfacer
from upwell.surface.rules import Guards, RuleScope, files_of, standing
from upwell.testing import FakeRecall


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """`real` is a repository; `link`, `my link` and `sub` lead to it, to it, and to its `src`."""
    (tmp_path / "real" / ".git").mkdir(parents=True)
    (tmp_path / "real" / "src").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "my link").symlink_to("real")
    (tmp_path / "sub").symlink_to("real/src")
    (tmp_path / "elsewhere").mkdir()
    return tmp_path


def read(cwd: Path, path: str) -> Cue:
    return Cue(door=Door.TOOL, tool="Read", args={"file_path": path}, session="s", cwd=str(cwd))


@pytest.mark.parametrize("cwd", ["real", "link", "my link", "sub", "link/src"])
@pytest.mark.parametrize("path", ["real/src/a.py", "link/src/a.py", "my link/src/a.py", "sub/a.py"])
def test_a_file_has_one_name_however_it_is_reached(work: Path, cwd: str, path: str) -> None:
    cue = with_real_paths(read(work / cwd, str(work / path)))
    assert cue.args == {"file_path": str(work / "real/src/a.py")}
    assert cue.cwd in (str(work / "real"), str(work / "real/src"))
    assert files_of(cue) == ["src/a.py"]


def test_relative_files_of_a_linked_folder(work: Path) -> None:
    assert files_of(with_real_paths(read(work / "sub", "a.py"))) == ["src/a.py"]


def test_paths_in_commands_texts_and_results(work: Path) -> None:
    command = f"cd '{work}/link' && pytest {work}/link/src/a.py:3 --root={work}/linked -v"
    error = ToolAnswer(text=f"cat: {work}/link/src/b.py: No such file", failed=True)
    args, cwd = {"command": command}, str(work / "real")
    cue = with_real_paths(Cue(door=Door.TOOL, tool="Bash", args=args, answer=error, cwd=cwd))
    assert cue.args["command"] == command.replace("/link'", "/real'").replace("/link/", "/real/")
    assert cue.answer is not None
    assert cue.answer.text == f"cat: {work}/real/src/b.py: No such file"
    asked = Cue(door=Door.PROMPT, text=f"Why is {work}/link/src/a.py slow?", cwd=str(work / "link"))
    assert with_real_paths(asked).text == f"Why is {work}/real/src/a.py slow?"


def test_other_paths_stay(work: Path) -> None:
    cue = read(work / "real", str(work / "elsewhere/a.py"))
    assert with_real_paths(cue) is cue
    long = read(work / "real", "/" + "a/" * 5_000)
    assert with_real_paths(long) is long
    assert with_real_paths(replace(cue, cwd=None)) == replace(cue, cwd=None)


@pytest.mark.parametrize("cwd", ["real", "link"])
async def test_rules_and_guards_about_files_hold_through_a_link(work: Path, cwd: str) -> None:
    memory = Memory(text="Migrations are frozen", id="r", project=str(work / "real"))
    paths = ("src/*.py",)
    rule = standing(memory, RuleScope(paths=paths))
    guard = standing(replace(memory, tags=("guard",)), RuleScope(paths=paths, tools=("Bash",)))
    surfacer = Surfacer(
        FakeRecall(rules=[rule]),
        TtlStore(),
        PipelineOptions(surface=SurfaceOptions(moments="all")),
    )
    outcome = await surfacer.offer(
        replace(read(work / cwd, str(work / "link/src/a.py")), answer=ToolAnswer(text="x"))
    )
    assert "Migrations are frozen" in getattr(outcome, "text", "")
    guards = Guards(
        FakeRecall(rules=[guard]),
        TtlStore(),
        is_paused=lambda _: False,
        refused=lambda *_: None,
    )
    command = {"command": f"rm {work}/link/src/a.py"}
    cue = Cue(door=Door.TOOL, tool="Bash", args=command, session="s", cwd=str(work / cwd))
    assert await guards.refusal(cue) is not None
