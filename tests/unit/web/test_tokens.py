"""Tokens that the owner of a home has given to others."""

import json
import stat
from pathlib import Path

import pytest

from upwell.ground.errors import StoreCorrupt, UsageError
from upwell.ground.secrets.redact import redact
from upwell.ground.types.rpc import OWNER, Role, granted
from upwell.web.tokens import PREFIX, Tokens, issue, revoke, token_of, tokens_in

OWN = "o" * 43


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def test_a_token_identifies_its_user_and_their_namespaces(path: Path) -> None:
    tokens = Tokens(OWN, path)
    ada, bob = issue(path, "ada", ["Decisions", "decision"]), issue(path, "bob")
    assert tokens.principal_of(OWN) == OWNER
    assert tokens.principal_of(ada) == granted("ada", ["decisions"])
    assert tokens.principal_of(bob) == granted("bob")
    assert [tokens.principal_of(wrong) for wrong in ("", "x", OWN[:-1], f"{ada} ", "é\ud800")] == [
        None
    ] * 5


def test_every_new_token_is_recognised_as_a_secret(path: Path, tmp_path: Path) -> None:
    for token in (issue(path, "ada"), token_of(tmp_path / "own")):
        assert token.startswith(PREFIX)
        assert redact(f"the token of ada is {token}, which works") == (
            "the token of ada is [REDACTED:upwell-token], which works",
            ("upwell-token",),
        )


def test_a_revocation_takes_effect_at_once(path: Path) -> None:
    tokens = Tokens(OWN, path)
    ada, bob = issue(path, "ada"), issue(path, "bob")
    assert tokens.principal_of(ada)
    revoke(path, "ada")
    assert tokens.principal_of(ada) is None
    assert tokens.principal_of(bob)
    path.unlink()
    assert tokens.principal_of(bob) is None
    assert tokens.principal_of(OWN) == OWNER


def test_no_token_is_stored_and_the_file_is_private(path: Path) -> None:
    token = issue(path, "ada")
    assert token not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_invalid_file_admits_only_the_owner(path: Path) -> None:
    token = issue(path, "ada")
    tokens = Tokens(OWN, path)
    assert tokens.principal_of(token)
    path.write_text(json.dumps({"tokens": [{"name": "ada"}]}))
    assert tokens.principal_of(token) is None
    assert tokens.principal_of(OWN) == OWNER
    with pytest.raises(StoreCorrupt):
        tokens_in(path)
    with pytest.raises(StoreCorrupt):
        issue(path, "bob")


@pytest.mark.parametrize("name", ["", "ada ", "a/b", "upwell", "x" * 33])
def test_names_are_restricted(path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        issue(path, name)


def test_a_name_has_one_token(path: Path) -> None:
    issue(path, "ada")
    with pytest.raises(UsageError, match="already"):
        issue(path, "ada")
    with pytest.raises(UsageError, match="no token for"):
        revoke(path, "bob")
    with pytest.raises(UsageError, match="namespace"):
        issue(path, "bob", ["not a name"])
    assert [entry.principal.name for entry in tokens_in(path)] == ["ada"]


def test_a_token_has_a_role(path: Path) -> None:
    tokens = Tokens(OWN, path)
    ada = issue(path, "ada", ["team/*"], role=Role.READER)
    assert tokens.principal_of(ada) == granted("ada", ["team/*"], Role.READER)


def test_a_token_that_an_earlier_version_gave_to_another_tenant_is_not_valid(path: Path) -> None:
    ada, bob = issue(path, "ada"), issue(path, "bob")
    rows = json.loads(path.read_text())
    for row, tenant in zip(rows["tokens"], ("acme", ""), strict=True):
        row["tenant"] = tenant
    path.write_text(json.dumps(rows))
    assert Tokens(OWN, path).principal_of(ada) is None
    assert Tokens(OWN, path).principal_of(bob) == granted("bob")


def test_a_token_of_an_earlier_version_is_a_writers(path: Path) -> None:
    token = issue(path, "ada", ["decisions"])
    rows = json.loads(path.read_text())
    for row in rows["tokens"]:
        del row["role"]
    path.write_text(json.dumps(rows))
    assert Tokens(OWN, path).principal_of(token) == granted("ada", ["decisions"])
