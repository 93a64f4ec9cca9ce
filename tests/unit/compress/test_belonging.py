"""Parts are kept with their context: a record with its name, a changed line with its file."""

import json

import pytest
from tests.tables import expand

from upwell.compress import compress


def test_an_answer_from_a_record_has_the_name_of_the_record():
    orders = [
        {"id": n, "error": None if n % 40 else "card_declined", "total": n * 3} for n in range(900)
    ]
    retained = expand(
        json.loads(
            compress(
                json.dumps(orders), max_tokens=400, query="which failed with card_declined?"
            ).text
        )
    )
    declined = [item for item in retained if item.get("error") == "card_declined"]
    assert len(declined) >= 5
    assert all("id" in item for item in declined)


def test_an_answer_deep_in_a_record_has_the_name_of_the_record():
    pods = [
        {
            "kind": "Pod",
            "metadata": {"uid": f"u-{n * 7919}", "name": f"web-{n}", "labels": {"app": "web"}},
            "status": {
                "containers": [
                    {
                        "name": "main",
                        "restarts": 0 if n % 9 else 31,
                        "reason": "Completed" if n % 9 else "CrashLoopBackOff",
                    }
                ]
            },
        }
        for n in range(46)
    ]
    text = compress(json.dumps({"items": pods}), max_tokens=450, query="which pods crash?").text
    crashing = [f"web-{n}" for n in range(0, 46, 9)]
    assert text.count("CrashLoopBackOff") >= 5
    for name in crashing[: text.count("CrashLoopBackOff")]:
        assert f'"{name}"' in text


def test_empty_values_do_not_crowd_out_answers():
    orders = [
        {"id": n, "payment": {"last_error": "timeout" if n == 187 else None}, "note": ""}
        for n in range(240)
    ]
    text = compress(json.dumps(orders), max_tokens=300, query="what error had order 187?").text
    assert '"timeout"' in text
    assert text.count("null") < 10


def shown(files: int) -> str:
    parts = [
        "commit 0123456789abcdef0123456789abcdef01234567\nAuthor: A <a@b>\n\n    Change things\n"
    ]
    for number in range(files):
        parts.append(
            f"diff --git a/src/f{number}.py b/src/f{number}.py\nindex 1..2 100644\n"
            f"--- a/src/f{number}.py\n+++ b/src/f{number}.py\n@@ -1,3 +1,30 @@ def f():\n"
            + "".join(f"+    value_{number}_{line} = compute({line})\n" for line in range(30))
        )
    return "\n".join(parts)


def test_a_changed_line_has_its_file_also_under_a_commit():
    text = compress(shown(12), max_tokens=500, query="value_7_3").text
    assert "value_7_3 = compute(3)" in text
    before = text[: text.index("value_7_3 =")]
    assert before.rpartition("diff --git ")[2].startswith("a/src/f7.py")
    assert "commit 0123456789" in text


@pytest.mark.parametrize("max_chars", range(160, 520, 8))
def test_no_budget_separates_a_removed_line_from_the_line_in_its_place(max_chars: int) -> None:
    changes = "".join(
        f" context_{n} stays as it is\n-lift_{n}(crane_{n}, load_{n})\n"
        f"+lift_{n}(crane_{n}, part_{n})\n"
        for n in range(12)
    )
    diff = f"diff --git a/c.py b/c.py\n--- a/c.py\n+++ b/c.py\n@@ -1,24 +1,24 @@\n{changes}"
    retained = compress(diff, max_chars=max_chars).text.split("\n")
    for n in range(12):
        old, new = f"-lift_{n}(crane_{n}, load_{n})", f"+lift_{n}(crane_{n}, part_{n})"
        assert (old in retained) == (new in retained)


def test_the_versions_of_an_entry_of_a_list_stay_together_beside_new_entries() -> None:
    new = [f"+\tharbor.example/part{n} v0.{n}.0\n" for n in range(30)]
    new.insert(20, "+\tharbor.example/crane v1.0.10\n")
    changes = "-\tharbor.example/crane v1.0.9\n" + "".join(new)
    diff = f"diff --git a/m.mod b/m.mod\n--- a/m.mod\n+++ b/m.mod\n@@ -1,1 +1,31 @@\n{changes}"
    for max_chars in range(200, 900, 20):
        retained = compress(diff, max_chars=max_chars).text
        assert ("crane v1.0.9" in retained) == ("crane v1.0.10" in retained)


def test_a_finding_in_a_short_list_has_its_file():
    findings = [
        {"level": level, "line": line, "column": 4, "filePath": f"/src/quay/crane_{line}.ts",
         "message": f"part_{line} is assigned a value but never used in this module", "rule": "x"}
        for level, line in (("warning", 10), ("warning", 15), ("error", 20))
    ]  # fmt: skip
    text = json.dumps(findings, indent=4)
    for max_chars in range(120, len(text) // 2, 20):
        for finding in json.loads(compress(text, max_chars=max_chars).text):
            if "line" in finding or "message" in finding:
                assert "filePath" in finding


def test_a_condition_has_its_type():
    conditions = [
        {"lastHeartbeatTime": "2026-03-01T16:02:35Z", "lastTransitionTime": "2026-03-01T15:00:00Z",
         "message": f"the harbor has sufficient {part} available", "reason": f"Harbor{part}",
         "status": "False", "type": f"{part}Pressure"}
        for part in ("Memory", "Disk", "Process", "Network")
    ]  # fmt: skip
    images = [
        {"names": [f"quay.example/crane-{n}@sha256:{n:064x}"], "sizeBytes": 1000 * n}
        for n in range(17)
    ]
    status = {"allocatable": {"cpu": "4"}, "conditions": conditions, "images": images}
    text = json.dumps({"status": status}, indent=2)
    for max_chars in range(200, 1_200, 40):
        shown = json.loads(compress(text, max_chars=max_chars).text)
        rows = expand(shown["status"].get("conditions", []))
        assert all("type" in row for row in rows if "message" in row or "reason" in row)


def test_the_subjects_of_commits_precede_those_of_merges():
    subjects = [f"Crane {n} lifts part {n}" if n % 2 else f"Merge branch 'b{n}'" for n in range(40)]
    log = "\n".join(
        f"commit {n:040x}\nAuthor: Ann <ann@example.org>\nDate:   Mon Mar 2 10:{n:02}:00 2026\n\n"
        f"    {subject}\n"
        for n, subject in enumerate(subjects)
    )
    text = compress(log, max_chars=len(log) // 3).text
    assert text.count("lifts part") >= 12
    assert "Merge branch" not in text


def test_rows_of_a_table_form_runs_and_an_error_is_among_them():
    rows = [f"crane-{n},quay {n % 7},{'x' * (n * 37 % 90)},idle" for n in range(200)]
    rows[150] = "crane-150,quay 3,,failed: the hook is stuck"
    text = "\n".join(["name,place,note,state", *rows]) + "\n"
    shown = compress(text, max_chars=len(text) // 4).text
    assert shown.startswith("name,place,note,state\ncrane-0,")
    assert "failed: the hook is stuck" in shown
    assert shown.count("[…") <= 4
