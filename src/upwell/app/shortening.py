"""Shortens the results from an agent's own tools, if the user turned that on (`hook.compress`)."""

import shlex
from collections.abc import Callable, Sequence

from upwell.compress import compress
from upwell.compress.base import Tools
from upwell.compress.originals import Originals
from upwell.config import Config
from upwell.gateway.calls.fit import Fitter, OnShortened, by_command
from upwell.ground.home import Home, usual_home
from upwell.ground.secrets.redact import redact
from upwell.ground.trace import present_trace_id
from upwell.ground.types.rpc import ToolCall
from upwell.hosts.events import HostEvent
from upwell.surface.options import READ_COMMAND


class Shortening:
    """Shortens the texts of a result as the gateway does, according to the `compress.*` settings
    and the `[tool]` tables. There, a built-in tool is called `HOST__Tool`, as in
    `[tool."claude__Bash"]`. Nothing is learned here, because hooks do not see which originals the
    agent reads on the command line.
    """

    def __init__(
        self,
        config: Config,
        originals: Originals,
        tools: Tools,
        paused: Callable[[str], bool],
        shortened: OnShortened,
        last_request: Callable[[str], str] = lambda session: "",
    ) -> None:
        self._paused = paused
        self._last_request = last_request
        self._how_to_read = by_command(read_command(config.home))
        self._fitter = Fitter(
            originals,
            config.compress_for,
            tools=tools,
            result_tokens=config.result_tokens(),
            shortened=shortened,
        )

    async def __call__(
        self, host: str, event: HostEvent, texts: Sequence[str], max_tokens: int | None
    ) -> list[str | None]:
        """The shortened texts; None for each unchanged text."""
        if self._paused(event.session):
            return [None] * len(texts)
        server, _, tool = event.tool.rpartition("__")
        call = ToolCall(
            server=server or host,
            tool=tool,
            params=b"{}",
            args=event.args,
            request=self._last_request(event.session),
            trace_id=present_trace_id(),
            host=host,
            session=event.session,
            cwd=event.cwd,
        )
        return await self._fitter.fit_texts(call, texts, self._how_to_read, max_tokens)


def load() -> None:
    """Load the compressor and its rules now, because the first long result would otherwise miss its
    deadline.
    """
    redact(compress("a line of a log\n" * 200, max_tokens=50).text)


def read_command(home: Home) -> str:
    """The command that reads an original or a memory. The caller appends the key or the address."""
    if home.root == usual_home():
        return READ_COMMAND
    return f"UPWELL_HOME={shlex.quote(str(home.root))} {READ_COMMAND}"
