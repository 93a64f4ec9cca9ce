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
