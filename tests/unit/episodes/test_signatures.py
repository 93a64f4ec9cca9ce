"""The simple commands of a shell script, and lines of output without their variable parts."""

import pytest

from upwell.episodes.signatures import MAX_COMMAND_CHARS, digest, signature, steps_of


@pytest.mark.parametrize(
    ("command", "steps"),
    [
        ("cd /p && kiln git pr > pr.md 2>&1", ["cd /p", "kiln git pr"]),
        ("kiln list | head -5 || echo none", ["kiln list", "head -5", "echo none"]),
        ("echo 'a && b'; kiln \"x | y\"", ["echo 'a && b'", 'kiln "x | y"']),
        ("kiln a &> log && kiln b 2>/dev/null", ["kiln a", "kiln b"]),
        ("kiln say <<'END'\nrm -rf /\nEND", ["kiln say"]),
        ("kiln 'never closed", ["kiln 'never closed"]),
        ("kiln a \\\n  --b", ["kiln a \\\n  --b"]),
    ],
)
def test_a_script_is_split_where_a_shell_would_split_it(command: str, steps: list[str]) -> None:
    assert [step.text for step in steps_of(command)] == steps


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("A=1 B='x y' kiln test", "kiln"),
        ("sudo -E time kiln test", "kiln"),
        ("uv run --quiet kiln test", "kiln"),
        ("timeout 30 npx kiln test", "kiln"),
        ("./bin/kiln test", "kiln"),
    ],
)
def test_a_program_is_found_behind_assignments_and_wrappers(command: str, program: str) -> None:
    assert steps_of(command)[0].program == program


def test_a_signature_has_no_folders_numbers_and_hashes() -> None:
    first = signature("Error: /a/b/run.ts:12 failed at 1f2e3d4c5b")
    assert first == signature("error:  ~/c/run.ts:9 failed at 0a9b8c7d6e")
    assert first != signature("Error: /a/b/other.ts:12 failed at 1f2e3d4c5b")


def test_a_digest_is_the_same_in_every_process() -> None:
    assert digest("kiln") == "3381d960f90f2971"


def test_a_huge_script_is_read_in_part() -> None:
    assert len(steps_of("a;" * MAX_COMMAND_CHARS)) == MAX_COMMAND_CHARS // 2
