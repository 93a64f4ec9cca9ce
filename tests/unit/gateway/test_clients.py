"""The receivers of a server's own messages."""

from upwell.gateway.clients import Audience, Session
from upwell.ground.types.rpc import Principal
from upwell.wire.peer import read_message

LOGGED = read_message(
    b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"x"}}'
)


class Ear:
    """A channel to an agent that records the messages."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def notify(self, method: str, params: bytes = b"") -> None:
        self.heard.append(method)


def sessions(*names: str) -> tuple[list[Session], list[Ear]]:
    ears = [Ear() for _ in names]
    return [Session(ear, principal=Principal(n)) for ear, n in zip(ears, names, strict=True)], ears


async def test_a_log_message_goes_to_the_waiting_agents_of_one_principal() -> None:
    waiting, ears = sessions("ada", "ada")
    audience = Audience()
    for session in waiting:
        audience.join(session)
    await audience.relay(LOGGED, waiting[:1])
    assert [len(ear.heard) for ear in ears] == [1, 0]
    await audience.relay(LOGGED, waiting)
    assert [len(ear.heard) for ear in ears] == [2, 1], "one that is lost would be worse"


async def test_a_log_message_that_may_belong_to_another_principal_is_dropped() -> None:
    waiting, ears = sessions("ada", "bob")
    audience = Audience()
    await audience.relay(LOGGED, waiting)
    for session in waiting:
        audience.join(session)
    await audience.relay(LOGGED, [])
    assert [len(ear.heard) for ear in ears] == [0, 0]
    await audience.relay(LOGGED, waiting[:1])
    assert [len(ear.heard) for ear in ears] == [1, 0]
