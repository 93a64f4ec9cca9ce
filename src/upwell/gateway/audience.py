"""Everybody in front, and who is told what: logs, changed lists, resources that were updated."""

from collections.abc import Callable, Iterable

from upwell.gateway.client import LEVELS, UPDATED, Client, Listener, Session, loud_enough, text_of
from upwell.wire.peer import Message
from upwell.wire.rawjson import NotJson, RawObject

LOGGED = "notifications/message"


class Audience:
    """The agents that are connected. `declared` gives what servers of the handshake era are told
    that our clients can do."""

    def __init__(self, declared: Callable[[], bytes] = lambda: b"{}") -> None:
        self.sessions: dict[str, Session] = {}
        self.listeners: set[Listener] = set()
        self.declared = declared

    def join(self, session: Session) -> None:
        self.sessions[session.id] = session

    def leave(self, session: Session) -> None:
        self.sessions.pop(session.id, None)

    def only_client(self) -> Client | None:
        """The agent, where there is just one."""
        return next(iter(self.sessions.values())) if len(self.sessions) == 1 else None

    def log_level(self) -> str:
        """The least level that any agent of the handshake era asked for."""
        asked = {session.log_level for session in self._handshaken()}
        return min(asked & set(LEVELS), key=LEVELS.index, default="")

    def _everybody(self) -> list[Session | Listener]:
        return [*self.sessions.values(), *self.listeners]

    def followed(self, uri: str) -> bool:
        """Does anybody want to hear of this resource?"""
        return any(uri in one.uris for one in self._everybody())

    async def heard(self, message: Message, clients: Iterable[Client]) -> None:
        """An upstream notified us; `clients` wait for it to answer."""
        method = message.method or ""
        try:
            params = RawObject.parse(message.params)
            if method == LOGGED:
                await self._logged(params, list(clients))
            elif method == UPDATED:
                await self._updated(params)
            else:
                await self.announce(method, message.params)
        except NotJson:
            return

    async def announce(self, method: str, params: bytes = b"") -> None:
        """Tell everybody who may want to know."""
        for hearer in self._everybody():
            await hearer.hear(method, params)

    async def _logged(self, params: RawObject, clients: list[Client]) -> None:
        """To the agents whose calls are under way; else to every agent of the handshake era. Where
        these are not all the same principal's it cannot be told whose it is, and nobody hears
        it."""
        waiting = {client.session for client in clients}
        idle = [one for one in self._handshaken() if one.id not in waiting and not waiting]
        if len({client.principal for client in (*clients, *idle)}) > 1:
            return
        for client in (*clients, *idle):
            if client.modern and not client.log_level:
                continue
            if loud_enough(params.value("level"), client.log_level):
                await client.tell(LOGGED, params.encode())

    async def _updated(self, params: RawObject) -> None:
        """To those who follow the resource, or what it is part of; to every agent of the handshake
        era where nobody does."""
        uri = text_of(params, "uri")
        concerned = [
            one for one in self._everybody() if any(_within(uri, held) for held in one.uris)
        ]
        for hearer in concerned or self._handshaken():
            await hearer.hear(UPDATED, params.encode())

    def _handshaken(self) -> list[Session]:
        return [session for session in self.sessions.values() if not session.modern]


def _within(uri: str, followed: str) -> bool:
    return uri == followed or uri.startswith(followed.rstrip("/") + "/")
