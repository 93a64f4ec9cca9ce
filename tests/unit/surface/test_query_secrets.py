"""A query is stored and sent to other places, so no part of a secret may get into one."""

import re

import pytest
from tests.unit.ground.secrets.formats import SURROUNDINGS, part_of, secrets

from upwell.ground.types.cue import Cue
from upwell.surface.query import CueReader

SECRETS = secrets()


def joined(cue: Cue) -> str:
    query = CueReader().query(cue, 5)
    return "" if query is None else " ".join([*query.texts, *query.paths, *query.symbols])


@pytest.mark.parametrize("around", sorted(SURROUNDINGS))
def test_no_word_of_a_secret_is_searched_for(around: str) -> None:
    left = []
    for name, secret in SECRETS.items():
        text = SURROUNDINGS[around](secret)
        asked = joined(Cue(door="prompt", text=f"why does {text} not work with the deploy value?"))
        called = joined(Cue(door="tool", tool="Bash", args={"command": f"deploy {text} now"}))
        pieces = re.findall(r"[A-Za-z0-9]{8,}", part_of(secret))
        if any(piece.lower() in (asked + called).lower() for piece in pieces):
            left.append(name)
    assert left == []


def test_the_rest_of_a_message_is_searched_for() -> None:
    asked = joined(Cue(door="prompt", text=f"why does {SECRETS['npm']} break the settlement?"))
    assert "settlement" in asked
    assert "redacted" not in asked.lower()
