"""Settings of the documentation site; `make docs` builds it into docs/_build/html."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS / "_ext"), str(DOCS.parent / "tools"), str(DOCS.parent / "src")]
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # arrays of an episode's size are too small for more
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sinkshot  # noqa: E402

project = "SinkShot"
author = "The SinkShot developers"
copyright = author
version = release = sinkshot.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "site_pages",
]
exclude_patterns = ["_build", "gallery/*.ipynb", "gallery/*.py", "gallery/*.md5"]
templates_path = ["_templates"]
default_role = "code"  # `name` in a docstring

# Pages in Markdown
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# API reference: numpydoc sections, and signatures without annotations, which say less than the Parameters do
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autosummary_generate = True
numpydoc_show_class_members = False  # the class template lists members; tests/test_api_reference.py validates
numpydoc_xref_param_type = False

# Examples run at each build; a failure fails the build
sphinx_gallery_conf = {
    "examples_dirs": str(DOCS.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "site_pages.ExampleOrder",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "image_srcset": [],
    "matplotlib_animations": False,
}
warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")

html_theme = "pydata_sphinx_theme"
html_title = f"SinkShot {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_sidebars = {name: [] for name in ("getting_started", "label", "review", "studies", "security", "faults")}  # alone
toc_object_entries_show_parents = "hide"  # `fit()`, not `FewShotClassifier.fit()`, in the contents of a page
html_theme_options = {
    "logo": {"text": "SinkShot"},
    "show_prev_next": False,
    "navigation_with_keys": False,
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "header_links_before_dropdown": 8,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "icon_links": [
        {"name": "Source", "url": "https://github.com/sinkshot/sinkshot", "icon": "fa-brands fa-github"},
    ],
}
