"""Methods that upwell does not know: they go to whichever server does.

Tasks are such: a task belongs to the server that began it, and its id is all that says so later. It
also belongs to the principal whose call began it: for anybody else it is not there.
"""

from collections.abc import Callable, Sequence

from upwell.gateway.client import Caller, text_of
from upwell.gateway.refusal import Refused
from upwell.gateway.upstream import State, Upstream
from upwell.ground.errors import UpstreamError
from upwell.ground.principal import Principal
from upwell.ground.types import Reply
from upwell.wire.peer import INVALID_PARAMS, METHOD_NOT_FOUND, error_code
from upwell.wire.rawjson import NotJson, RawArray, RawObject, kind_of

MOST_TASKS = 10_000
LIST = "tasks/list"


class Foreign:
    """Passes requests on to the first server that knows the method, and notes whose a task is."""

    def __init__(self, upstreams: Callable[[], Sequence[Upstream]]) -> None:
        self._upstreams = upstreams
        self._tasks: dict[str, str] = {}
        self._whose: dict[str, set[Principal]] = {}

    async def ask(self, method: str, params: RawObject, caller: Caller) -> Reply | None:
        """The answer of the first server that has one. None: nobody knows the method.

        Raises:
            UpstreamError: the server whose task it is cannot be asked.
            Refused: the task is somebody else's.
        """
        task = text_of(params, "taskId")
        if not self._may_see(task, caller):
            raise Refused(INVALID_PARAMS, f"Unknown task: {task}")
        owner = self._tasks.get(f"{caller.session} {task}") if task else None
        refusal: Reply | None = None
        for upstream in self._upstreams():
            if owner not in (None, upstream.name) or upstream.state is not State.READY:
                continue
            try:
                reply = await upstream.call(method, params, caller)
            except UpstreamError:
                if owner:
                    raise
                continue
            if not reply.error:
                return self._shown(reply, caller) if method == LIST else reply
            if error_code(reply.error) != METHOD_NOT_FOUND:
                refusal = refusal or reply
        return refusal

    def _shown(self, reply: Reply, caller: Caller) -> Reply:
        """A list of tasks without those of other principals."""
        try:
            result = RawObject.parse(reply.result)
            tasks = [
                RawObject.parse(raw) for raw in RawArray.parse(result.get("tasks") or b"[]").items
            ]
        except NotJson:
            return reply
        shown = tuple(
            task.encode() for task in tasks if self._may_see(text_of(task, "taskId"), caller)
        )
        if len(shown) == len(tasks):
            return reply
        return Reply(result=result.replaced("tasks", RawArray(shown).encode()).encode())

    def _may_see(self, task: str, caller: Caller) -> bool:
        return caller.principal in self._whose.get(task, {caller.principal})

    def note(self, upstream: Upstream, reply: Reply, caller: Caller) -> None:
        """Remember whose task a result began."""
        if b'"taskId"' not in reply.result[:4096]:
            return
        try:
            result = RawObject.parse(reply.result)
            inside = result.get("task") or b""
            task = text_of(
                RawObject.parse(inside) if kind_of(inside) == "object" else result, "taskId"
            )
        except NotJson:
            return
        if task:
            if len(self._tasks) >= MOST_TASKS:
                del self._tasks[next(iter(self._tasks))]
            if len(self._whose) >= MOST_TASKS:
                del self._whose[next(iter(self._whose))]
            self._tasks[f"{caller.session} {task}"] = upstream.name
            self._whose.setdefault(task, set()).add(caller.principal)
