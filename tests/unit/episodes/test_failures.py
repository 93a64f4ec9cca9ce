"""Failures of usage are recognised; other failures of a command are ignored."""

import pytest
from tests.unit.episodes.events import shell

from upwell.episodes.failures import Fault, failure_of, succeeded


@pytest.mark.parametrize(
    ("command", "out", "fault"),
    [
        ("kiln git pr", "Error: Either --session or --path must be provided", Fault.ARGUMENT),
        ("kiln pr --stat", "unknown flag: --stat", Fault.OPTION),
        ("cd /p && kiln pr", "zsh: command not found: kiln", Fault.PROGRAM),
        ("kiln pr", "bash: kiln: command not found", Fault.PROGRAM),
        ("bun run src/index.ts", 'error: Module not found "src/index.ts"', Fault.SCRIPT),
        ("npm run lint:fix", 'npm error Missing script: "lint:fix"', Fault.SCRIPT),
        ("ls *.cfg", "zsh: no matches found: *.cfg", Fault.QUOTING),
        ("psql-migrate up", "error: connection refused (127.0.0.1:5432)", Fault.SERVICE),
        ("cat -A x | cat -A", "cat: illegal option -- A", Fault.OPTION),
        ("python3 -m bakery", "ModuleNotFoundError: No module named 'oven'", Fault.PROGRAM),
        ("bun run lint", "/usr/bin/bash: line 1: biome: command not found", Fault.PROGRAM),
        ("psql -h db -c 'select 1'", "bash: psql: command not found", Fault.PROGRAM),
        ("scripts/bake.sh", "zsh:1: no such file or directory: scripts/bake.sh", Fault.SCRIPT),
        ("./bake.sh 3", "bash: ./bake.sh: No such file or directory", Fault.SCRIPT),
        ("npm run build", "npm error enoent Could not read package.json", Fault.FOLDER),
        ("kiln up", "EPERM: operation not permitted, rename '/a/b'", Fault.ACCESS),
        ("gh-bake pr", "error: authentication required", Fault.ACCESS),
        ("kiln serve", "Error: listen EADDRINUSE: address already in use :::3000", Fault.BUSY),
        ("kiln sync", "Command timed out after 2m 0s", Fault.TIMEOUT),
    ],
)
def test_a_wrong_call_is_a_failure_of_usage(command: str, out: str, fault: Fault) -> None:
    failure = failure_of(shell(command, f"Exit code 1\n{out}", failed=True))
    assert failure is not None
    assert failure.fault is fault
    assert failure.message == out


@pytest.mark.parametrize(
    ("command", "out"),
    [
        ("kiln test", "FAIL store_test\nexpected 3, got 4\n1 value is required"),
        ("npm run test:e2e", "Error: locator argument is required\n  at chat.spec.ts:3"),
        ("kiln --help", "unknown option? see below"),
        ("kiln pr", "The user doesn't want to proceed with this tool use."),
        ("kiln pr", "Permission to use Bash with command kiln pr has been denied: is required"),
        ("kiln pr --stat", "unknown flag: --stat\n\nUsage: kiln pr [flags]\n  --name-only"),
        ("git rebase main", "CONFLICT (content): Merge conflict in a.py"),
        ("kiln build", "a.go:3:2: cannot use x as string"),
        ("kiln serve", "started\nzsh:1: command not found: restore_state"),
        ("curl localhost:3000", "curl: (7) Failed to connect to localhost port 3000"),
        ("kiln log | grep -q '--- FAIL'", "sort: unrecognized option '--- FAIL'"),
        ("kiln a; kiln2 b", "error: unknown option '--x'"),
        ("python a.py", "ModuleNotFoundError: No module named 'oven.door'"),
        ("kiln test", "error: page.goto timed out"),
        ("cd web && kiln build", "bash: cd: web: No such file or directory"),
    ],
)
def test_other_failures_are_ignored(command: str, out: str) -> None:
    assert failure_of(shell(command, out, failed=True)) is None


def test_a_long_answer_without_a_flag_is_output() -> None:
    out = "error: unknown option '--x'\n" + "line\n" * 600
    assert failure_of(shell("kiln a", out)) is None
    assert failure_of(shell("kiln a", out, failed=True)) is not None


def test_reading_a_file_about_errors_is_not_a_failure() -> None:
    assert failure_of(shell("cat notes.md", "unknown option --x")) is None


def test_the_prompt_of_a_terminal_is_not_the_error() -> None:
    out = "me@host p % kiln git pr\nError: --path is required\nme@host p %"
    failure = failure_of(shell("kiln git pr", out))
    assert failure is not None
    assert failure.message == "Error: --path is required"


def test_an_answer_without_an_error_is_a_success() -> None:
    assert succeeded(shell("kiln a", "done"))
    assert not succeeded(shell("kiln a", "Error: no"))
    assert not succeeded(shell("kiln a", "done", failed=True))
