"""Models of timm: `timm:NAME`, such as `timm:resnet50`. They need the extra `sinkshot[timm]`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinkshot.backbones.backbone import Backbone, triple, weights_hash
from sinkshot.encoders.images import Triple
from sinkshot.encoders.registry import Encoder, register
from sinkshot.encoders.torch_network import from_backbone
from sinkshot.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


@register("timm:", modality="image", summary="a model of timm, with its weights on this machine", extra="timm")
def load(
    name: str,
    *,
    weights: Path | None = None,
    size: int | None = None,
    mean: Triple | None = None,
    std: Triple | None = None,
) -> Encoder:
    """Return timm's model of that name, with its published weights or those of a file."""
    state = None
    if weights is not None:
        from sinkshot.backbones import checkpoints

        state = checkpoints.read(weights)[1]
    return from_backbone(_backbone(name, state), size, mean, std)


def _backbone(name: str, state: Mapping[str, Tensor] | None) -> Backbone:
    """Make the model without its classifier, with its published weights or with a given state dict."""
    try:
        import timm
    except (ImportError, RuntimeError) as error:  # RuntimeError: a torchvision that does not fit the torch beside it
        raise InputError(
            f"timm:{name} needs timm and a torchvision that matches the installed torch ({error}): "
            "pip install 'sinkshot[timm]'."
        ) from error
    try:
        model = timm.create_model(name, pretrained=state is None, num_classes=0)
    except Exception as error:  # unknown names, no published weights, no network: timm raises what it meets
        raise InputError(f"timm cannot build {name!r}: {str(error).strip():.300}") from error
    if state is not None:
        try:
            missing, _ = model.load_state_dict(dict(state), strict=False)  # beyond: the classifier that was left out
        except RuntimeError as error:
            raise InputError(f"the weights are not those of timm's {name}: {error!s:.300}") from error
        if missing:
            raise InputError(f"the weights are not those of timm's {name}: {', '.join(missing[:3])} missing.")
    model.eval().requires_grad_(False)
    shown: dict[str, Any] = timm.data.resolve_model_data_config(model)
    mean, std = triple(shown["mean"]), triple(shown["std"])
    side, digest = int(shown["input_size"][-1]), weights_hash(model.state_dict())
    return Backbone(model, f"timm:{name}", int(model.num_features), side, mean, std, digest)
