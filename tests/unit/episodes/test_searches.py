"""Missing files, names that a search did not find, and definitions that a search did find."""

import pytest
from tests.unit.episodes.events import call, shell

from upwell.episodes.events import SessionEvent
from upwell.episodes.triggers import definitions, missing_path, names_not_found

ABSENT = "<tool_use_error>File does not exist.</tool_use_error>"


@pytest.mark.parametrize(
    ("event", "path"),
    [
        (call("Read", ABSENT, failed=True, file_path="/p/a/kiln.go"), "/p/a/kiln.go"),
        (
            call("Grep", "Path does not exist: .kiln.yml", failed=True, path=".kiln.yml"),
            ".kiln.yml",
        ),
        (call("Glob", "No files found", pattern="src/**/kiln.ts"), "kiln.ts"),
        (shell("cat a/b.md", "cat: a/b.md: No such file or directory", failed=True), "a/b.md"),
        (call("Glob", "No files found", pattern="src/**/*.ts"), ""),
        (call("Glob", "src/kiln.ts", pattern="**/kiln.ts"), ""),
        (call("Read", "1→files that do not exist", file_path="/p/a.md"), ""),
        (call("Read", "text\n" * 200 + ABSENT, file_path="/p/a.md"), ""),
        (shell("ls a", "ls: a: No such file or directory", failed=True), ""),
        (shell("kiln x.py", "kiln: x.py: No such file or directory", failed=True), ""),
    ],
)
def test_a_missing_file_is_the_one_that_the_call_wanted(event: SessionEvent, path: str) -> None:
    assert missing_path(event) == path


@pytest.mark.parametrize(
    ("pattern", "place", "names"),
    [
        ("type SessionState struct", "src", ("SessionState",)),
        ('func.*SaveChanges"', "", ("SaveChanges",)),
        ("save_changes|load_changes", "", ("save_changes", "load_changes")),
        ("SessionState", "src/state.go", ()),
        ("paths.ToRelative.*files", "", ()),
        ("SessionState\\s*=", "", ()),
        ("session", "", ()),
    ],
)
def test_a_search_in_vain_asks_for_names_only(
    pattern: str, place: str, names: tuple[str, ...]
) -> None:
    vain = call("Grep", "No matches found", pattern=pattern, path=place)
    assert tuple(names_not_found(vain)) == names
    assert not names_not_found(call("Grep", "a.go:1:x", pattern=pattern, path=place))


def test_a_search_of_the_shell_counts_too() -> None:
    vain = shell('grep -rn "type SessionState struct" src', "Exit code 1", failed=True)
    assert tuple(names_not_found(vain)) == ("SessionState",)


def test_definitions_are_the_lines_that_introduce_the_name() -> None:
    out = "\n".join(
        (
            "a/store.go:12:func (s *Store) SaveChanges(ctx Context) error {",
            "a/call.go:40:\terr := s.SaveChanges(ctx)",
            "a/near.go-41-func SaveChanges() {",
            "a/type.go:7:func (s *Store) Kind() SaveChanges {",
            "a/local.ts:3:  const SaveChanges = 1",
            "a/top.ts:9:export const SaveChanges = 1",
            "a/more.go:5:func SaveChangesTwice() {",
        )
    )
    found = definitions(call("Grep", out, pattern="SaveChanges"))
    assert list(found) == [("SaveChanges", "a/store.go"), ("SaveChanges", "a/top.ts")]


def test_the_only_file_with_a_definition_defines_the_name() -> None:
    answer = "Found 1 file\nsrc/state.go"
    found = definitions(call("Grep", answer, pattern="type SessionState struct"))
    assert list(found) == [("SessionState", "src/state.go")]
    assert list(definitions(call("Grep", answer, pattern="SessionState"))) == []


@pytest.mark.parametrize(
    "pattern",
    [
        r"func \(s \*GateKeeper\) OpenGate",
        r"func\s+\(s \*GateKeeper\)\s+OpenGate",
        "func (s *GateKeeper) OpenGate",
        r"func \(GateKeeper\) OpenGate",
    ],
)
def test_the_receiver_of_a_method_is_not_what_a_search_looks_for(pattern: str) -> None:
    found = call("Grep", "Found 1 file\nsrc/gate.go", pattern=pattern)
    assert list(definitions(found)) == [("OpenGate", "src/gate.go")]
    assert names_not_found(call("Grep", "No matches found", pattern=pattern)) == ("OpenGate",)


def test_a_file_that_matches_several_names_defines_neither() -> None:
    answer = "Found 1 file\nsrc/gate.go"
    assert list(definitions(call("Grep", answer, pattern="func OpenGate|CloseGate"))) == []


def test_lines_of_one_file_belong_to_the_place_of_the_search() -> None:
    event = call("Grep", "28:type SessionState struct {", pattern="SessionState", path="a/s.go")
    assert list(definitions(event)) == [("SessionState", "a/s.go")]
