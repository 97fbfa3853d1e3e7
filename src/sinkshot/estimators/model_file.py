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

from sinkshot import methods
from sinkshot import preprocess as chain
from sinkshot.errors import InputError
from sinkshot.estimators.prototype_head import PrototypeHead
from sinkshot.estimators.unknown_head import UnknownHead
from sinkshot.files import replacing
from sinkshot.foreign import texts
from sinkshot.foreign.tensors import DamagedTensors
from sinkshot.foreign.tensors import tensors as opened_tensors

if TYPE_CHECKING:
    from sinkshot.estimators.few_shot import FewShotClassifier

KEY, VERSION = "sinkshot-model", 1


def write(model: FewShotClassifier, path: str | PathLike[str]) -> None:
    """Write a fitted classifier."""
    from safetensors.numpy import save

    head, unknown_head = model._head, None if model._unknown_head is None else model._unknown_head.fitted
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
    try:
        with opened_tensors(path, "np") as file:
            text = file.metadata.get(KEY)
            if text is None:
                raise InputError(f"{path} holds no classifier; FewShotClassifier.save and `label --save` write one.")
            tensors = {name: file.get_tensor(name) for name in file.names}
    except DamagedTensors as error:
        raise InputError(f"{path} is not a complete safetensors file: {error}.") from None
    except OSError as error:
        raise InputError(f"the classifier {path} cannot be read: {error.strerror or error}.") from None
    try:
        return _rebuilt(cls, texts.json_object(text), tensors)
    except (InputError, MemoryError):
        raise
    except Exception as error:  # a forged description can break almost anything
        raise InputError(f"{path} is damaged: its description of the classifier is inconsistent.") from error


def _rebuilt(cls: type[FewShotClassifier], described: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> Any:
    if described["version"] > VERSION:
        raise InputError(
            f"the model has version {described['version']}, this SinkShot reads up to {VERSION}; upgrade it."
        )
    model = cls(**_params(described["params"]))
    model.classes_ = _classes(described["classes"])
    model.preprocess_ = str(described["preprocess"])
    model._row_wise = chain.parse(described["row_wise"])
    way, width = len(model.classes_), int(described["features"])
    model.n_features_in_ = width
    _must(tensors["centre"].shape == (width,), "features")
    if described["feature_names"]:
        model.feature_names_in_ = np.asarray([str(name) for name in described["feature_names"]], dtype=object)
        _must(len(model.feature_names_in_) == width, "feature_names")
    model.extra_ = {str(key): value for key, value in described["extra"].items()}

    def taken(name: str, *shape: int) -> NDArray[Any]:
        found = tensors[name]
        _must(found.shape == shape and found.dtype.kind == "f" and bool(np.isfinite(found).all()), name)
        return found

    steps = range(min(int(described["statistics"]), len(tensors)))
    shifts = [taken(f"shift.{i}", width) for i in steps]
    scales = [taken(f"scale.{i}", width) if f"scale.{i}" in tensors else None for i in steps]
    model._statistics = tuple(zip(shifts, scales, strict=True))
    trial = np.ones((1, width), shifts[0].dtype if shifts else np.float32)
    chain.run(trial, model._row_wise, statistics=model._statistics)  # raises where they do not fit the chain
    scale, shares = float(described["scale"]), taken("shares", way)
    _must(bool(np.isfinite(scale)) and bool((shares > 0).all()), "scale")
    model._head = PrototypeHead(taken("centre", width), taken("prototypes", way, width), scale, shares)
    model._unknown_head = None
    if "references" in tensors:
        count = len(tensors["unknown"])
        references, unknown = taken("references", count, width), taken("unknown", count)
        model._unknown_head = UnknownHead(references, unknown, taken("coefficients", 3))
    return model


def _params(given: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a file, each of which the classifier or its method must know."""
    known = {"method", "preprocess", "unknown", *methods.get(given["method"]).hyper}
    for name, value in given.items():
        _must(name in known and isinstance(value, str | int | float | list | None), name)
    _must(given.get("unknown") is None or 0 < given["unknown"] < 1, "unknown")
    return given


def _classes(given: list[Any]) -> NDArray[Any]:
    """Return class names, or numbers, all different."""
    texts_only, numbers = ({isinstance(one, kind) for one in given} == {True} for kind in (str, int | float))
    _must((texts_only or numbers) and len(set(given)) == len(given), "classes")
    return np.asarray(given, dtype=object if texts_only else None)


def _must(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)
