"""Events in other encodings, and events that cannot be read."""

import json
from collections.abc import Callable

import pytest
from tests.unit.hook.test_door import RULE

from upwell.ground.host_sessions import HostSessions
from upwell.ground.ledger import TtlStore
from upwell.hook.client import UNNAMED, decoded
from upwell.hook.door import HookDoor, HookParts
from upwell.hosts import HOSTS
from upwell.surface.options import PipelineOptions, SurfaceOptions
from upwell.surface.pipeline import Surfacer
from upwell.testing import FakeRecall

BOM = b"\xef\xbb\xbf"
ENCODINGS: dict[str, Callable[[str], bytes]] = {
    "UTF-8": str.encode,
    "UTF-8 with a mark": lambda text: BOM + text.encode(),
    "a NUL at the end": lambda text: text.encode() + b"\0",
    "NULs and a line break": lambda text: text.encode() + b"\r\n\0\0",
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16, big first": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-le"),
    "UTF-16 without a mark, big first": lambda text: text.encode("utf-16-be"),
    "UTF-16 with a NUL": lambda text: text.encode("utf-16") + b"\0\0",
    "UTF-16 with half a character": lambda text: text.encode("utf-16") + b"\0",
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_event_is_decoded(encoding: str) -> None:
    text = '{"prompt":"Wie heißt der Kran? 吊车 🏗"}'
    assert decoded(ENCODINGS[encoding](text)).decode() == text


@pytest.mark.parametrize(
    ("odd", "expected"),
    [
        *((blank, b"") for blank in (b"", b"\0", b"\0\0\0", b"\xff\xfe", b"\xfe\xff\0")),
        (b"{", b"{"),
        (b"\xff", b"\xff"),
    ],
)
def test_odd_bytes_are_decoded_as_far_as_they_go(odd: bytes, expected: bytes) -> None:
    assert decoded(odd) == expected


def door() -> tuple[HookDoor, Surfacer]:
    ttl_store = TtlStore()
    options = PipelineOptions(surface=SurfaceOptions(moments="all"))
    surfacer = Surfacer(FakeRecall(rules=[RULE]), ttl_store, options)
    return HookDoor(surfacer, HostSessions(ttl_store), opt_ins=HookParts(limit_seconds=5)), surfacer


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_an_event_is_answered_in_every_encoding(encoding: str) -> None:
    event = {"session_id": "s", "cwd": "/p", "hook_event_name": "SessionStart", "source": "startup"}
    answering, _ = door()
    answer = await answering.answer("claude", "", ENCODINGS[encoding](json.dumps(event)))
    assert RULE.text.encode() in answer


async def test_bytes_that_are_not_utf_8_cost_no_event() -> None:
    event = {"session_id": "s", "cwd": "/p", "hook_event_name": "SessionStart", "source": "?"}
    answering, _ = door()
    body = json.dumps(event).encode().replace(b"?", b"\xe9\xff")
    assert RULE.text.encode() in await answering.answer("claude", "", body)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"cwd": "/p", "prompt": "a secret', "not JSON"),
        (b"secret", "not JSON"),
        (b'["secret"]', "not a JSON object"),
        (b'{"a":' * 2_000 + b'"secret"' + b"}" * 2_000, "n"),
    ],
)
@pytest.mark.parametrize("name", [UNNAMED, "", "Stop"])
async def test_an_event_that_cannot_be_read_leaves_a_trace(
    host: str, body: bytes, why: str, name: str
) -> None:
    answering, surfacer = door()
    assert await answering.answer(host, name, body) == b"{}"
    (decision,) = await surfacer.journal.latest(9)
    assert decision["outcome"] == "unreadable"
    assert decision["host"] == host
    assert HOSTS[host].title in decision["detail"]
    assert why in decision["detail"]
    assert "secret" not in str(decision)
    assert answering.outcomes[host, "unreadable"] == 1


async def test_events_that_upwell_does_not_use_leave_no_trace() -> None:
    answering, surfacer = door()
    for body in (b"{}", b'{"hook_event_name":"Notification"}', b'{"session_id":"s"}'):
        assert await answering.answer("claude", "", body) == b"{}"
    assert await surfacer.journal.latest(9) == []
