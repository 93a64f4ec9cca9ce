"""Search results, diffs and git logs: matches come before context, and marks name whole hunks."""

import re

from upwell.compress import compress
from upwell.ground.text.kind import detect
from upwell.ground.types.compression import TextKind

MATCHES = range(40, 2_000, 20)
SEARCH = "--\n".join(
    "".join(f"{n - k}-    const berth{n - k} = quay.berths[{n - k}];\n" for k in (2, 1))
    + f"{n}:    lift(crane{n}, () => {{\n{n + 1}-      wait(tide{n + 1});\n"
    for n in MATCHES
)
HUNKS = "".join(
    f"@@ -{n},3 +{n},3 @@\n     old_{n}()\n-    lift_{n}(crane_{n})\n+    lower_{n}(crane_{n})\n"
    for n in range(10, 900, 10)
)
DIFF = (
    f"diff --git a/quay.py b/quay.py\n--- a/quay.py\n+++ b/quay.py\n{HUNKS}"
    f"diff --git a/tide.py b/tide.py\n--- a/tide.py\n+++ b/tide.py\n{HUNKS}"
)
LOG = "".join(
    f"commit {n:040x}\nAuthor: Ada <ada@example.org>\nDate:   Mon Mar 2 10:00:00 2026\n\n"
    f"    Lift crane {n} at quay {n % 7}\n\n    The winch of berth {n} was slow.\n\n"
    for n in range(1, 80)
)


def test_a_search_in_one_file_is_recognised() -> None:
    assert detect(SEARCH) == TextKind.GREP
    numbered = "".join(f"{n}:    lift(crane{n}, () => {{\n" for n in range(40, 140))
    assert detect(numbered) == TextKind.CODE


def test_matches_come_before_context_and_marks_have_no_numbers_of_rows() -> None:
    retained = compress(SEARCH, max_chars=len(SEARCH) // 4).text
    matches = re.findall(r"^(\d+):", retained, re.M)
    context = re.findall(r"^(\d+)-", retained, re.M)
    assert len(matches) > 0.5 * len(MATCHES)
    for number in map(int, context):
        assert any(str(number + step) in matches for step in (-1, 1, 2))
    assert "→" not in retained


def test_context_is_shown_with_its_match() -> None:
    retained = compress(SEARCH, max_chars=len(SEARCH) // 2, query="tide901").text
    assert "901-      wait(tide901)" in retained
    assert "900:    lift(crane900" in retained


def test_a_mark_names_the_hunks_and_commits_that_it_hides() -> None:
    for text, head, noun in ((DIFF, "@@ ", "hunk"), (LOG, "commit ", "commit")):
        retained = compress(text, max_chars=len(text) // 4).text
        marks = re.findall(rf"^\[…\d+ lines?, (\d+) {noun}s?\]$", retained, re.M)
        files = re.findall(r"^\[…\d+ lines?, \d+ files?\]$", retained, re.M)
        shown = sum(row.startswith(head) for row in retained.split("\n"))
        total = sum(row.startswith(head) for row in text.split("\n"))
        assert marks
        if not files:
            assert shown + sum(map(int, marks)) == total
