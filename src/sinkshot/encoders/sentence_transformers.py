"""Models of sentence-transformers: `sentence-transformers:NAME`, from its cache or a folder; nothing is downloaded."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from sinkshot.encoders.registry import Encoder, missing_package, register
from sinkshot.errors import InputError


@register(
    "sentence-transformers:",
    modality="text",
    summary="a model of sentence-transformers that is on this machine, by its name or folder",
    extra="text",
)
def load(name: str) -> Encoder:
    """Return the encoder of that name."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise missing_package(f"sentence-transformers:{name}", "sentence-transformers", "text") from None
    try:
        model = SentenceTransformer(name, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # whatever its hub client, torch and tokenizers raise
        raise InputError(
            f"sentence-transformers cannot load {name!r} without a download ({str(error).strip():.200}). Get it first, "
            "or give the folder of a model."
        ) from None
    state = hashlib.sha256()
    for key, value in sorted(model.state_dict().items()):
        state.update(f"{key} {tuple(value.shape)}".encode())
        state.update(value.detach().cpu().numpy().tobytes())
    digest = hashlib.sha256(json.dumps([state.hexdigest(), str(model.max_seq_length)]).encode()).hexdigest()

    def encode(texts: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
        return np.asarray(model.encode(list(texts), show_progress_bar=False), np.float32)

    width = int(encode(["a text"]).shape[1])
    return Encoder(f"sentence-transformers:{name}", "text", width, digest, encode)
