"""The values of a record that matter without a question."""

import json

from upwell.compress import compress

ABOUT = {
    "node_id": "PRRC_kwDOQyo98M6lwyzB",
    "reactions": {"total_count": 0, "heart": 0, "rocket": 0},
    "user": {"login": "ada", "gravatar_id": "", "site_admin": False, "type": "User"},
    "links": {name: f"https://api.example.org/{name}/7" for name in ("self", "html", "issue")},
    "position": 25,
}


def test_a_comment_keeps_what_its_author_wrote() -> None:
    body = "The crane stops when the rope is wet, because the brake reads the old gauge."
    comments = [{**ABOUT, "id": 2781031617, "body": body, "path": "src/crane.py"}]
    shortened = json.loads(compress(json.dumps(comments), max_chars=320).text)
    assert shortened[0]["body"] == body


def test_a_record_of_a_short_list_keeps_its_name() -> None:
    words = ("fail", "panic", "denied", "timeout", "crash")
    containers = [
        {
            "args": [f"--{word}-error={word}" for word in words],
            "name": f"the-container-with-a-rather-long-name-that-lifts-crane-{number}",
            "env": {f"BERTH_{key}": f"{number}-{key}" for key in range(30)},
        }
        for number in range(2)
    ]
    text = json.dumps({"kind": "DaemonSet", "spec": {"containers": containers}})
    for chars in (330, 510, 700):
        shortened = json.loads(compress(text, max_chars=chars).text)
        records = [
            item for item in shortened["spec"]["containers"] if item.keys() & {"args", "env"}
        ]
        assert records
        assert all("name" in record for record in records)
