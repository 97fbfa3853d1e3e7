"""A fitted FewShotClassifier as one safetensors file: arrays and one JSON object. Loading it never runs code.

Tensors: `centre`, `prototypes`, `shares`; `shift.<i>` and `scale.<i>` of the i-th step of the chain that has any;
`references`, `unknown` and `coefficients` if the classifier can reject. The metadata string `sinkshot-model` holds the
rest: version, classes, method, hyper-parameters, chain, threshold, scale, and what the caller adds (`extra_`).
"""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import preprocess as chain
from sinkshot.errors import InputError
from sinkshot.estimators.prototype_head import PrototypeHead
from sinkshot.estimators.unknown_head import UnknownHead
from sinkshot.files import replacing

if TYPE_CHECKING:
    from sinkshot.estimators.few_shot import FewShotClassifier

KEY, VERSION = "sinkshot-model", 1


def write(model: FewShotClassifier, path: str | PathLike[str]) -> None:
    """Write a fitted classifier."""
    from safetensors.numpy import save

    head, unknown_head = model._head, model._unknown_head
    tensors: dict[str, NDArray[Any]] = {
        "centre": head.centre,
        "prototypes": head.prototypes,
        "shares": head.shares,
    }
    for i, (shift, scale) in enumerate(model._statistics):
        tensors[f"shift.{i}"] = np.asarray(shift)
        if scale is not None:
            tensors[f"scale.{i}"] = np.asarray(scale)
    if unknown_head is not None:
        tensors |= {
            "references": unknown_head.references,
            "unknown": unknown_head.unknown,
            "coefficients": unknown_head.coefficients,
        }
    described = {
        "version": VERSION,
        "classes": model.classes_.tolist(),
        "params": {name: value for name, value in model.get_params().items() if name != "base"},
        "preprocess": model.preprocess_,
        "row_wise": chain.spell(model._row_wise),
        "statistics": len(model._statistics),
        "scale": head.scale,
        "features": int(model.n_features_in_),
        "feature_names": getattr(model, "feature_names_in_", np.empty(0)).tolist(),
        "extra": getattr(model, "extra_", {}),
    }
    try:
        text = json.dumps(described)
    except TypeError as error:
        raise InputError(
            f"the classifier cannot be saved: a class or parameter is not plain text or number ({error})."
        ) from None
    contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(save(contiguous, metadata={KEY: text}))


def read(cls: type[FewShotClassifier], path: str | PathLike[str]) -> Any:
    """Read a classifier that `write` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(Path(path), framework="np") as file:
            text = (file.metadata() or {}).get(KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, a file is not a mapping
    except SafetensorError as error:
        raise InputError(f"{path} is not a complete safetensors file: {error}.") from None
    if text is None:
        raise InputError(f"{path} holds no classifier; FewShotClassifier.save and `label --save` write one.")
    try:
        return _rebuilt(cls, json.loads(text), tensors)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged: its description of the classifier is inconsistent.") from error


def _rebuilt(cls: type[FewShotClassifier], described: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> Any:
    if described["version"] > VERSION:
        raise InputError(
            f"the model has version {described['version']}, this SinkShot reads up to {VERSION}; upgrade it."
        )
    model = cls(**described["params"])
    model.classes_ = np.asarray(
        described["classes"], dtype=object if isinstance(described["classes"][0], str) else None
    )
    model.preprocess_ = described["preprocess"]
    model._row_wise = chain.parse(described["row_wise"])
    model._statistics = tuple(
        (tensors[f"shift.{i}"], tensors.get(f"scale.{i}")) for i in range(described["statistics"])
    )
    model.n_features_in_ = int(described["features"])
    if described["feature_names"]:
        model.feature_names_in_ = np.asarray(described["feature_names"], dtype=object)
    model.extra_ = described["extra"]
    way, width = len(model.classes_), model.n_features_in_
    expected = {"centre": (width,), "prototypes": (way, width), "shares": (way,)}
    for name, shape in expected.items():
        if tensors[name].shape != shape or not np.isfinite(tensors[name]).all():
            raise ValueError(name)
    model._head = PrototypeHead(tensors["centre"], tensors["prototypes"], float(described["scale"]), tensors["shares"])
    model._unknown_head = None
    if "references" in tensors:
        references, unknown, coefficients = (tensors[name] for name in ("references", "unknown", "coefficients"))
        if references.shape != (len(unknown), width) or coefficients.shape != (3,):
            raise ValueError("references")
        model._unknown_head = UnknownHead(references, unknown, coefficients)
    return model
