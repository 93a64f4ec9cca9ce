"""Typical mistakes of new users get clear messages."""

from pathlib import Path

from tests.conftest import Upwell

FACT = "The zanzibar service listens on port 8080"


def test_a_repeated_text_names_the_older_memory_and_how_to_remove_one(upwell: Upwell) -> None:
    first = upwell("remember", FACT).line
    done = upwell("remember", FACT)
    assert done.line != first
    assert f"memory {first} has the same text" in done.err
    assert f"`upwell forget {done.line}` or `upwell forget {first}`" in done.err
    near = upwell("remember", FACT + " now")
    assert "says nearly the same" in near.err


def test_a_folder_without_notes_is_not_watched(upwell: Upwell, tmp_path: Path) -> None:
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "main.py").write_text("print(1)")
    done = upwell("import", str(folder))
    assert done.code == 2
    assert "has no Markdown files" in done.err
    assert upwell("import", "--json").json == {"sources": [], "folder": None}


def test_a_home_folder_and_its_parents_are_refused(upwell: Upwell, tmp_path: Path) -> None:
    home = tmp_path / "user"
    (home / "notes").mkdir(parents=True)
    (home / "notes" / "a.md").write_text(f"# A\n\n{FACT}\n")
    for everything in (home, "/"):
        done = upwell("import", str(everything), env={"HOME": str(home)})
        assert done.code == 2
        assert "not only notes" in done.err
    assert upwell("import", str(home / "notes"), env={"HOME": str(home)}).code == 0


def test_an_unknown_memory_cannot_be_reset(upwell: Upwell) -> None:
    done = upwell("tune", "--reset", "--memory", "nope")
    assert done.code == 1
    assert "no memory 'nope'" in done.err
    known = upwell("remember", FACT).line
    assert upwell("tune", "--reset", "--memory", known).code == 0


def test_context_reports_that_upwell_is_off(upwell: Upwell) -> None:
    upwell("remember", FACT)
    assert "off" not in upwell("context", "which port does zanzibar use?").err
    upwell("off")
    assert "upwell is off" in upwell("context", "which port does zanzibar use?").err
