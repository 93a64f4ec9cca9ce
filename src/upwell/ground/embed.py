"""Texts as vectors: what an embedder is, and the three that we know.

Model libraries are imported when an embedder is first used; a missing one is a `UsageError` that
names the extra to install.
"""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from upwell.ground.endpoint import Endpoint, post
from upwell.ground.errors import ConfigError, LlmError, UsageError
from upwell.ground.limits import Deadline
from upwell.ground.names import CHOICES
from upwell.ground.redact import redact

Vector = Sequence[float]

_HTTP_SECONDS = 10.0


class Embedder(Protocol):
    """Turns texts into unit vectors of `dim` numbers. Blocking; safe to call from any thread.

    `name` tells models apart: vectors of different names must never be compared.
    """

    @property
    def name(self) -> str: ...

    @property
    def dim(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector a text, in order.

        Raises:
            LlmError: the model or endpoint failed.
        """
        ...


class Model2Vec:
    """Static embeddings (model2vec): a table look-up, fast enough for every call."""

    def __init__(self, endpoint: Endpoint) -> None:
        try:
            from model2vec import StaticModel
        except ImportError as error:
            raise _missing("model2vec") from error
        model = endpoint.model or "minishlab/potion-base-8M"
        self._model: Any = StaticModel.from_pretrained(model)
        self.name = f"model2vec:{model}"
        self.dim = int(self._model.dim)

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [unit(vector.tolist()) for vector in self._model.encode(list(texts))]


class FastEmbed:
    """Small transformers on ONNX (fastembed)."""

    def __init__(self, endpoint: Endpoint) -> None:
        try:
            from fastembed import TextEmbedding
        except ImportError as error:
            raise _missing("fastembed") from error
        model = endpoint.model or "BAAI/bge-small-en-v1.5"
        self._model: Any = TextEmbedding(model)
        self.name = f"fastembed:{model}"
        self.dim = len(self.embed(["dimension"])[0])

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [unit(vector.tolist()) for vector in self._model.embed(list(texts))]


class HttpEmbedder:
    """Any endpoint that knows `/embeddings`. Secrets do not leave the machine."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.name = f"http:{endpoint.shown}:{endpoint.model}"
        self.dim = len(self.embed(["dimension"])[0])

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        if not texts:
            return []
        message = {"model": self._endpoint.model, "input": [redact(text)[0] for text in texts]}
        answer = post(self._endpoint, "/embeddings", message, Deadline.after(_HTTP_SECONDS))
        try:
            rows = sorted(json.loads(answer.body)["data"], key=lambda row: int(row["index"]))
            vectors: list[Vector] = [
                unit([float(number) for number in row["embedding"]]) for row in rows
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise LlmError("the endpoint answered something that is no embedding") from error
        if len(vectors) != len(texts):
            raise LlmError("the endpoint answered another number of embeddings than was asked")
        return vectors


EMBEDDERS: dict[str, type[Model2Vec] | type[FastEmbed] | type[HttpEmbedder]] = {
    "model2vec": Model2Vec,
    "fastembed": FastEmbed,
    "http": HttpEmbedder,
}
"""Name → class, made from an `Endpoint` (of which the local ones read only the model)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedOptions:
    """`embed.*`. `kind` is a name of `EMBEDDERS`, "" for none; `base_url` is for `http` only."""

    kind: str = field(default="", metadata={CHOICES: ("", *EMBEDDERS)})
    model: str = ""
    base_url: str = ""
    api_key: str = ""


class LateEmbedder:
    """An embedder that is loaded when it is first used, which may take seconds."""

    def __init__(self, options: EmbedOptions) -> None:
        self._options = options
        self._loading = threading.Lock()
        self._loaded: Embedder | None = None

    @property
    def name(self) -> str:
        return self._there().name

    @property
    def dim(self) -> int:
        return self._there().dim

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return self._there().embed(texts)

    def _there(self) -> Embedder:
        with self._loading:
            if self._loaded is None:
                options = self._options
                endpoint = Endpoint(
                    base_url=options.base_url, model=options.model, api_key=options.api_key
                )
                try:
                    self._loaded = EMBEDDERS[options.kind](endpoint)
                except (UsageError, OSError, ValueError) as error:
                    raise LlmError(
                        f"the embedder {options.kind!r} cannot be had: {error}"
                    ) from error
            return self._loaded


def embedder_of(options: EmbedOptions) -> LateEmbedder | None:
    """The embedder that is configured, None when there is none.

    Raises:
        ConfigError: no embedder has this name.
    """
    if not options.kind:
        return None
    if options.kind not in EMBEDDERS:
        raise ConfigError(
            f"embed.kind {options.kind!r} is not known",
            key="embed.kind",
            hint=f"known: {', '.join(EMBEDDERS)}",
        )
    return LateEmbedder(options)


def unit(vector: list[float]) -> list[float]:
    """`vector` scaled to length 1, so that a dot product is a cosine."""
    length = sum(number * number for number in vector) ** 0.5
    return [number / length for number in vector] if length else vector


def cosine(left: Vector, right: Vector) -> float:
    """How alike two unit vectors are, -1..1."""
    return sum([a * b for a, b in zip(left, right, strict=True)])


def _missing(package: str) -> UsageError:
    return UsageError(f"{package} is not installed", hint="pip install 'upwell[embed]'")
