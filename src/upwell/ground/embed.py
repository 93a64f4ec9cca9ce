"""Embedders, which turn text into vectors.

Model libraries are imported when an embedder is first used. The error for a missing library names
the extra to install.
"""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from upwell.ground.clock import Deadline
from upwell.ground.errors import ConfigError, LlmError, UsageError, extra_hint
from upwell.ground.llm import Endpoint, post
from upwell.ground.secrets.redact import redact
from upwell.ground.settings import CHOICES

Vector = Sequence[float]

_HTTP_SECONDS = 10.0


class Embedder(Protocol):
    """Turns texts into unit vectors of `dim` numbers. `embed()` blocks, and any thread may call it.

    `name` identifies the model. Vectors from different models must not be compared.
    """

    @property
    def name(self) -> str: ...

    @property
    def dim(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector for each text, in the same order.

        Raises:
            LlmError: the model or endpoint failed.
        """
        ...


class Model2Vec:
    """Static embeddings (model2vec). Embedding a text only takes table look-ups, which are fast."""

    def __init__(self, endpoint: Endpoint) -> None:
        try:
            from model2vec import StaticModel
        except ImportError as error:
            raise UsageError("model2vec is not installed", hint=extra_hint("embed")) from error
        model = endpoint.model or "minishlab/potion-base-8M"
        self._model: Any = StaticModel.from_pretrained(model)
        self.name = f"model2vec:{model}"
        self.dim = int(self._model.dim)

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [unit(vector.tolist()) for vector in self._model.encode(list(texts))]


class FastEmbed:
    """Small transformer models on ONNX (fastembed)."""

    def __init__(self, endpoint: Endpoint) -> None:
        try:
            from fastembed import TextEmbedding
        except ImportError as error:
            # The extra does not include fastembed, because few users need it.
            hint = f"{extra_hint('embed')} --with fastembed"
            raise UsageError("fastembed is not installed", hint=hint) from error
        model = endpoint.model or "BAAI/bge-small-en-v1.5"
        self._model: Any = TextEmbedding(model)
        self.name = f"fastembed:{model}"
        self.dim = len(self.embed(["dimension"])[0])

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [unit(vector.tolist()) for vector in self._model.embed(list(texts))]


class HttpEmbedder:
    """An endpoint with `/embeddings`. Secrets in a text are masked before it is sent."""

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
            raise LlmError("the endpoint's answer is not a list of embeddings") from error
        if len(vectors) != len(texts):
            raise LlmError("the endpoint sent the wrong number of embeddings")
        return vectors


EMBEDDERS: dict[str, type[Model2Vec] | type[FastEmbed] | type[HttpEmbedder]] = {
    "model2vec": Model2Vec,
    "fastembed": FastEmbed,
    "http": HttpEmbedder,
}
"""Embedder classes, keyed by name. The local ones read only `model` from the `Endpoint`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedOptions:
    """The `embed.*` settings.

    `kind`: a name from `EMBEDDERS`, "" for none. `model`: "" for the default model of the kind;
    `http` has none.
    `base_url`, `api_key`: only for `http`.
    """

    kind: str = field(default="", metadata={CHOICES: ("", *EMBEDDERS)})
    model: str = ""
    base_url: str = ""
    api_key: str = ""


class LateEmbedder:
    """An embedder that is loaded on first use, which may take seconds."""

    def __init__(self, options: EmbedOptions) -> None:
        self._options = options
        self._loading = threading.Lock()
        self._loaded: Embedder | None = None

    @property
    def name(self) -> str:
        return self._load().name

    @property
    def dim(self) -> int:
        return self._load().dim

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return self._load().embed(texts)

    def _load(self) -> Embedder:
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
                        f"the embedder {options.kind!r} cannot be loaded: {error}"
                    ) from error
            return self._loaded


def embedder_of(options: EmbedOptions) -> LateEmbedder | None:
    """Return the configured embedder, or None.

    Raises:
        ConfigError: the kind of embedder is not known.
    """
    if not options.kind:
        return None
    if options.kind not in EMBEDDERS:
        raise ConfigError(
            f"unknown embed.kind {options.kind!r}",
            key="embed.kind",
            hint=f"known: {', '.join(EMBEDDERS)}",
        )
    return LateEmbedder(options)


def unit(vector: list[float]) -> list[float]:
    """Scale `vector` to length 1, so that a dot product is a cosine. A zero vector stays zero."""
    length = sum(number * number for number in vector) ** 0.5
    return [number / length for number in vector] if length else vector


def cosine(left: Vector, right: Vector) -> float:
    """Return the cosine similarity of two unit vectors, -1..1."""
    return sum([a * b for a, b in zip(left, right, strict=True)])
