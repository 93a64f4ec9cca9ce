"""Documents of many megabytes: records are chosen before they are read."""

import json

from tests.tables import expand

from upwell.compress import compress
from upwell.compress.json.tree import LARGE_CHARS, thin
from upwell.compress.relevance import ask

RECORDS = 24_000


def document(envelope: bool) -> str:
    rows = [
        {"id": n, "name": f"user {n}", "mail": f"u{n}@example.org", "note": {"text": "x" * 30}}
        for n in range(RECORDS)
    ]
    return json.dumps({"status": "ok", "page": {"next": 2}, "rows": rows} if envelope else rows)


def test_the_matching_record_is_kept_and_the_others_are_counted() -> None:
    for envelope in (False, True):
        text = document(envelope)
        assert len(text) > LARGE_CHARS
        result = compress(text, max_chars=3_000, query="what is the mail of user 17321?")
        retained = json.loads(result.text)
        assert '"u17321@example.org"' in result.text
        assert len(result.text) <= 3_000
        assert f"of {RECORDS:,} items" in result.text
        if envelope:
            assert retained["status"] == "ok"


def test_without_a_question_records_are_sampled_from_everywhere() -> None:
    retained = expand(json.loads(compress(document(False), max_chars=9_000).text))
    ids = [int(row["name"].removeprefix("user ")) for row in retained]
    assert ids == sorted(ids)
    assert max(ids) > 2 * len(ids)


def test_broken_json_is_not_read_as_json() -> None:
    assert thin(document(False)[:-1], ask("")) is None
    assert thin(document(False)[:-1] + "}", ask("")) is None
