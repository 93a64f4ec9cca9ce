"""Fit tool responses into an agent's budget, guided by their content and the agent's question.

    from upwell.compress import compress
    compress(text, max_tokens=2_000, query="which test failed?").text

Importing this package is cheap, because each strategy is imported only when it is first used.
"""

from upwell.compress.options import STRATEGIES, check, load
from upwell.ground.types.compression import Compressed

__all__ = ["STRATEGIES", "compress", "load"]


def compress(
    text: str,
    *,
    max_chars: int | None = None,
    max_tokens: int | None = None,
    query: str | None = None,
    request: str | None = None,
    strategy: str = "auto",
    name: str = "",
) -> Compressed:
    """Fit `text` into `max_chars` and `max_tokens`, both hard limits.

    The result exceeds the limits only with the strategy `none`, or if even the shortest valid JSON
    document (`{}` or `[]`) is too long. Without a limit the text is returned unchanged.

    `query` is the agent's question; content that answers it is preferred. `request` is the user's
    last request in the session, a weaker hint. `name`, a path or URL, helps to detect the kind of
    text. The function uses no model and stores nothing.

    Raises:
        UsageError: the strategy is unknown, or a limit is negative.
    """
    from upwell.compress.compressor import Compressor
    from upwell.ground.errors import UsageError
    from upwell.ground.types.compression import Budget, Passage

    check(strategy)
    if min(max_chars or 0, max_tokens or 0) < 0:
        raise UsageError("a budget cannot be negative", hint="use 0 or more")
    budget = Budget(hard_chars=max_chars, hard_tokens=max_tokens)
    passage = Passage(text=text, query=query or "", request=request or "", name=name)
    return Compressor().compress(passage, budget, strategy=strategy)
