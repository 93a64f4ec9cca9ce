"""The calls that an upstream is working on, and whom what it says meanwhile is for.

Progress belongs to one call, by a token that is ours alone. A request or a log message belongs to
nobody by name: it goes to the client whose calls are under way. Where several clients wait at
once and it cannot be told whose it is, a request is declined: the wrong client's answer would be
worse. A call that its client gave up is under way as well until the server answers it.
"""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from upwell.gateway.client import Client
from upwell.gateway.eras import meta_of
from upwell.ground.trace import LOG
from upwell.wire.rawjson import NotJson, RawObject

PROGRESS = "notifications/progress"
LEFT_SECONDS = 300.0
"""So long a server may still ask about a call that was given up; most never answer such a call."""
MOST_LEFT = 1_000


class Patience:
    """How long a call may still take. Signs of life begin it anew, and it stands still while the
    client is asked something: people are slow."""

    def __init__(self, timeout: asyncio.Timeout, seconds: float) -> None:
        self._timeout = timeout
        self._seconds = seconds
        self._held = 0

    def renew(self) -> None:
        if not self._held and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._seconds)

    def hold(self) -> None:
        self._held += 1
        if not self._timeout.expired():
            self._timeout.reschedule(None)

    def release(self) -> None:
        self._held -= 1
        self.renew()


@dataclass(slots=True, eq=False)
class Call:
    """A request to the server. `sent`: it may know of it."""

    client: Client
    patience: Patience | None
    params: RawObject
    sent: bool = False
    token: bytes | None = None
    """What the client calls its progress."""
    asked: int = 0
    """How many questions its client has not answered yet."""


class InFlight:
    """What is under way on one connection."""

    def __init__(self) -> None:
        self._calls: dict[Call, None] = {}
        self._left: dict[Call, float] = {}
        self._by_token: dict[bytes, Call] = {}
        self._tokens = itertools.count(1)

    @contextmanager
    def begun(
        self, params: RawObject, client: Client, patience: Patience | None = None
    ) -> Iterator[Call]:
        """A call, from its beginning to its end, with the params to send."""
        call = Call(client, patience, params)
        ours = b""
        if "_meta" in params:
            meta = meta_of(params)
            call.token = meta.get("progressToken")
            if call.token is not None:
                ours = b"%d" % next(self._tokens)
                self._by_token[ours] = call
                call.params = params.replaced(
                    "_meta", meta.replaced("progressToken", ours).encode()
                )
        self._calls[call] = None
        try:
            yield call
        except asyncio.CancelledError:
            self._leave(call)
            raise
        finally:
            del self._calls[call]
            self._by_token.pop(ours, None)

    def clients(self) -> list[Client]:
        """Who waits, the latest call of each agent, in order."""
        found = {call.client.agent: call.client for call in self._calls if call.client.agent}
        return list(found.values())

    def answered(self, call: Call) -> None:
        """The server answered a call that had been given up."""
        self._left.pop(call, None)

    def whose(self, otherwise: Client | None = None) -> Client | None:
        """Whose request it must be, if that can be told; that of `otherwise` where nobody waits.
        Among clients of one person those that are not being asked already: a call that waits for
        its answer seldom asks once more."""
        client = self._waiting() if self.clients() else otherwise
        return client if client is not None and self.left_by() <= {client.agent} else None

    def left_by(self) -> set[object]:
        """Whose calls were given up, and may still be worked on."""
        if not self._left:
            return set()
        now = asyncio.get_running_loop().time()
        self._left = {call: until for call, until in self._left.items() if until > now}
        return {call.client.agent for call in self._left}

    def _leave(self, call: Call) -> None:
        if call.sent and call.client.agent:
            self._left[call] = asyncio.get_running_loop().time() + LEFT_SECONDS
        if len(self._left) > MOST_LEFT:
            del self._left[next(iter(self._left))]

    def _waiting(self) -> Client | None:
        """The one client that waits and is not being asked already."""
        clients = self.clients()
        if len(clients) > 1 and len({client.principal for client in clients}) == 1:
            asked = {call.client.agent for call in self._calls if call.asked}
            clients = [one for one in clients if one.agent not in asked]
        return clients[0] if len(clients) == 1 else None

    @contextmanager
    def asking(self, client: Client) -> Iterator[None]:
        """While a client is asked, its calls do not run out of time."""
        calls = [call for call in self._calls if call.client.agent == client.agent]
        patient = [call.patience for call in calls if call.patience]
        asked = [call for call in calls if call.client is client]
        for call in asked:
            call.asked += 1
        for patience in patient:
            patience.hold()
        try:
            yield
        finally:
            for call in asked:
                call.asked -= 1
            for patience in patient:
                patience.release()

    async def progressed(self, raw: bytes) -> None:
        """Pass progress on, under the name that the client gave it."""
        try:
            params = RawObject.parse(raw)
        except NotJson:
            return
        call = self._by_token.get(params.get("progressToken") or b"")
        if call is None or call.token is None:
            LOG.debug("progress of a call that has ended")
            return
        if call.patience:
            call.patience.renew()
        await call.client.tell(PROGRESS, params.replaced("progressToken", call.token).encode())
