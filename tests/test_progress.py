"""Progress is reported on standard error: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import sys

from sinkshot.progress import ProgressReporter


def test_a_log_gets_a_line_at_most_every_so_many_seconds(capsys):
    now = [0.0]
    with ProgressReporter(every=30.0, clock=lambda: now[0]) as progress:
        bar = progress.bar()
        for done, second in enumerate((1, 29, 31, 45, 60, 61, 200, 229, 230)):
            now[0] = second
            bar(done, 9, f"{done} done")
    said = capsys.readouterr()
    assert said.err.split("\n") == ["2 done", "5 done", "6 done", "8 done", ""]  # at 31, 61, 200 and 230 seconds
    assert said.out == ""


def test_without_words_a_bar_tells_count_and_time_left(capsys):
    now = [0.0]
    with ProgressReporter(every=1.0, clock=lambda: now[0]) as progress:
        bar = progress.bar("images")
        bar(10, 110)
        now[0] = 5.0
        bar(60, 110)
    assert capsys.readouterr().err == "images: 60 of 110, 0:05 left\n"


def test_no_lines_are_printed_unless_asked_for_and_none_when_silent(capsys):
    for progress in (ProgressReporter(), ProgressReporter(every=0.0, silent=True)):
        with progress:
            progress.bar("title")(1, 2)
    ProgressReporter(every=0.0, silent=True).say("nobody hears this")
    assert capsys.readouterr().err == ""


def test_control_characters_never_reach_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    with ProgressReporter() as progress:
        progress.bar("a\x1b[31m[bold]b")(1, 2)
        progress.say("c\x1b[31m[bold]d")
    said = capsys.readouterr().err
    assert "c\\x1b[31m[bold]d" in said
    assert "\x1b[31m" not in said
