"""An embedder finds answers that are phrased differently; a failing one changes nothing."""

import json
from collections.abc import Sequence

from upwell.compress import compress
from upwell.compress.base import Tools
from upwell.compress.compressor import Compressor
from upwell.ground.errors import LlmError
from upwell.ground.llm import Vector
from upwell.ground.types.compression import Budget, Passage

QUERY = "Which feline lives here?"


class Zoo:
    """Knows that cats are felines, and nothing else."""

    name = "zoo"
    dim = 2

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [(1.0, 0.0) if "cat" in t or "feline" in t else (0.0, 1.0) for t in texts]


class Broken(Zoo):
    def embed(self, texts: Sequence[str]) -> list[Vector]:
        raise LlmError("gone")


def animals() -> str:
    rows = [{"n": n, "note": f"item number {n} of the long list of things"} for n in range(60)]
    rows[37]["note"] = "a big old tabby cat sleeping on the sofa in the sunny room"
    return json.dumps(rows)


def kept(embedder: Zoo | None, text: str) -> str:
    compressor = Compressor(tools=Tools(embedder=embedder))
    return compressor.compress(Passage(text=text, query=QUERY), Budget(hard_chars=300)).text


def test_an_embedder_finds_values_without_shared_words() -> None:
    assert "tabby cat" in kept(Zoo(), animals())
    assert "tabby cat" not in kept(None, animals())


def test_a_failing_embedder_changes_nothing() -> None:
    assert kept(Broken(), animals()) == kept(None, animals())


def test_a_question_without_an_answer_in_the_text_changes_nothing() -> None:
    text = "".join(f"def lift_{n}(crane_{n}):\n    return quay_{n}.load\n\n" for n in range(60))
    plain = compress(text, max_chars=900, name="crane.py").text
    asked = compress(text, max_chars=900, name="crane.py", query="who painted the zebra?").text
    assert asked == plain
