"""Sphinx extension: write the pages and figures that come from the code, before Sphinx reads its sources.

- `methods/`: a page for each registered method (tools/make_methods_page.py)
- `api/index.rst`: the public names
- `_generated/`: the graph of packages and the figures of "How it works"
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import api_page
import draw_engines
import draw_gram_form
import draw_packages
import draw_pipeline
import make_methods_page

FIRST = ("evaluate", "preprocessing", "one_episode", "unequal_pools", "open_set", "risk_coverage", "own_features")
"""Examples that the gallery begins with, after `plot_`; the others follow by name."""
INHERITED = re.compile(r"set_\w+_request|get_metadata_routing|set_output|score")


class ExampleOrder:
    """Sort the examples of the gallery from simple to special."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, file: str) -> tuple[int, str]:
        """Return the key of a file."""
        name = Path(file).stem.removeprefix("plot_")
        return (FIRST.index(name) if name in FIRST else len(FIRST), name)


def write_pages(app: Any, config: Any) -> None:
    """Write everything that is made from code into the source folder; git ignores it."""
    docs = Path(app.srcdir)
    make_methods_page.write(docs / "methods")
    api_page.write(docs / "api")
    figures = docs / "_generated"
    figures.mkdir(exist_ok=True)
    draw_packages.draw(figures / "packages.svg")
    draw_engines.draw(figures / "engines.svg")
    draw_gram_form.draw(figures / "gram-form.svg")
    draw_pipeline.draw(figures / "pipeline.svg")


def skip(app: Any, what: str, name: str, member: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn adds to every estimator for its own plumbing."""
    return True if INHERITED.fullmatch(name) else None


def setup(app: Any) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("config-inited", write_pages)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
