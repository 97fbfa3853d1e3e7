"""Imported before Numba: settings in the environment with which it cannot start are refused in a sentence."""

from __future__ import annotations

from sinkshot.errors import InputError
from sinkshot.kernels import check_threads, jit_disabled

if jit_disabled():
    raise InputError("NUMBA_DISABLE_JIT is set in the environment, and this needs compiled code; unset it.")
check_threads()
