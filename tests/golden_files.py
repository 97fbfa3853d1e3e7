"""Paths of the golden files."""

from __future__ import annotations

from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"
