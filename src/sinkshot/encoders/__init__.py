"""Encoders: from images or texts to feature vectors, one file each, registered by name.

Read `registry` first (what an encoder is, and `load`), then `images` (how pictures become arrays), then any encoder.
"""

from sinkshot.encoders.registry import ENCODERS, Encoder, load, register
from sinkshot.encoders.torch_network import as_backbone

__all__ = ["ENCODERS", "Encoder", "as_backbone", "load", "register"]
