"""remember · recall · forget · restore, as a person or a script uses them."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Upwell

HIT = {"id", "text", "score", "source", "lines", "namespace", "tags", "paths", "created_at"}


def test_remember_prints_the_id_and_recall_finds_it(upwell: Upwell) -> None:
    id = upwell("remember", "The tide turns at noon", "--tag", "sea", "--path", "src/tide.py").line
    upwell("remember", "Bread needs salt")
    hits = upwell("recall", "when does the tide turn?", "--json").json["hits"]
    assert hits[0]["id"] == id
    assert set(hits[0]) >= HIT
    assert hits[0]["text"] == "The tide turns at noon"
    assert hits[0]["tags"] == ["sea"]
    assert hits[0]["paths"] == ["src/tide.py"]
    assert hits[0]["namespace"] == "context"
    assert 0 <= hits[0]["score"] <= 1
    assert all(hit["text"] != "Bread needs salt" for hit in hits)


def test_a_path_that_is_not_there_is_named(upwell: Upwell, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "tide.py").touch()
    paths = ("--path", "tide.py", "--path", "src/*.py", "--path", "src/moon.py")
    done = upwell("remember", "The tide turns at noon", *paths, cwd=tmp_path)
    assert done.err.splitlines() == [
        f"upwell: there is no src/moon.py in {tmp_path}; the memory is stored, and it surfaces "
        "with that file once the file exists"
    ]


def test_recall_in_a_pipe_is_plain(upwell: Upwell) -> None:
    upwell("remember", "The tide turns at noon")
    out = upwell("recall", "tide").out
    assert "The tide turns at noon" in out
    assert "\x1b[" not in out


def test_k_and_namespace(upwell: Upwell) -> None:
    for n in range(4):
        upwell("remember", f"tide table number {n}", "--namespace", "a" if n % 2 else "b")
    assert len(upwell("recall", "tide table", "-k", "2", "--json").json["hits"]) == 2
    hits = upwell("recall", "tide table", "--namespace", "a", "--json").json["hits"]
    assert {hit["namespace"] for hit in hits} == {"a"}
    assert len(hits) == 2


def test_forget_and_restore(upwell: Upwell) -> None:
    id = upwell("remember", "The tide turns at noon").line
    assert upwell("forget", id).code == 0
    assert upwell("recall", "tide", "--json").json == {"hits": []}
    assert upwell("forget", id).code == 1
    assert upwell("restore", id).code == 0
    assert [hit["id"] for hit in upwell("recall", "tide", "--json").json["hits"]] == [id]
    assert upwell("restore", id).code == 1


def test_a_memory_for_every_project_has_no_project(upwell: Upwell, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    upwell("remember", "Tides are in UTC", "--everywhere")
    upwell("remember", "Tides of this harbour are in local time")
    lines = [json.loads(line) for line in upwell("export").out.splitlines()]
    projects = {line["text"].split()[-1]: line["project"] for line in lines}
    assert projects == {"UTC": None, "time": str(tmp_path)}


def test_forgetting_a_project_leaves_the_others(upwell: Upwell, tmp_path: Path) -> None:
    for name in ("shop", "blog"):
        (tmp_path / name / ".git").mkdir(parents=True)
        upwell("remember", f"The tide of {name} turns at noon", cwd=tmp_path / name)
        upwell("stm", "add", f"the pilot of {name} is on leave", cwd=tmp_path / name)
    upwell("remember", "The tide of everybody turns at noon", cwd=tmp_path)
    (line,) = upwell("export", "--project", str(tmp_path / "shop")).out.splitlines()
    assert json.loads(line)["text"] == "The tide of shop turns at noon"
    nothing = upwell("export", "--project", "stop")
    assert (nothing.code, nothing.out) == (0, "")
    assert f"0 memories of {tmp_path / 'stop'}" in nothing.err
    notes = upwell("export", "--project", "blog", "--format", "markdown").out
    assert "The tide of blog" in notes
    assert "The tide of shop" not in notes
    done = upwell("forget", "--project", str(tmp_path / "shop"))
    assert "forgot 1 memory and 1 note of" in done.out
    (left,) = upwell("stm", "search", "pilot", "--json").json
    assert left["content"] == "the pilot of blog is on leave"
    texts = [hit["text"] for hit in upwell("recall", "--json").json["hits"]]
    assert sorted(text.split()[3] for text in texts) == ["blog", "everybody"]
    assert len(upwell("recall", "--trash", "--json").json["hits"]) == 1
    done = upwell("forget", "--project", str(tmp_path / "shop"), "--now")
    assert "deleted 1 memory and 1 note of" in done.out
    assert upwell("recall", "--trash", "--json").json == {"hits": []}
    assert upwell("forget").code == upwell("forget", "x", "--project", str(tmp_path)).code == 2


def test_an_empty_result_is_not_a_failure(upwell: Upwell) -> None:
    assert upwell("recall", "tides", "--json").json == {"hits": []}
    assert upwell("recall", "tides").code == 0


NAUGHTY = [
    '"',
    "'",
    "AND OR NOT",
    "NEAR(a b)",
    "col:tide",
    "*",
    "(((",
    "a-b-c",
    "^tide",
    "{x}",
    "--help me",
    "\\",
    "é🌊",
    "a\nb",
    "%_",
    "'; DROP TABLE memories; --",
]


@pytest.mark.parametrize("text", NAUGHTY)
def test_any_text_can_be_stored_and_searched_for(upwell: Upwell, text: str) -> None:
    id = upwell("remember", "--", f"tide {text}").line
    hits = upwell("recall", "--json", "--", f"tide {text}").json["hits"]
    assert [hit["id"] for hit in hits] == [id]
    assert hits[0]["text"] == f"tide {text}"


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_memory_is_refused(upwell: Upwell, text: str) -> None:
    done = upwell("remember", text)
    assert done.code in (1, 2)
    assert len(done.err.splitlines()) == 1


def test_a_known_secret_is_not_stored(upwell: Upwell, home: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    done = upwell("remember", f"The deploy token is {secret}")
    if done.code == 0:
        assert secret not in upwell("recall", "deploy token").out
    for path in home.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path


def test_the_memory_survives_kill(upwell: Upwell, home: Path) -> None:
    id = upwell("remember", "The tide turns at noon").line
    for name in ("index.db", "ledger.db"):
        (home / name).unlink(missing_ok=True)
    assert [hit["id"] for hit in upwell("recall", "tide", "--json").json["hits"]] == [id]


def test_json_is_json_for_any_text(upwell: Upwell) -> None:
    text = 'quote " backslash \\ tab\tnewline\nend é 🌊 \u202e'
    upwell("remember", text)
    hits = upwell("recall", "quote backslash", "--json")
    assert json.loads(hits.out)["hits"][0]["text"] == text


def test_a_backup_is_a_complete_memory(upwell: Upwell, home: Path) -> None:
    id = upwell("remember", "The tide turns at noon").line
    made = upwell("backup")
    copy = Path(made.line)
    assert copy.parent == home / "backups"
    assert "1 backup; to restore it, end your agents" in made.err
    upwell("forget", "--now", id)
    assert upwell("recall", "tide", "--json").json == {"hits": []}
    subprocess.run(made.err.partition("then run: ")[2], shell=True, check=True)
    assert [hit["id"] for hit in upwell("recall", "tide", "--json").json["hits"]] == [id]
    again = upwell("backup", "--json").json
    assert again == {"backup": str(copy), "kept": [str(copy)]}
