"""Language models and embedders: behind an OpenAI-compatible endpoint (Ollama, vLLM or a vendor's),
or in this process. An agent's own program may also answer a question (`Invocation`).

Calls block, so make them on worker threads. Every failure is an `LlmError`. Model libraries are
imported when an embedder is first used; the error for a missing library names the extra to install.
"""

import json
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Timer
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from upwell.ground.clock import Deadline
from upwell.ground.errors import LlmError, UsageError, extra_hint
from upwell.ground.secrets.mask import masked_address
from upwell.ground.secrets.redact import redact
from upwell.ground.settings import CHOICES
from upwell.ground.text.tokens import count

if TYPE_CHECKING:
    import httpx2

_MAX_REPLY_BYTES = 16_000_000
_MIN_SECONDS = 0.01
_HTTP_OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address of a model.

    `base_url` includes the API version (`http://localhost:11434/v1`). It is "" if no endpoint is
    configured. `api_key` is sent as a bearer token.
    """

    base_url: str = ""
    model: str = ""
    api_key: str = ""

    @property
    def shown(self) -> str:
        """The address without credentials, for logs and errors."""
        return masked_address(self.base_url)


class EndpointAnswer(Struct, frozen=True):
    """A response with status 200."""

    body: bytes
    content_type: str


def post(endpoint: Endpoint, path: str, message: Any, deadline: Deadline) -> EndpointAnswer:
    """POST `message` as JSON to `path` below the endpoint.

    `deadline` limits the whole exchange except the look-up of the host's name, however slowly the
    body arrives. Redirects are not followed, and proxies set in the environment are not used.

    Raises:
        LlmError: the connection failed, the deadline passed, the status was not 200, or the body
            was too large.
    """
    # This import takes a tenth of a second, and most users have no endpoint.
    import httpx2

    body = json.dumps(message).encode("utf-8", "replace")
    try:
        return _exchange(endpoint, path, body, deadline)
    except (OSError, httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        late = deadline.passed() or isinstance(error, TimeoutError | httpx2.TimeoutException)
        reason = "no answer in time" if late else str(error)
        raise LlmError(
            f"the endpoint {endpoint.shown} failed: {reason or type(error).__name__}",
            hint="check its base_url and that it is running",
        ) from error


def _exchange(endpoint: Endpoint, path: str, body: bytes, deadline: Deadline) -> EndpointAnswer:
    import httpx2

    address = httpx2.URL(endpoint.base_url)
    address = address.copy_with(
        path=address.path.rstrip("/") + path, query=None, fragment=None, userinfo=b""
    )
    headers = {"content-type": "application/json", "accept-encoding": "identity"}
    if endpoint.api_key:
        headers["authorization"] = f"Bearer {endpoint.api_key}"
    with (
        _Watchdog(deadline).armed() as watchdog,
        httpx2.Client(
            verify=ssl.create_default_context() if address.scheme == "https" else False,
            timeout=max(_MIN_SECONDS, deadline.remaining()),
            follow_redirects=False,
            trust_env=False,
        ) as client,
        client.stream(
            "POST", address, content=body, headers=headers, extensions={"trace": watchdog.observe}
        ) as reply,
    ):
        raw = _read(reply, endpoint, deadline)
    if reply.status_code != _HTTP_OK:
        raise LlmError(
            f"the endpoint {endpoint.shown} answered {reply.status_code} {reply.reason_phrase}",
            hint="check the model's name and the key",
        )
    return EndpointAnswer(raw, reply.headers.get("content-type", ""))


def _read(reply: "httpx2.Response", endpoint: Endpoint, deadline: Deadline) -> bytes:
    raw = bytearray()
    for chunk in reply.iter_raw():
        raw += chunk
        if len(raw) > _MAX_REPLY_BYTES:
            raise LlmError(f"the reply of {endpoint.shown} exceeds {_MAX_REPLY_BYTES:,} bytes")
    # If the watchdog has shut down the socket, the body may be truncated. Without a Content-Length
    # header, it nevertheless looks complete.
    if deadline.passed():
        raise TimeoutError
    return bytes(raw)


class _Watchdog:
    """Shuts down the connection at the deadline.

    httpx2 applies its timeouts to each read, so a server that sends one byte at a time could block
    the thread forever.
    """

    def __init__(self, deadline: Deadline) -> None:
        self._timer = Timer(max(_MIN_SECONDS, deadline.remaining()), self._shut_down)
        self._timer.daemon = True
        self._socket: socket.socket | None = None
        self._has_fired = False

    @contextmanager
    def armed(self) -> Iterator["_Watchdog"]:
        self._timer.start()
        try:
            yield self
        finally:
            self._timer.cancel()

    def observe(self, event: str, details: Mapping[str, Any]) -> None:
        """Remember the socket. A request's `trace` extension calls this method."""
        # TLS replaces the TCP socket, so both events matter.
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._socket = details["return_value"].get_extra_info("socket")
            if self._has_fired:
                self._shut_down()

    def _shut_down(self) -> None:
        self._has_fired = True
        if self._socket is not None:
            # The `shutdown` of an SSL socket is not thread-safe.
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


MAX_TOKENS = 10**9
"""If an endpoint reports more tokens than this, the count is ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmOptions(Endpoint):
    """The `llm.*` settings."""


class Completion(Struct, frozen=True):
    """A model's answer. The token counts are estimates if the endpoint does not report them."""

    text: str
    tokens_in: int
    tokens_out: int


class Chat(Protocol):
    """A language model. Both methods raise LlmError if no usable answer arrives in time."""

    def complete(self, system: str, user: str, deadline: Deadline) -> Completion:
        """Return the answer to a user message, given a system message."""
        ...

    def chat(self, prompt: str, deadline: Deadline) -> str:
        """Return the answer to `prompt`."""
        ...


class OpenAIChat:
    """A language model at an endpoint with `/chat/completions`.

    Requests turn streaming off, but a streamed answer is also accepted.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def chat(self, prompt: str, deadline: Deadline) -> str:
        return _text_of(self._ask([{"role": "user", "content": prompt}], deadline))

    def complete(self, system: str, user: str, deadline: Deadline) -> Completion:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        answer = self._ask(messages, deadline)
        text = _text_of(answer)
        usage = _usage_in(answer)
        return Completion(
            text,
            _tokens(usage.get("prompt_tokens"), count(system) + count(user)),
            _tokens(usage.get("completion_tokens"), count(text)),
        )

    def _ask(self, messages: Sequence[object], deadline: Deadline) -> EndpointAnswer:
        message = {
            "model": self._endpoint.model,
            "messages": messages,
            "temperature": 0,
            "stream": False,
        }
        return post(self._endpoint, "/chat/completions", message, deadline)


def _text_of(answer: EndpointAnswer) -> str:
    try:
        if "event-stream" in answer.content_type:
            return _streamed(answer.body)
        text = json.loads(answer.body)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise LlmError("the language model's answer is not a completion") from error
    if not isinstance(text, str):
        raise LlmError("the language model's answer has no text")
    return text


def _usage_in(answer: EndpointAnswer) -> dict[str, Any]:
    try:
        usage = json.loads(answer.body).get("usage")
    except (ValueError, AttributeError):
        return {}
    return usage if isinstance(usage, dict) else {}


def _tokens(reported: object, estimated: int) -> int:
    if isinstance(reported, int) and not isinstance(reported, bool) and 0 < reported < MAX_TOKENS:
        return reported
    return estimated


def _streamed(raw: bytes) -> str:
    parts = []
    for line in raw.decode("utf-8", "replace").splitlines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != "[DONE]":
            parts.append(json.loads(data)["choices"][0].get("delta", {}).get("content") or "")
    return "".join(parts)


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
    """Return the configured embedder, or None."""
    return LateEmbedder(options) if options.kind else None


def unit(vector: list[float]) -> list[float]:
    """Scale `vector` to length 1, so that a dot product is a cosine. A zero vector stays zero."""
    length = sum(number * number for number in vector) ** 0.5
    return [number / length for number in vector] if length else vector


def cosine(left: Vector, right: Vector) -> float:
    """Return the cosine similarity of two unit vectors, -1..1."""
    return sum([a * b for a, b in zip(left, right, strict=True)])


class Invocation(Struct, frozen=True, kw_only=True):
    """The arguments after the program's name, further variables, and `files` to write into the
    program's working directory, keyed by path. The program reads the question from stdin."""

    args: tuple[str, ...]
    env: Mapping[str, str] = {}
    files: Mapping[str, str] = {}
