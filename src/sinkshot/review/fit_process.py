"""The process in which a review fits, so that a fit never holds up what the page asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from sinkshot.review.child_process import ChildProcess

NICE = 2  # how much lower its priority is than the keeper's; with that, half of the server's and the browser's share


@dataclass(frozen=True)
class Setup:
    """What does not change during a review."""

    features: NDArray[Any]  # [n, d]
    method: str
    unknown: float | None
    next_count: int


class FitProcess(ChildProcess):
    """Answers "fit", "groups" and "next"; `setup` must be set before the first question."""

    def __init__(self) -> None:
        self.setup: Setup | None = None
        super().__init__("sinkshot.review.fit_main", NICE)

    def current_setup(self) -> Setup | None:
        """Return the setup."""
        return self.setup
