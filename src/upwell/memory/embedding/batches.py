"""Embed memories in batches, for every store."""

from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from upwell.ground.errors import LlmError
from upwell.ground.trace import LOG
from upwell.memory.embedding.questions import (
    MAX_FAILURES,
    QuestionVectors,
    embedded,
    on_model_thread,
)

MAX_CHARS = 2_000
"""Only this many characters from the beginning of a memory are embedded."""
BATCH = 32


class DueVector(Struct, frozen=True):
    """A memory that needs a vector. The vector is stored only if the memory still has this
    `hash`."""

    n: int
    hash: str
    text: str


async def packed_vectors(
    questions: QuestionVectors, batch: Sequence[DueVector]
) -> dict[DueVector, bytes]:
    """Return the packed vectors of these memories. If the model rejects a batch, each text is
    embedded on its own, so that one bad text does not affect the others. If the first few texts
    fail too, the model is probably down, and no vectors are returned."""
    # numpy takes 100 ms to import, and only searches by meaning need it.
    from upwell.memory.embedding.numbers import packed

    texts = [due.text for due in batch]
    try:
        vectors = await on_model_thread(partial(embedded, questions.embedder, texts))
        return dict(zip(batch, map(packed, vectors), strict=True))
    except LlmError as error:
        LOG.warning("%d memories cannot be embedded: %s", len(batch), error)
    one_by_one: dict[DueVector, bytes] = {}
    for attempts, due in enumerate(batch if len(batch) > 1 else ()):
        if not one_by_one and attempts >= MAX_FAILURES:
            break
        one_by_one |= await packed_vectors(questions, [due])
    return one_by_one
