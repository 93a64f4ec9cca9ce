"""Tokens that the owner of a home has given to others."""

import json
import stat
from pathlib import Path

import pytest

from upwell.ground.errors import StoreCorrupt, UsageError
from upwell.ground.secrets.redact import redact
from upwell.ground.types.principal import OWNER, Role, granted
from upwell.web.tokens import PREFIX, Tokens, issue, revoke, shared_token, token_of, tokens_in

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
    team = shared_token(tmp_path / "team", b"s" * 32)
    for token in (issue(path, "ada"), token_of(tmp_path / "own"), team):
        assert token.startswith(PREFIX)
        assert redact(f"the token of ada is {token}, which works") == (
            "the token of ada is [REDACTED:upwell-token], which works",
            ("upwell-token",),
        )


def test_a_team_token_is_valid_everywhere(path: Path, tmp_path: Path) -> None:
    team = shared_token(tmp_path / "team", b"s" * 32)
    tokens = Tokens(OWN, path, lambda: team)
    assert tokens.principal_of(team) == OWNER
    assert tokens.principal_of(team[1:]) is None
    assert Tokens(OWN, path, lambda: "").principal_of("") is None


def test_a_damaged_file_of_the_team_token_is_written_again(tmp_path: Path) -> None:
    shown = tmp_path / "token"
    shown.write_bytes(b"\xff\xfe")
    team = shared_token(shown, b"s" * 32)
    assert shown.read_text().strip() == team


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


def test_a_token_has_a_role_and_a_tenant(path: Path) -> None:
    tokens = Tokens(OWN, path)
    ada = issue(path, "ada", ["team/*"], tenant="acme", role=Role.READER)
    assert tokens.principal_of(ada) == granted("ada", ["team/*"], "acme", Role.READER)
    for tenant in ("a\nb", "x" * 201, "\ud800", "a\0"):
        with pytest.raises(UsageError, match="tenant"):
            issue(path, "bob", tenant=tenant)


def test_a_token_of_an_earlier_version_is_a_writers(path: Path) -> None:
    token = issue(path, "ada", ["decisions"])
    rows = json.loads(path.read_text())
    for row in rows["tokens"]:
        del row["role"], row["tenant"]
    path.write_text(json.dumps(rows))
    assert Tokens(OWN, path).principal_of(token) == granted("ada", ["decisions"])
