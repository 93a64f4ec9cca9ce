"""Made-up memories of a company, and questions about them, for `scale.py`.

A memory has words drawn by Zipf's law from a vocabulary of 200,000, words of its subject, and
English function words in between. Nine in ten memories belong to one of a hundred projects, which
have their own files and symbols. An eighth of the questions name a file, and an eighth a symbol.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import accumulate

from upwell.ground.text.anchors import paths_in, symbols_in
from upwell.ground.types.memory import Memory

VOCABULARY, FIRST_RANKS = 200_000, 30
"""Ranks begin after the 30 most frequent words of a language, which say little alone and which
searches leave out."""
PROJECTS, FILES, SYMBOLS = 100, 300, 600
SUBJECTS, WORDS_OF_A_SUBJECT = 1_500, 60
GLOBAL_PART = 0.1
_FUNCTION_WORDS = "the a of to in is and when for with that it on by from after not we as".split()
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"


def word_of(rank: int) -> str:
    """A pronounceable word for each rank; frequent ones are short."""
    word, rank = "", rank + 300
    while rank:
        rank, sound = divmod(rank, len(_CONSONANTS) * len(_VOWELS))
        word += _CONSONANTS[sound // len(_VOWELS)] + _VOWELS[sound % len(_VOWELS)]
    return f"{word}x"


class Company:
    """The words, projects and subjects from which memories are made; the same for every seed."""

    def __init__(self) -> None:
        rng = random.Random(20)
        self.words = [word_of(rank) for rank in range(VOCABULARY)]
        self.weights = list(accumulate(1.0 / (rank + FIRST_RANKS) for rank in range(VOCABULARY)))
        self.subjects = [self._rare(rng, WORDS_OF_A_SUBJECT) for _ in range(SUBJECTS)]
        self.files = [self._files(rng) for _ in range(PROJECTS)]
        self.symbols = [
            ["_".join(self._rare(rng, 2)) for _ in range(SYMBOLS)] for _ in range(PROJECTS)
        ]

    def common(self, rng: random.Random, count: int) -> list[str]:
        """Words of the whole vocabulary."""
        return rng.choices(self.words, cum_weights=self.weights, k=count)

    def _rare(self, rng: random.Random, count: int) -> list[str]:
        return [self.words[int(VOCABULARY ** rng.uniform(0.4, 1)) - 1] for _ in range(count)]

    def _files(self, rng: random.Random) -> list[str]:
        folders = ["/".join(("src", *self._rare(rng, 2))) for _ in range(FILES // 10)]
        return [f"{rng.choice(folders)}/{self._rare(rng, 1)[0]}.py" for _ in range(FILES)]

    def memories(self, count: int, seed: int = 1) -> Iterator[Memory]:
        """Memories, the same for the same seed, some 210 characters each."""
        rng = random.Random(seed)
        for number in range(count):
            project = rng.randrange(PROJECTS)
            subject = rng.choice(self.subjects)
            words = self.common(rng, rng.randint(10, 18)) + rng.choices(subject, k=7)
            words += rng.choices(_FUNCTION_WORDS, k=9)
            rng.shuffle(words)
            if rng.random() < 0.5:
                words.append(f"in `{_skewed(rng, self.files[project])}`")
            if rng.random() < 0.5:
                words.insert(3, f"`{_skewed(rng, self.symbols[project])}()`")
            text = " ".join(words).capitalize() + "."
            yield Memory(
                text=text,
                id=f"m{seed}-{number}",
                project=None if rng.random() < GLOBAL_PART else f"/srv/p{project}",
                paths=paths_in(text),
                symbols=symbols_in(text),
                created_at=1_700_000_000.0 + number,
            )


def _skewed(rng: random.Random, names: Sequence[str]) -> str:
    """One of the names, the first ones more often: work concentrates on a few files."""
    return names[int(len(names) * rng.random() ** 3)]


def questions(stored: Sequence[Memory], count: int, seed: int = 2) -> list[str]:
    """Prompts about some of these memories: six of their words, and perhaps a file or symbol."""
    rng = random.Random(seed)
    return [question(rng, rng.choice(stored)) for _ in range(count)]


def question(rng: random.Random, memory: Memory) -> str:
    plain = [word for word in memory.text.lower().rstrip(".").split() if word.isalpha()]
    telling = [word for word in dict.fromkeys(plain) if word not in _FUNCTION_WORDS]
    words = " ".join(rng.sample(telling, k=min(6, len(telling))))
    draw = rng.random()
    if draw < 0.25 and memory.paths:
        return f"why does the {words} fail in {memory.paths[0]}?"
    if draw > 0.75 and memory.symbols:
        return f"why does the {words} of {memory.symbols[0]} fail?"
    return f"why does the {words} fail?"
