"""Tasks belong to the principal whose call began them."""

import json
from typing import Any

import pytest

from upwell.gateway.client import Caller, Session
from upwell.gateway.foreign import Foreign
from upwell.gateway.refusal import Refused
from upwell.gateway.upstream import State
from upwell.ground.principal import Principal
from upwell.ground.types import Reply
from upwell.wire.rawjson import RawObject, dumps


class Server:
    """A server with two tasks."""

    name = "s"
    state = State.READY

    async def call(self, method: str, params: RawObject, client: Any) -> Reply:
        tasks = [{"taskId": name, "status": "working"} for name in ("t1", "t2")]
        return Reply(result=dumps({"tasks": tasks} if method == "tasks/list" else tasks[0]))


def caller(name: str) -> Caller:
    session = Session(None, principal=Principal(name))  # type: ignore[arg-type]
    return Caller(session, None, None)  # type: ignore[arg-type]


@pytest.fixture
def foreign() -> Foreign:
    server: Any = Server()
    foreign = Foreign(lambda: [server])
    foreign.note(server, Reply(result=b'{"task":{"taskId":"t1"}}'), caller("ada"))
    return foreign


async def listed(foreign: Foreign, name: str) -> list[str]:
    reply = await foreign.ask("tasks/list", RawObject(), caller(name))
    assert reply
    return [task["taskId"] for task in json.loads(reply.result)["tasks"]]


async def test_a_task_is_there_for_its_principal_in_any_session(foreign: Foreign) -> None:
    asked = RawObject.parse(b'{"taskId":"t1"}')
    for method in ("tasks/get", "tasks/cancel", "tasks/result"):
        assert await foreign.ask(method, asked, caller("ada"))
        for other in ("bob", ""):
            with pytest.raises(Refused):
                await foreign.ask(method, asked, caller(other))


async def test_lists_leave_out_others_tasks(foreign: Foreign) -> None:
    assert await listed(foreign, "ada") == ["t1", "t2"]
    assert await listed(foreign, "bob") == ["t2"], "of t2 nobody knows whose it is"
