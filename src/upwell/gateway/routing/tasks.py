"""Forwards methods that the gateway does not implement itself, such as `tasks/get`. A request about
a known task goes to the server that owns the task. Any other request is sent to each connected
server in turn, until one replies without an error."""

from collections.abc import Callable, Sequence

from upwell.gateway.clients import RequestContext, RequestRefused, text_of
from upwell.gateway.upstreams.supervisor import ServerState, Upstream
from upwell.ground.errors import UpstreamError, UpstreamUnavailable
from upwell.ground.types.principal import Principal
from upwell.ground.types.rpc import Reply
from upwell.wire.peer import INVALID_PARAMS, METHOD_NOT_FOUND, error_code
from upwell.wire.rawjson import NotJson, RawArray, RawObject, kind_of

MAX_TASKS = 10_000
"""How many tasks are remembered. The oldest are forgotten first."""
LIST = "tasks/list"


class Tasks:
    """Forwards requests, and remembers the server and the principals of each task."""

    def __init__(self, upstreams: Callable[[], Sequence[Upstream]]) -> None:
        self._upstreams = upstreams
        self._servers: dict[str, str] = {}
        """The server of each task, keyed by session and task id. The same id may belong to
        different servers in different sessions."""
        self._principals: dict[str, set[Principal]] = {}

    async def forward(
        self, method: str, params: RawObject, context: RequestContext
    ) -> Reply | None:
        """Return the first reply that is not an error, or else the first error other than "method
        not found", or else None.

        Raises:
            UpstreamError: the server that owns the task is down, or the call to it failed.
            RequestRefused: the task belongs to another principal, or no call of this gateway began
                it.
        """
        task = text_of(params, "taskId")
        if task and not self._may_see(task, context):
            raise RequestRefused(INVALID_PARAMS, f"Unknown task: {task}")
        owner = self._servers.get(f"{context.session} {task}") if task else None
        refusal: Reply | None = None
        for upstream in self._upstreams():
            if owner not in (None, upstream.name):
                continue
            if upstream.state is not ServerState.READY:
                if owner:
                    raise _without_owner(owner)
                continue
            try:
                reply = await upstream.call(method, params, context)
            except UpstreamError:
                if owner:
                    raise
                continue
            if not reply.error:
                return self._visible(reply, context) if method == LIST else reply
            if error_code(reply.error) != METHOD_NOT_FOUND:
                refusal = refusal or reply
        return refusal

    def record(self, upstream: Upstream, reply: Reply, context: RequestContext) -> None:
        """If this result starts a task, remember the task's server and principal."""
        try:
            result = RawObject.parse(reply.result)
            nested = result.get("task") or b""
            is_nested = kind_of(nested) == "object"
            task = text_of(RawObject.parse(nested) if is_nested else result, "taskId")
        except NotJson:
            return
        if not task:
            return
        if len(self._servers) >= MAX_TASKS:
            del self._servers[next(iter(self._servers))]
        if len(self._principals) >= MAX_TASKS:
            del self._principals[next(iter(self._principals))]
        self._servers[f"{context.session} {task}"] = upstream.name
        self._principals.setdefault(task, set()).add(context.principal)

    def _visible(self, reply: Reply, context: RequestContext) -> Reply:
        try:
            result = RawObject.parse(reply.result)
            items = RawArray.parse(result.get("tasks") or b"[]").items
            tasks = [RawObject.parse(raw) for raw in items]
        except NotJson:
            return reply
        visible = [task for task in tasks if self._may_see(text_of(task, "taskId"), context)]
        if len(visible) == len(tasks):
            return reply
        raw = RawArray(tuple(task.encode() for task in visible)).encode()
        return Reply(result=result.replaced("tasks", raw).encode())

    def _may_see(self, task: str, context: RequestContext) -> bool:
        return context.principal in self._principals.get(task, ())


def _without_owner(server: str) -> UpstreamUnavailable:
    return UpstreamUnavailable(
        f"upstream {server!r}, which runs this task, is not connected",
        server=server,
        hint="ask again once it is back; `upwell doctor` shows why it is down",
    )
