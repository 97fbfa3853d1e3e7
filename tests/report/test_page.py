"""A page is written whole or not at all, and its numbers as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sinkshot.errors import InputError
from sinkshot.report.page import count, number, percent, seconds, signed, write_page


def test_a_failed_write_keeps_the_old_page_and_leaves_nothing_behind(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("old")
    with pytest.raises(TypeError):
        write_page(page, "page.html.jinja", sinkshot=Unwritable())
    assert page.read_text() == "old"
    assert list(tmp_path.iterdir()) == [page]


class Unwritable:
    def __str__(self) -> str:
        raise TypeError


def test_a_page_that_cannot_be_written_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: there is no folder"):
        write_page(tmp_path / "nowhere" / "page.html", "page.html.jinja", sinkshot="1")
    with pytest.raises(InputError, match="cannot be written: a folder or device has that name"):
        write_page(tmp_path, "page.html.jinja", sinkshot="1")
    assert list(tmp_path.iterdir()) == []
    assert not list(tmp_path.parent.glob(".sinkshot-*"))


def test_the_frame_alone_is_a_page(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", "page.html.jinja", sinkshot="1.2.3")
    assert "SinkShot 1.2.3" in (tmp_path / "page.html").read_text()


def test_numbers_are_written_for_people() -> None:
    minus = "\N{MINUS SIGN}"
    assert (percent(0.87914), percent(0.5, 1)) == ("87.91", "50.0")
    assert (number(-1.5), number(-0.001)) == (f"{minus}1.50", "0.00")
    assert (signed(0.5), signed(-0.5), signed(0.001), signed(-0.001)) == ("+0.50", f"{minus}0.50", "0.00", "0.00")
    assert count(12000) == "12,000"
    assert [seconds(s) for s in (0.0, 0.0417, 0.5, 3.14159, 48.61, 123.4, 4321.0)] == (
        ["0.000", "0.042", "0.500", "3.14", "48.6", "123", "4321"]
    )
