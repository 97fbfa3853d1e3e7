"""Check the links of a built site offline: every page, file and anchor that a page points to must be there.

    python tools/check_links.py docs/_build/html

Addresses on other hosts are counted and not fetched.
"""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LEFT_OUT = {"_modules", "_sources", "_static"}


class _Page(HTMLParser):
    """Collects what a page points to, and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = {"", "top"}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note links, images and ids."""
        for name, value in attrs:
            if value is None:
                continue
            if name in ("href", "src") and tag in ("a", "img", "link", "script"):
                self.targets.add(value)
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)


@cache
def read(file: Path) -> _Page:
    """Parse a page once."""
    page = _Page()
    page.feed(file.read_text(encoding="utf-8"))
    return page


def broken(site: Path) -> tuple[list[str], int, int]:
    """Return a sentence for each broken link, how many links were checked, and how many lead to other hosts."""
    found, checked, outside = [], 0, 0
    for file in sorted(site.rglob("*.html")):
        if LEFT_OUT & set(file.relative_to(site).parts):
            continue
        for target in sorted(read(file).targets):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                outside += 1
                continue
            checked += 1
            goal = file if not parts.path else (file.parent / unquote(parts.path)).resolve()
            goal = goal / "index.html" if goal.is_dir() else goal
            name = file.relative_to(site)
            if not goal.is_file():
                found.append(f"{name} links to {target}: there is no such file.")
            elif goal.suffix == ".html" and unquote(parts.fragment) not in read(goal).anchors:
                found.append(f"{name} links to {target}: the page has no such anchor.")
    return found, checked, outside


def main() -> None:
    """Print broken links; exit 1 if there are any."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    found, checked, outside = broken(Path(sys.argv[1]).resolve())
    print(
        "\n".join([*found, f"{checked:,} links checked, {len(found)} broken, {outside:,} to other hosts not fetched."])
    )
    sys.exit(1 if found or not checked else 0)


if __name__ == "__main__":
    main()
