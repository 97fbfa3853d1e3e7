"""What an export needs of the answers."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray


class Exported(Protocol):
    """What an export needs of the answers, which may be those of a run in parts."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Label of each item, "" where it is rejected."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Where each label is from: given, accepted or predicted."""

    @property
    def confidence(self) -> NDArray[Any]:
        """Probability of each label."""
