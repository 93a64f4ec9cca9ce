"""What an agent's own tools answer, fitted to the budget where the user switched that on
(`hook.compress`)."""

import shlex
from collections.abc import Callable, Sequence

from upwell.compress import compress
from upwell.compress.base import Tools
from upwell.compress.originals import Originals
from upwell.config import Config
from upwell.gateway.fit import Cut, Fitter
from upwell.ground.home import Home, usual_home
from upwell.ground.redact import redact
from upwell.ground.trace import new_trace_id
from upwell.ground.types import ToolCall
from upwell.hook.events import Event

Count = Callable[[str, int, int], None]
"""Hears which tool's answer was shortened, and its tokens before and after."""


class Shortening:
    """Fits the texts of an answer as the gateway would: `compress.*`, also per pattern, where a
    built-in tool is `HOST__Tool` (`[tool."claude__Bash"]`).

    `paused` says whether a session asked to be left alone. Nothing is learned from it, since
    reading on by the command line is not seen.
    """

    def __init__(
        self,
        config: Config,
        originals: Originals,
        tools: Tools,
        paused: Callable[[str], bool],
        count: Count,
    ) -> None:
        def shortened(call: ToolCall, cut: Cut) -> None:
            count(f"{call.server}__{call.tool}", cut.tokens_before, cut.tokens_after)

        self._paused = paused
        self._command = _command(config.home)
        self._fitter = Fitter(
            originals,
            config.compress_for,
            tools=tools,
            result_tokens=config.result_tokens(),
            shortened=shortened,
        )

    async def __call__(
        self, host: str, event: Event, texts: Sequence[str], hard_tokens: int | None
    ) -> list[str | None]:
        """Each text shortened, None for those that stay."""
        if self._paused(event.session):
            return [None] * len(texts)
        server, _, tool = event.tool.rpartition("__")
        call = ToolCall(
            server=server or host,
            tool=tool,
            params=b"{}",
            args=event.args,
            trace_id=new_trace_id(),
        )
        return await self._fitter.fit_texts(call, texts, self._reading, hard_tokens)

    def _reading(self, key: str) -> str:
        return f'{self._command} {key}` in a shell, or read_more of upwell with key="{key}"'


def load() -> None:
    """Load what shortening needs, so that the first long answer does not wait for it: a hook's
    deadline would pass."""
    redact(compress("a line of a log\n" * 200, max_tokens=50).text)


def _command(home: Home) -> str:
    """The command that reads an original, up to its key."""
    if home.root == usual_home():
        return "`upwell read"
    return f"`UPWELL_HOME={shlex.quote(str(home.root))} upwell read"
