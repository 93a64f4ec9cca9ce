"""Vectors stored as half-precision numbers, and statistics of their cosines.

Importing numpy takes 100 ms, and only searches by meaning need it, so importers do so in functions.
"""

from collections.abc import Sequence

import numpy as np

from upwell.ground.llm import Vector
from upwell.memory.lookups import SEQUENCE_BITS

NEAREST = 40
"""How many of the nearest memories become candidates."""
SAMPLE, MIN_SAMPLE = 400, 12
MIN_SPREAD = 0.03
BACKGROUND_FROM, BACKGROUND_TO = 5, 15

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
Numbers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def packed(vector: Vector) -> bytes:
    return np.asarray(vector, dtype=np.float16).tobytes()


def unpacked(numbers: Sequence[bytes], dim: int) -> Floats:
    """Unpack stored vectors into the rows of a matrix."""
    return np.frombuffer(b"".join(numbers), np.float16).reshape(-1, dim).astype(np.float32)


def code_of(vector: Vector) -> str:
    """Return one binary digit for each number of a vector: 1 if the number is positive, otherwise
    0."""
    return "".join("1" if number > 0 else "0" for number in np.asarray(vector).tolist())


def usual_cosines(
    sample: Floats, sampled: Numbers, question: Floats, scopes: Sequence[int]
) -> tuple[float, float]:
    """Return the mean and spread of a question's cosines with a sample of the store's vectors. If
    enough of the sample is in `scopes`, only that part counts. `sampled` has a memory's number for
    each row of `sample`."""
    visible = np.isin(sampled >> SEQUENCE_BITS, np.asarray(scopes, np.int64))
    cosines = (sample[visible] if visible.sum() >= MIN_SAMPLE else sample) @ question
    return float(cosines.mean()), max(MIN_SPREAD, float(cosines.std()))


def background_of(best: Sequence[float], mean: float) -> float:
    """Return the mean cosine of the memories that follow the very best ones, or `mean` if there are
    none. `best` contains the highest cosines, highest first."""
    next_best = best[BACKGROUND_FROM:BACKGROUND_TO]
    return sum(next_best) / len(next_best) if next_best else mean
