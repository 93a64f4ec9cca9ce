"""Output of commands: every error with its location comes before any detail, and the end is
kept.
"""

from upwell.compress import compress
from upwell.ground.text.kind import detect
from upwell.ground.types.compression import TextKind

CLIPPY = "    Checking harbor v0.1.0\n" + "".join(
    f"error: unused variable: `crane_{n}`\n  --> src/quay_{n}.rs:{n * 7}:9\n   |\n"
    f"{n * 7} |     let crane_{n} = lift(load);\n   |         ^^^^^^^ help: prefix it\n   |\n"
    "   = note: `-D unused-variables` implied by `-D warnings`\n"
    "   = help: for further information visit https://example.org/clippy/index.html\n\n"
    for n in range(24)
)
CLIPPY += "error: could not compile `harbor` due to 24 previous errors\n"
BUILD = "\n".join(
    f"#{n} [{n}/90] RUN step {n}\n#{n} {n}.1 downloading package-{n}.tar.gz\n#{n} DONE 2.1s"
    for n in range(1, 90)
)
BUILD += (
    "\n#90 3.4 src/app.ts(12,5): error TS2304: Cannot find name 'harbor'.\n------\n"
    "ERROR: failed to solve: process did not complete successfully: exit code: 2\n"
)
SNAPSHOT = "RootWebArea 'Shop'\n" + "".join(
    f"\t[{n}] generic\n\t\t[{n + 300}] link 'Product {n}'\n"
    f"\t\t\t[{n + 600}] StaticText 'Words {n}'\n"
    for n in range(60)
)


def test_every_error_has_its_place_before_any_detail() -> None:
    retained = compress(CLIPPY, max_chars=len(CLIPPY) // 3).text.split("\n")
    errors = [index for index, row in enumerate(retained) if row.startswith("error: unused")]
    assert len(errors) == 24
    assert all(retained[index + 1].startswith("  --> src/") for index in errors)
    assert retained[-2].startswith("error: could not compile")


def test_a_failed_build_keeps_its_error_and_its_end() -> None:
    retained = compress(BUILD, max_chars=600).text
    assert "error TS2304" in retained
    assert "ERROR: failed to solve" in retained


def test_output_of_builds_is_not_markdown() -> None:
    tasks = "\n".join(f"> Task :module{n}:compileJava UP-TO-DATE" for n in range(40))
    assert detect(CLIPPY) == detect(tasks) == TextKind.TEXT


def test_elements_of_a_page_come_before_its_words() -> None:
    retained = compress(SNAPSHOT, max_chars=len(SNAPSHOT) // 3).text
    assert retained.count("] link '") > 4 * retained.count("] StaticText '")


def test_of_repeated_exceptions_each_stays_once() -> None:
    raised = ["KeyError: 'crane'", "ValueError: no quay 7", "IndexError: pop from empty list"]
    frames = "".join(
        f'  File "harbor/part{n}.py", line {n}, in lift_{n}\n    lift()\n' for n in range(5)
    )
    trace = "".join(
        f"Traceback (most recent call last):\n{frames}{raised[0 if n < 27 else n - 27]}\n"
        for n in range(30)
    )
    shortened = compress(trace, max_chars=420).text
    assert all(line in shortened for line in raised)
    assert shortened.count("Traceback") <= 1


def test_a_summary_that_repeats_makes_room_for_another() -> None:
    runs = "".join(f"test quay::step_{n} ... ok\n" for n in range(200))
    empty = "test result: ok. 0 passed; 0 failed; finished in 0.00s\n\n"
    text = (
        f"{empty * 20}running 200 tests\n{runs}test result: ok. 200 passed; 0 failed\n{empty * 20}"
    )
    assert "200 passed" in compress(text, max_chars=400).text


def test_each_failure_keeps_its_own_details_even_if_they_are_equal() -> None:
    warnings = ["cannot reach the pilot", "tide unknown", "berth is silent", "no rope left"]
    failures = "".join(
        f"--- FAIL: TestQuay{n} (0.00s)\n    quay_test.go:{n + 40}: berths differ\n"
        f"    expected: 0\n    actual: {n + 1}\n"
        + "".join(f"    WARNING: {warning} {'abcd'[n]}\n" for warning in warnings)
        for n in range(4)
    )
    passes = "".join(f"--- PASS: TestCrane{n} (0.00s)\n" for n in range(300))
    text = f"{passes}{failures}FAIL\nFAIL\texample.org/harbor\t0.12s\n"
    retained = compress(text, max_chars=600).text
    assert retained.count("expected: 0") == 4
    assert retained.count("actual: ") == 4


HUNKS = "\n".join(
    f"@@ -{n},2 +{n},2 @@ def dock_{n}():\n-    tide_{n} = {n}\n+    tide_{n} = {n + 1}"
    for n in range(1, 400)
)
CUT = (
    f"diff --git a/quay.py b/quay.py\n--- a/quay.py\n+++ b/quay.py\n{HUNKS}\n\n...31198 bytes "
    "truncated...\n\nThe output was truncated. Full output saved to: /home/ada/tool-output/t_17\n"
    "Read it with an offset.\n"
)


def test_where_the_whole_output_is_stays_in_every_kind_of_text() -> None:
    log = "".join(f"12:00:{n % 60:02} quay {n} is ready\n" for n in range(300))
    end = "npm error A complete log of this run can be found in: /root/.npm/_logs/17-debug.log\n"
    assert "/home/ada/tool-output/t_17" in compress(CUT, max_chars=500).text
    assert "/root/.npm/_logs/17-debug.log" in compress(log + end, max_chars=500).text


def test_an_error_with_its_place_outranks_the_traces_of_tests_that_passed() -> None:
    trace = "".join(
        f"[harbor] Task {n} failed: boom\n   at run (/srv/quay/limiter.ts:{n}:7)\n"
        f"   at next (/srv/quay/limiter.ts:{n + 1}:3)\nError: Item {n} failed\n"
        for n in range(60)
    )
    place = "src/quay.test.ts(61,4): error TS2739: Type '{ a: number; }' is missing 'berths'"
    text = f"Exit code 1\n{trace}{place}\nhusky - pre-commit script failed (code 2)\n"
    assert place in compress(text, max_chars=len(text) // 10).text


def test_lines_that_are_folded_in_a_trace_keep_what_they_have_in_common() -> None:
    folded = "".join(f"[Chart] Depth {n} exceeds the limit {n - 1}\n" for n in range(20, 26))
    trace = "".join(f"    at berth_{n} (/srv/quay/berth.ts:{n}:7)\n" for n in range(200))
    text = f"Error: the quay is closed\n{trace}src/quay.test.ts:\n{folded}1 fail\n"
    retained = compress(text, max_chars=700).text
    values = [line for line in retained.split("\n") if line.split(" ")[0].isdigit()][:-1]
    assert not values or "lines like: [Chart] Depth {} exceeds the limit {}]" in retained


def test_what_others_left_out_is_not_hidden_by_our_marks() -> None:
    log = [f"quay {n} is ready for ship {n * 7}" for n in range(400)]
    log[200:200] = ["", "... [50013 characters truncated] ...", ""]
    retained = compress("\n".join(log), max_chars=900).text
    assert "... [50013 characters truncated] ..." in retained


def test_the_file_of_a_test_stands_above_a_failure_after_a_blank_line() -> None:
    files = "".join(
        f"src/quay{n}.test.ts:\n\n# Unhandled error between tests\nerror: no module tide{n}\n"
        f"{'  at run (quay.ts:3:4)' * 9}\n\n"
        for n in range(40)
    )
    shown = ""
    for line in compress(files, max_chars=1_500).text.split("\n"):
        if line.endswith(".test.ts:"):
            shown = line.removeprefix("src/quay").removesuffix(".test.ts:")
        if "no module tide" in line:
            assert line.endswith(f"tide{shown}")


def test_a_match_that_speaks_of_a_cut_stays_below_its_file() -> None:
    matches = [f"src/quay{n // 9}.py:{n}:    log('quay {n} is ready')" for n in range(300)]
    matches[200] = "src/quay22.py:200:    log('9 lines omitted, full output in /tmp/quay.log')"
    rows = compress("\n".join(matches), max_chars=900).text.split("\n")
    (at,) = [number for number, row in enumerate(rows) if "9 lines omitted" in row]
    assert "src/quay22.py" in next(row for row in reversed(rows[: at + 1]) if "src/" in row)
