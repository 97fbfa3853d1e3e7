"""Label your own images, texts or embeddings: a few have labels, and the others get them.

Read in this order: `items` (what is to be labelled), `inputs` (how it is recognised), `encode` and `cache` (features),
`classifier` (and its answers), `answers` (the files that are written), `decisions` (of a review), `page` and
`exports`, and last `run`, which joins them for the command and for `sinkshot.label`.

The package can be called: `sinkshot.label("photos")` is `sinkshot.label.run.label("photos")`.
"""

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """Makes the package callable: `sinkshot.label(...)` calls `sinkshot.label.run.label`."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        from sinkshot.label.run import label

        return label(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage
