"""Names for tab completion: encoders, methods and exports that begin as the word on the command line does."""

from __future__ import annotations


def encoders(incomplete: str) -> list[str]:
    """Complete the name of an encoder; files are completed by the shell."""
    from sinkshot.encoders.registry import registered

    return [name for name in registered() if name.startswith(incomplete) and not name.startswith(".")]


def image_encoders(incomplete: str) -> list[str]:
    """Complete the name of an encoder of images."""
    from sinkshot.encoders import ENCODERS

    return [name for name in encoders(incomplete) if ENCODERS[name].modality == "image"]


def methods(incomplete: str) -> list[str]:
    """Complete the name of a method."""
    from sinkshot.methods import METHODS

    return [name for name in METHODS if name.startswith(incomplete)]


def exports(incomplete: str) -> list[str]:
    """Complete the name of an export."""
    from sinkshot.label.exports import EXPORTS

    return [name for name in EXPORTS if name.startswith(incomplete)]
