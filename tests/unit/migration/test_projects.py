"""The folder of a project that a program knows by its name."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.unit.migration.reading import place_at

from upwell.ground.errors import UsageError
from upwell.migration.base import StorePlace
from upwell.migration.projects import Projects, projects_at


def repository(path: Path) -> Path:
    path.mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=path, check=True)
    return path


def test_the_working_directory_and_the_folders_of_claude_are_known(tmp_path: Path) -> None:
    shop, blog = repository(tmp_path / "a" / "shop"), repository(tmp_path / "b" / "blog")
    listed = {str(blog): {}, str(tmp_path / "gone"): {}, "relative": {}}
    (tmp_path / ".claude.json").write_text(json.dumps({"projects": listed}))
    projects = projects_at(StorePlace(tmp_path, {}, shop))
    assert projects.place("shop") == (str(shop), "")
    assert projects.place("blog") == (str(blog), "")
    folder, why = projects.place("gone")
    assert folder is None
    assert "--project gone=FOLDER" in why


def test_the_user_tells_two_folders_with_one_name_apart(tmp_path: Path) -> None:
    first, second = repository(tmp_path / "a" / "shop"), repository(tmp_path / "b" / "shop")
    (tmp_path / ".claude.json").write_text(
        json.dumps({"projects": {str(first): {}, str(second): {}}})
    )
    assert "2 folders are called shop" in projects_at(place_at(tmp_path)).place("shop")[1]
    given = projects_at(place_at(tmp_path), [f"shop={second}"])
    assert given.place("shop") == (str(second), "")


def test_everywhere_is_the_users_decision() -> None:
    assert Projects(everywhere=True).place("shop") == (None, "")


@pytest.mark.parametrize("name", ["", "unknown-project"])
def test_no_project_means_every_project(name: str) -> None:
    assert Projects().place(name) == (None, "")


@pytest.mark.parametrize("item", ["shop", "shop=", "=/tmp", "shop=/no/such/folder"])
def test_a_project_needs_a_name_and_a_folder(tmp_path: Path, item: str) -> None:
    with pytest.raises(UsageError, match="is not NAME=FOLDER"):
        projects_at(place_at(tmp_path), [item])


@pytest.mark.parametrize("content", ["[", "[]", '{"projects": 3}', '{"projects": [3]}'])
def test_an_odd_file_of_claude_names_no_folders(tmp_path: Path, content: str) -> None:
    (tmp_path / ".claude.json").write_text(content)
    assert projects_at(place_at(tmp_path)).place("shop")[0] is None
