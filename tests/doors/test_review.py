"""`upwell inbox review` on a terminal and without one."""

import json
import sys
from pathlib import Path

import pytest

from tests.doors.hooked import House
from tests.doors.terminal import typed

REVIEW = [sys.executable, "-P", "-m", "upwell", "inbox", "review"]


@pytest.fixture
def house(tmp_path: Path) -> House:
    house = House(tmp_path / "house")
    (house.project / "src" / "till.py").write_text("")
    house.keep(
        [
            {
                "id": "gone-a",
                "created_at": 1000,
                "text": "Sums are in src/sum.py.",
                "paths": ["src/sum.py"],
            },
            {
                "id": "gone-b",
                "created_at": 1001,
                "text": "Tips are in src/tip.py.",
                "paths": ["src/tip.py"],
            },
            {
                "id": "good",
                "created_at": 1002,
                "text": "Tills are in src/till.py.",
                "paths": ["src/till.py"],
            },
            {
                "id": "elsewhere",
                "created_at": 1003,
                "text": "In gone.py.",
                "paths": ["gone.py"],
                "project": "/nowhere",
            },
        ]
    )
    return house


def listed(house: House, *args: str) -> list[str]:
    return [
        item["id"]
        for item in json.loads(house.upwell("inbox", "review", "--json", *args))["offers"]
    ]


def test_offers_are_listed_with_their_reasons(house: House) -> None:
    assert sorted(listed(house)) == ["gone-a", "gone-b"]
    assert len(listed(house, "--every-project")) == 3
    assert listed(house, "--reason", "duplicate") == []
    first, *_ = house.upwell("inbox", "review").splitlines()
    assert first.split("\t")[1:3] == ["stale", "src/sum.py is gone"]


def test_a_person_decides_about_each(house: House) -> None:
    shown = typed(REVIEW, ["k", "d", "q"], house.environment, house.project)
    assert "1 of 2: stale" in shown
    assert "src/sum.py is gone" in shown
    assert listed(house) == []
    trash = json.loads(house.upwell("recall", "--trash", "--json"))["hits"]
    assert [hit["id"] for hit in trash] == ["gone-b"]
    house.upwell("restore", "gone-b")
    assert listed(house) == ["gone-b"]


def test_all_of_one_reason_are_removed_without_asking(house: House) -> None:
    assert "--yes needs --reason" in house.refused("inbox", "review", "--yes")
    assert "'old' is unknown" in house.refused("inbox", "review", "--reason", "old")
    assert house.upwell("inbox", "review", "--reason", "stale", "--yes").startswith(
        "2 memories removed"
    )
    assert listed(house) == []
    assert len(listed(house, "--every-project")) == 1
