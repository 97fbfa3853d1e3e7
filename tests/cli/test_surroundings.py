"""Odd environments: closed streams, readers that go away, missing folders, impossible settings."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from command_line import run_program, sinkshot_process, start_sinkshot

import sinkshot as package
from sinkshot.cli import _exit_codes, _signals

BUNDLED = "cifar-fs_wrn-28-10_novel"
EVAL = ("eval", BUNDLED, "--episodes", "20", "--json")
ENDLESS = ("eval", BUNDLED, "--method", "ncm", "--engine", "numpy", "--episodes", "90000000")

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs signals and shells of POSIX")


def in_shell(line, *words, **environment):
    """Run a line of shell in which "$@" is the command."""
    return run_program("sh", "-c", line, "sh", sys.executable, "-m", "sinkshot", *words, **environment)


def refused(done):
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_closed_standard_output_is_refused_before_anything_is_computed():
    assert "standard output is closed" in refused(in_shell('"$@" >&-', *ENDLESS))


@pytest.mark.slow
def test_closed_standard_input_and_error_are_no_hindrance():
    done = in_shell('"$@" 2>&- <&-', *EVAL)
    assert done.returncode == 0
    assert '"accuracy"' in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("words", [EVAL, EVAL[:-1], ("methods",), ("--version",)], ids=str)
def test_results_that_cannot_be_written_are_a_failure_in_one_sentence(words):
    done = in_shell('"$@" >/dev/full', *words)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "bug" not in done.stderr


def test_a_working_folder_that_is_gone_is_said(tmp_path):
    line = 'mkdir gone && cd gone && rmdir ../gone && "$@"'
    sources = str(Path(package.__file__).parents[1])  # a relative PYTHONPATH would need the folder
    done = in_shell(line, *EVAL, cwd=tmp_path, PYTHONPATH=sources)
    assert "the working folder does not exist any more" in refused(done)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bms", "tim-gd"])
def test_a_number_of_threads_that_numba_cannot_have_is_refused(method):
    done = sinkshot_process("eval", BUNDLED, "--method", method, "--episodes", "600", NUMBA_NUM_THREADS="0")
    assert "NUMBA_NUM_THREADS is 0" in refused(done)


@pytest.mark.slow
def test_where_numba_may_not_compile_numpy_computes():
    methods = ("--method", "bms", "--method", "tim-gd", "--method", "protolp")
    done = sinkshot_process("eval", BUNDLED, *methods, "--episodes", "20", "--json", NUMBA_DISABLE_JIT="1")
    assert done.returncode == 0, done.stderr
    assert [result["engine"] for result in json.loads(done.stdout)["results"]] == ["numpy"] * 3


def test_too_little_address_space_is_refused_before_linear_algebra_hangs():
    done = subprocess.run(
        [sys.executable, "-m", "sinkshot", *EVAL],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20)),
    )
    assert "address space" in refused(done)


COMPUTES = """
import pathlib, sys
import sinkshot
module = sys.modules["sinkshot.evaluate"]
evaluate = module._run

def telling(job, engine, notes, progress):
    def tell(*state):
        progress(*state)
        pathlib.Path("computes").touch()
    return evaluate(job, engine, notes, tell)

module._run = telling
"""


def computing(folder, *words):
    """Start a command in an empty folder, and wait until it has evaluated some episodes."""
    run = start_sinkshot(*words, before=COMPUTES, cwd=folder)
    while not (folder / "computes").exists():
        assert run.poll() is None, run.communicate()
        time.sleep(0.02)
    return run


@pytest.mark.slow
def test_an_evaluation_stops_soon_after_its_reader_has_gone(tmp_path):
    run = computing(tmp_path, *ENDLESS)
    run.stdout.close()
    assert run.wait(timeout=20) == 1
    assert run.stderr.read() == ""
    run.stderr.close()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_keeps_and_says_what_was_finished(tmp_path, number, code):
    run = computing(tmp_path, *ENDLESS, "--json")
    run.send_signal(number)
    output, errors = run.communicate(timeout=60)
    assert run.returncode == code, errors
    assert errors.startswith("interrupted; the results above are from: ncm ")
    assert '"accuracy"' in output


def test_an_interrupt_that_comes_late_is_no_ctrl_c(monkeypatch):
    monkeypatch.setattr(_signals, "LOOK_EVERY", 1e-4)
    monkeypatch.setattr(_signals, "_reader_gone", threading.Event())
    before, rng = signal.getsignal(signal.SIGPIPE), random.Random(0)
    for _ in range(300):
        reader, writer = os.pipe()
        os.close(reader)
        held = contextlib.redirect_stdout(os.fdopen(writer, "w"))
        ends = contextlib.suppress(BrokenPipeError, _signals.ReaderGone)  # the latter between the block and its end
        with held as output, contextlib.closing(output), ends, _signals.while_read():
            end = time.perf_counter() + rng.random() * 4e-4
            while time.perf_counter() < end:
                pass
        assert signal.getsignal(signal.SIGPIPE) is before


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(130)])
def test_an_interrupt_whose_reader_has_gone_ends_in_silence(monkeypatch, capfd, error):
    monkeypatch.setattr(_signals, "_reader_gone", threading.Event())
    _signals._reader_gone.set()
    monkeypatch.setattr(_exit_codes, "_discard", lambda number: None)
    assert _exit_codes.ending(error) == 1
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(not hasattr(signal, "SIGPIPE"), reason="no pipes of that kind")
def test_a_reader_that_leaves_during_an_import_does_not_end_python_by_a_signal():
    """Python remembers a plain KeyboardInterrupt that left the `exec` of a string, handled or not."""
    code = "from sinkshot.cli._signals import ReaderGone\ntry: exec('raise ReaderGone')\nexcept KeyboardInterrupt: pass"
    assert run_program(sys.executable, "-c", code).returncode == 0
