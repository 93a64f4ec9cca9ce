"""One compressor behind one pipe: one request per line in, one answer per line out (JSON).

Run by `compression.py` with the interpreter that the compressor is installed in. Besides the
standard library it imports only that compressor and, for upwell with an embedder, `minilm.py`.

    request: {"text", "max_chars"?, "max_tokens"?, "query"}   answer: {"text", "cpu"} or {"error"}

For upwell a request may have `hint`, the user's last request of the session.
"""

import inspect
import json
import sys
import time
from collections.abc import Callable

Adapter = Callable[..., str]
CHARS_PER_TOKEN = 3.5
"""Characters per token for compressors without a token budget (memtomem-stm's own figure)."""


def chars_of(max_chars: int | None, max_tokens: int | None) -> int:
    return max_chars if max_chars is not None else int((max_tokens or 0) * CHARS_PER_TOKEN)


def head() -> Adapter:
    return lambda text, chars, tokens, query: text[: chars_of(chars, tokens)]


def upwell() -> Adapter:
    from upwell.compress import compress

    return lambda text, chars, tokens, query, hint="": (
        compress(text, max_chars=chars, max_tokens=tokens, query=query, request=hint).text
    )


def upwell_minilm() -> Adapter:
    """upwell with a real embedder configured (`minilm.py`)."""
    from minilm import MiniLm
    from upwell.compress.base import Tools
    from upwell.compress.compressor import Compressor
    from upwell.ground.types.compression import Budget, Passage

    compressor = Compressor(tools=Tools(embedder=MiniLm()))

    def run(text: str, chars: int | None, tokens: int | None, query: str) -> str:
        budget = Budget(hard_chars=chars, hard_tokens=tokens)
        return compressor.compress(Passage(text=text, query=query), budget, "auto").text

    return run


def memtomem_stm() -> Adapter:
    """memtomem-stm with the strategy that it chooses itself, with the query if the strategy takes
    one, and without a minimum share of the text to keep.
    """
    from memtomem_stm.proxy.compression import auto_select_strategy, get_compressor

    def run(text: str, chars: int | None, tokens: int | None, query: str) -> str:
        limit = chars_of(chars, tokens)
        compressor = get_compressor(auto_select_strategy(text, max_chars=limit))
        if "context_query" in inspect.signature(compressor.compress).parameters:
            return compressor.compress(text, max_chars=limit, context_query=query or None)
        return compressor.compress(text, max_chars=limit)

    return run


def headroom() -> Adapter:
    """headroom, which has no budget: it compresses a tool's response by its own rules. By default
    it leaves tools called `read` and recent messages alone, so the tool is called `query` here, and
    recent messages are not protected.
    """
    from headroom import compress

    def run(text: str, chars: int | None, tokens: int | None, query: str) -> str:
        call = {"id": "c1", "type": "function", "function": {"name": "query", "arguments": "{}"}}
        messages = [
            {"role": "user", "content": query or "Read this."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": text},
        ]
        return str(compress(messages, protect_recent=0).messages[-1]["content"])

    return run


ADAPTERS = {
    "head": head, "upwell": upwell, "upwell+minilm": upwell_minilm,
    "memtomem-stm": memtomem_stm, "headroom": headroom,
}  # fmt: skip


def main() -> None:
    pipe = sys.stdout
    sys.stdout = sys.stderr
    run = ADAPTERS[sys.argv[1]]()
    run("warm up\n" * 400, 500, None, "")
    for line in sys.stdin:
        request = json.loads(line)
        started = time.process_time()
        try:
            text = run(
                request["text"],
                request.get("max_chars"),
                request.get("max_tokens"),
                request["query"],
                *([request["hint"]] if request.get("hint") else []),
            )
            answer = {"text": text, "cpu": time.process_time() - started}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:200]}
        pipe.write(json.dumps(answer) + "\n")
        pipe.flush()


if __name__ == "__main__":
    main()
