"""Rules, successors, expiry, listings and the trash, on the command line."""

from pathlib import Path

import pytest

from tests.conftest import Upwell

FACT = "The zanzibar service listens on port 8080"


def texts(done: object) -> list[str]:
    return [hit["text"] for hit in done.json["hits"]]


def test_a_rule_is_given_once_a_session_and_never_found(upwell: Upwell) -> None:
    rule = upwell("remember", "--pin", "Never force-push to main").line
    assert upwell("recall", "force-push main", "--json").json == {"hits": []}
    (listed,) = upwell("recall", "--pinned", "--json").json["hits"]
    assert (listed["id"], listed["pinned"]) == (rule, True)
    ask = ("context", "--door", "prompt", "--session", "s", "how do I bake bread at home?")
    assert "Never force-push" in upwell(*ask).out
    assert "Never force-push" not in upwell(*ask).out


def test_only_the_newer_memory_is_surfaced_and_it_is_listed_first(upwell: Upwell) -> None:
    old = upwell("remember", FACT).line
    new = upwell("remember", "It moved to 9090", "--supersedes", old).line
    hits = upwell("recall", "zanzibar port", "--json").json["hits"]
    assert [(hit["id"], hit["superseded"]) for hit in hits] == [(new, False), (old, True)]
    assert hits[0]["supersedes"] == old
    reply = upwell("context", "which port does the zanzibar service use?", "--json").json
    assert [entry["id"] for entry in reply["entries"]] == [new]
    listed = upwell("recall", "--json").json["hits"]
    assert {hit["id"]: hit["superseded"] for hit in listed} == {new: False, old: True}
    assert "(superseded)" in upwell("recall").out
    assert upwell("forget", new).code == 0
    assert texts(upwell("recall", "zanzibar port", "--json")) == [FACT]


def test_a_missing_memory_cannot_be_superseded(upwell: Upwell) -> None:
    done = upwell("remember", "x", "--supersedes", "nobody")
    assert done.code == 2
    assert "nobody" in done.err
    assert upwell("recall", "--json").json == {"hits": []}


def test_a_time_to_live(upwell: Upwell) -> None:
    upwell("remember", FACT, "--ttl", "1h")
    (hit,) = upwell("recall", "zanzibar", "--json").json["hits"]
    assert hit["expires_at"] > hit["created_at"]
    for wrong in ("soon", "0d", "-1d", "1y"):
        assert upwell("remember", "x", f"--ttl={wrong}").code == 2


def test_listing_everything_and_the_trash(upwell: Upwell) -> None:
    ids = [upwell("remember", f"note number {n}").line for n in range(3)]
    assert [hit["id"] for hit in upwell("recall", "--json").json["hits"]] == ids[::-1]
    assert len(upwell("recall", "-k", "2", "--json").json["hits"]) == 2
    upwell("forget", ids[0])
    assert [hit["id"] for hit in upwell("recall", "--trash", "--json").json["hits"]] == [ids[0]]
    assert upwell("recall", "words", "--trash").code == 2


def test_duplicates_are_reported_and_stored(upwell: Upwell) -> None:
    first = upwell("remember", FACT).line
    again = upwell("remember", FACT, "--json")
    assert again.json["duplicates"] == [first]
    assert first in upwell("remember", f"{FACT} now").err
    assert len(upwell("recall", "--json").json["hits"]) == 3


@pytest.mark.parametrize("trashed", [False, True])
def test_forget_now_is_permanent(upwell: Upwell, home: Path, trashed: bool) -> None:
    id = upwell("remember", FACT, "--path", "src/zanzibar.py").line
    upwell("remember", "Bread needs salt")
    if trashed:
        upwell("forget", id)
    assert upwell("forget", "--now", id).code == 0
    assert upwell("restore", id).code == 1
    assert upwell("forget", "--now", id).code == 1
    assert upwell("recall", "--trash", "--json").json == {"hits": []}
    for path in home.glob("*"):
        if path.is_file():
            assert b"zanzibar" not in path.read_bytes(), path
    assert texts(upwell("recall", "--json")) == ["Bread needs salt"]
