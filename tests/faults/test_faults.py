"""Every command under every fault: a sentence, an exit code, no leftovers, and the same bytes in the next run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "backbones"))  # where images for tests are made
from harness import Harness, cannot_be_tried
from table import COMMANDS, DIAGONAL, FAULTS

PRODUCT = [(command, fault) for fault in FAULTS for command in COMMANDS]


@pytest.fixture(scope="session")
def harness(tmp_path_factory):
    return Harness(tmp_path_factory.mktemp("faults"))


def check(harness, command, fault):
    if reason := cannot_be_tried(FAULTS[fault]):
        pytest.skip(reason)
    if COMMANDS[command].torch:
        pytest.importorskip("torch")
    run, wrong = harness.wrong(command, fault)
    assert not wrong, f"exit {run.code}\n" + "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "fault"), DIAGONAL)
def test_a_command_in_a_fault_says_so_and_works_the_next_time(harness, command, fault):
    check(harness, command, fault)


@pytest.mark.long
@pytest.mark.parametrize(("command", "fault"), [pair for pair in PRODUCT if pair not in DIAGONAL])
def test_every_command_in_every_fault_says_so_and_works_the_next_time(harness, command, fault):
    check(harness, command, fault)


def test_each_fault_is_met_in_every_run_of_the_tests():
    assert {fault for _, fault in DIAGONAL} == set(FAULTS)
