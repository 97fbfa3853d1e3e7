"""Without a GPU, Triton interprets the kernels: their tests run once more, all in one process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command_line import run_program
from triton_runs import KERNELS_RUN

FILES = sorted(Path(__file__).parent.glob("test_*_triton.py"))


@pytest.mark.slow
@pytest.mark.skipif(KERNELS_RUN, reason="the kernels run in this process")
def test_the_kernels_do_what_they_say_when_interpreted():
    words = ("-m", "pytest", "-x", "-n", "0", "-W", "ignore::RuntimeWarning", *FILES)
    done = run_program(sys.executable, *words, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
