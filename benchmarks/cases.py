"""The cases that several benchmarks measure."""

from __future__ import annotations

CASES = (  # method, shot
    ("bms", 1),
    ("sinkshot", 1),
    ("bms-star", 1),
    ("bms", 5),
    ("sinkshot", 5),
    ("bms-star", 5),
    ("ncm", 5),
    ("kmeans", 5),
    ("soft-kmeans", 5),
)
