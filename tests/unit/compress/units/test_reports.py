"""In a command's report, the outcome and the failures rank above the reasons and what passed."""

import pytest

from upwell.compress import compress
from upwell.compress.units.base import FIRST, Units
from upwell.compress.units.belonging import (
    BAD_RESULT,
    DETAIL,
    ERROR,
    FAILED,
    RESULT,
    ReportSalience,
)
from upwell.ground.text.kind import detect
from upwell.ground.types.compression import TextKind

FAILED_NAMES = (
    "FAILED tests/test_crane.py::test_lift - assert 1 == 2",
    "ERROR tests/test_crane.py",
    "--- FAIL: TestLift (0.00s)",
    "not ok 3 - lifts twice",
    "  ✗ lifts twice",
    "  ● crane › lifts twice",
    "test crane::lifts ... FAILED",
    "test_lift (tests.test_crane.CraneTest.test_lift) ... FAIL",
    "        FAIL [   0.203s] harbor::quay tests::moors_twice",
    "io.harbor.CraneTest > lifts FAILED",
    "[  FAILED  ] Crane.Lifts",
    "  Failed Tests.CraneTests.Lifts [31 ms]",
    "30/30 Test #30: io_roundtrip .....................***Failed    0.52 sec",
    "  1) lifts a crate only once",
)
ERRORS = (
    "error[E0425]: cannot find value `foo` in this scope",
    "src/app.ts(88,13): error TS2345: Argument of type 'string'",
    "src/crane.c:131:17: error: 'struct crane' has no member named 'tail'",
    "lib/crane.py:40:1: E501 line too long",
    "  20:10  error  'x' is assigned a value but never used  no-unused-vars",
    "│ Error: Invalid index",
    "E   ModuleNotFoundError: No module named 'crane'",
    "make[1]: *** [Makefile:48: crane.o] Error 1",
    "#9 0.901 E: Unable to locate package crane",
    "api-1  | Error: Connection refused",
)
BAD_RESULTS = (
    "Tests:       1 failed, 212 passed, 213 total",
    "Found 13 errors in 13 files.",
    "7 problems (2 errors, 5 warnings)",
    "Tests run: 60, Failures: 1, Errors: 0, Skipped: 0",
    "54 examples, 2 failures",
    "BUILD FAILED in 8s",
)
RESULTS = (
    "test result: ok. 8 passed; 0 failed; 0 ignored",
    "added 120 packages in 3s",
    " 2 files changed, 12 insertions(+)",
    "Plan: 1 to add, 0 to change, 0 to destroy.",
)


def salience(line: str) -> float:
    return ReportSalience("2 tests failed").salience(line, 0)


@pytest.mark.parametrize("line", FAILED_NAMES)
def test_the_names_of_failed_tests(line: str) -> None:
    assert salience(line) == FAILED


@pytest.mark.parametrize("line", ERRORS)
def test_the_heads_of_errors(line: str) -> None:
    assert salience(line) == ERROR


@pytest.mark.parametrize("line", BAD_RESULTS)
def test_counts_of_failures(line: str) -> None:
    assert salience(line) == BAD_RESULT


@pytest.mark.parametrize("line", RESULTS)
def test_other_counts_rank_below_failures(line: str) -> None:
    assert RESULT - 0.5 < salience(line) < BAD_RESULT


def test_a_message_that_occurred_before_ranks_lower() -> None:
    report = ReportSalience("")
    first, again, other = (
        report.salience(line, 0)
        for line in (
            "src/a.ts(4,7): error TS2339: Property 'x' does not exist",
            "src/b.ts(9,1): error TS2339: Property 'y' does not exist",
            "src/b.ts(9,1): error TS7006: Parameter 'e' has no type",
        )
    )
    assert again < first == other


def test_details_follow_a_failure_and_rank_below_every_error() -> None:
    report = ReportSalience("")
    assert report.salience("    Expected: 1", 0) == 0.0
    report.salience("--- FAIL: TestLift (0.00s)", 1)
    first = report.salience("    crane_test.go:25: expected 12, got 0", 2)
    assert DETAIL > first > report.salience("      left: 2", 3) > 0.0


def test_foreign_frames_are_no_details() -> None:
    report = ReportSalience("")
    report.salience("  ● lifts twice", 0)
    assert report.salience("    at run (node_modules/jest/run.js:12:3)", 1) == 0.0
    assert report.salience("    at lift (src/crane.js:41:19)", 2) > 0.0


PASSED = "".join(f"test_{n} (tests.test_crane.CraneTest.test_{n}) ... ok\n" for n in range(40))
UNITTEST = f"""{PASSED}test_lift (tests.test_crane.CraneTest.test_lift) ... FAIL

======================================================================
FAIL: test_lift (tests.test_crane.CraneTest.test_lift)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/app/tests/test_crane.py", line 44, in test_lift
    self.assertEqual(crane.lifts, 3)
AssertionError: 2 != 3

----------------------------------------------------------------------
Ran 41 tests in 0.412s

FAILED (failures=1)
"""


def test_a_tenth_of_a_report_names_the_failed_test_its_reason_and_the_counts() -> None:
    shown = compress(UNITTEST, max_chars=len(UNITTEST) // 8).text
    assert "test_lift (tests.test_crane.CraneTest.test_lift)" in shown
    assert "AssertionError: 2 != 3" in shown
    assert "FAILED (failures=1)" in shown


def test_a_log_or_trace_with_a_verdict_is_test_output() -> None:
    log = "".join(f"[INFO] Running harbor.Part{n}Test\n" for n in range(30))
    assert detect(log) != TextKind.TEST_OUTPUT
    assert detect(f"{log}[ERROR] Tests run: 60, Failures: 1\n") == TextKind.TEST_OUTPUT
    frames = "".join(f"\tat harbor.Crane.lift{n}(Crane.java:{n})\n" for n in range(9))
    assert detect(f"Exception in main\n{frames}") == TextKind.STACK_TRACE
    assert (
        detect(f"Exception in main\n{frames}--- FAIL: TestLift (0.00s)\n") == TextKind.TEST_OUTPUT
    )


def test_diagnostics_with_code_frames_are_no_code() -> None:
    errors = "".join(
        f"error: needless hashes\n  --> src/crane.rs:{n}:20\n   |\n{n} |   let load = 1;\n   |\n"
        f"   = note: see the book\nhelp: remove them\n   |\n{n} ~   let load = {{\n   |\n\n"
        for n in range(10, 30)
    )
    assert detect(errors) == TextKind.TEXT
    shown = compress(errors, max_chars=len(errors) // 2).text
    assert all(f"src/crane.rs:{n}:20" in shown for n in range(10, 30))


def test_the_last_counts_are_raised_above_everything() -> None:
    report = ReportSalience("")
    units = Units()
    for line in ("test result: FAILED. 1 failed", "test result: FAILED. 3 failed", "0 failed"):
        units.add(0, 1, report.salience(line, len(units)))
    report.raise_last(units)
    assert units.salience[1] > FIRST + FAILED > units.salience[0]
