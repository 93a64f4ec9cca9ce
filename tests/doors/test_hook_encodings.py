"""Events as Windows programs, links and damaged pipes deliver them, through the real executable."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.hook_events import HOSTS
from tests.doors.hooked import House

RULE = "Never commit to the main branch"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("encodings"))
    house.upwell("remember", "--pin", RULE)
    house.start()
    yield house
    house.stop()


def start(house: House, session: str, cwd: Path | None = None) -> str:
    event = HOSTS["cursor"].session(str(cwd or house.project))
    return json.dumps({**event, "conversation_id": session})


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("end", ["", "\r\n", "\0"])
def test_an_event_in_another_encoding_is_answered(house: House, encoding: str, end: str) -> None:
    event = start(house, f"{encoding}{end!r}") + end
    assert RULE in str(house.hook("cursor", event=event.encode(encoding)).json)


def test_a_workspace_behind_a_link_has_its_rules(house: House) -> None:
    link = house.project.parent / "link"
    link.symlink_to("project")
    assert RULE in str(house.hook("cursor", event=start(house, "link", link).encode()).json)


@pytest.mark.parametrize("body", [b"\x00\x01garbage", b'{"hook_event_name":"sessionStart","cw'])
def test_an_event_that_cannot_be_read_shows_in_explain(house: House, body: bytes) -> None:
    def traces() -> int:
        return house.upwell("explain", "-n", "20").count("Cursor, it is not JSON")

    before = traces()
    assert house.hook("cursor", event=body).json == {}
    deadline = time.monotonic() + 15
    while (after := traces()) == before and time.monotonic() < deadline:
        time.sleep(0.2)
    assert after == before + 1
