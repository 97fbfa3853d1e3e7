"""Margin: rows whose two most probable classes are closest in probability (Scheffer, Decomain, Wrobel, IDA 2001)."""

from __future__ import annotations

from sinkshot.selection.registry import Pool, highest, register


@register("margin", reference="Scheffer, Decomain, Wrobel 2001")
def margin(pool: Pool, count: int) -> list[int]:
    """Choose the rows with the smallest margin, rows of no class last."""
    return highest(pool.doubt * pool.known, pool, count)
