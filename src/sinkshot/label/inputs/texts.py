"""Plain text: one text per line, identified by its line number."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sinkshot.foreign.texts import rows, split
from sinkshot.label.items import Items, LeftOut, unlabelled


def read(path: Path) -> Items:
    """Read a file of texts; empty lines are left out."""
    lines = split(rows(path))
    numbered = [(str(number), line.strip()) for number, line in enumerate(lines, start=1)]
    kept = [(number, line) for number, line in numbered if line]
    return Items(
        kind="texts",
        names=tuple(number for number, _ in kept),
        labels=unlabelled(len(kept)),
        accepted=np.zeros(len(kept), dtype=bool),
        texts=tuple(line for _, line in kept),
        left_out=tuple(LeftOut(f"line {number}", "it is empty") for number, line in numbered if not line),
    )
