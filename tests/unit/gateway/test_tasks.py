"""Tasks belong to the principal whose call began them."""

import json
from typing import Any

import pytest

from upwell.gateway.clients import RequestContext, RequestRefused, Session
from upwell.gateway.routing.router import Tasks
from upwell.gateway.upstreams.supervisor import ServerState
from upwell.ground.errors import UpstreamUnavailable
from upwell.ground.types.rpc import Principal, Reply
from upwell.wire.rawjson import RawObject, dumps


class Server:
    """A server with two tasks."""

    name = "s"
    state = ServerState.READY

    async def call(self, method: str, params: RawObject, client: Any) -> Reply:
        tasks = [{"taskId": name, "status": "working"} for name in ("t1", "t2")]
        return Reply(result=dumps({"tasks": tasks} if method == "tasks/list" else tasks[0]))


def context(name: str) -> RequestContext:
    session = Session(None, principal=Principal(name))
    return RequestContext(session, None, None)


@pytest.fixture
def tasks() -> Tasks:
    server: Any = Server()
    tasks = Tasks(lambda: [server])
    tasks.record(server, Reply(result=b'{"task":{"taskId":"t1"}}'), context("ada"))
    return tasks


async def listed(tasks: Tasks, name: str) -> list[str]:
    reply = await tasks.forward("tasks/list", RawObject(), context(name))
    assert reply
    return [task["taskId"] for task in json.loads(reply.result)["tasks"]]


async def test_a_task_is_visible_to_its_principal_in_any_session(tasks: Tasks) -> None:
    asked = RawObject.parse(b'{"taskId":"t1"}')
    for method in ("tasks/get", "tasks/cancel", "tasks/result"):
        assert await tasks.forward(method, asked, context("ada"))
        for other in ("bob", ""):
            with pytest.raises(RequestRefused):
                await tasks.forward(method, asked, context(other))


async def test_a_task_that_no_call_began_is_nobodys(tasks: Tasks) -> None:
    for name in ("ada", "bob"):
        with pytest.raises(RequestRefused):
            await tasks.forward("tasks/get", RawObject.parse(b'{"taskId":"t2"}'), context(name))
    assert await tasks.forward("vendor/ask", RawObject(), context("ada"))


async def test_a_task_of_a_server_that_is_down_says_so() -> None:
    server: Any = Server()
    tasks, ada = Tasks(lambda: [server]), context("ada")
    tasks.record(server, Reply(result=b'{"task":{"taskId":"t1"}}'), ada)
    server.state = ServerState.FAILED
    with pytest.raises(UpstreamUnavailable, match="'s', which runs this task, is not connected"):
        await tasks.forward("tasks/get", RawObject.parse(b'{"taskId":"t1"}'), ada)


async def test_lists_leave_out_the_tasks_of_others(tasks: Tasks) -> None:
    assert await listed(tasks, "ada") == ["t1"]
    assert await listed(tasks, "bob") == [], "of t2 nobody knows whose it is"
