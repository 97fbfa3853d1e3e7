"""The process that runs ONNX networks and decodes Parquet files: requests on stdin, answers on stdout.

`child.Child` starts it as a script with the name of the library it needs. It imports nothing from this package, and can
be ended at any moment. A message is the length of a JSON object (4 bytes), the object, and the bytes of an array if it
has a `shape`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import struct
import sys
from typing import Any, BinaryIO

import numpy as np


def receive(stream: BinaryIO) -> tuple[dict[str, Any], Any] | None:
    """Read a message; None at the end of the stream."""
    begin = stream.read(4)
    if len(begin) < 4:
        return None
    facts: dict[str, Any] = json.loads(stream.read(struct.unpack("<I", begin)[0]))
    if "shape" not in facts:
        return facts, None
    array = np.empty(facts["shape"], facts["dtype"])
    view, at = array.reshape(-1).view(np.uint8).data, 0
    while at < len(view):
        count = stream.readinto(view[at:])  # type: ignore[attr-defined]
        if not count:
            return None
        at += count
    return facts, array


def send(stream: BinaryIO, facts: dict[str, Any], array: Any = None) -> None:
    """Write a message."""
    if array is not None:
        array = np.ascontiguousarray(array)
        facts = {**facts, "shape": array.shape, "dtype": array.dtype.str}
    text = json.dumps(facts).encode()
    stream.write(struct.pack("<I", len(text)) + text)
    if array is not None:
        stream.write(array.reshape(-1).view(np.uint8).data)
    stream.flush()


def peak() -> int:
    """Return the peak memory of this process in bytes; 0 if that is not known."""
    try:
        import resource
    except ImportError:
        return 0
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


class RequestHandler:
    """Answers questions, and holds the network."""

    def __init__(self) -> None:
        self.session: Any = None

    def parquet(self, facts: dict[str, Any], _: Any) -> tuple[dict[str, Any], Any]:
        """Read a table, no larger than is allowed, and give it in Arrow's own format."""
        import pyarrow
        import pyarrow.parquet

        most, sink = facts["most"], pyarrow.BufferOutputStream()
        with (
            open(facts["path"], "rb") as stored,
            pyarrow.parquet.ParquetFile(stored) as file,
        ):
            rows, columns = file.metadata.num_rows, file.metadata.num_columns
            if (need := 8 * rows * columns) > most:
                return {"need": need}, None
            table = file.read(use_threads=False)
        if table.nbytes > most:
            return {"need": table.nbytes}, None
        with pyarrow.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return {"peak": peak()}, np.frombuffer(sink.getvalue(), np.uint8)

    def load(self, facts: dict[str, Any], _: Any) -> tuple[dict[str, Any], Any]:
        """Read a file, and return the inputs of the network."""
        import onnxruntime

        onnxruntime.set_default_logger_severity(4)
        self.session = onnxruntime.InferenceSession(facts["path"], providers=onnxruntime.get_available_providers())
        inputs = [{"name": i.name, "shape": i.shape, "type": i.type} for i in self.session.get_inputs()]
        return {"inputs": inputs, "outputs": len(self.session.get_outputs()), "peak": peak()}, None

    def run(self, facts: dict[str, Any], images: Any) -> tuple[dict[str, Any], Any]:
        """Return the features of images; feature maps are averaged over their positions."""
        given, wanted = self.session.get_inputs()[0].name, self.session.get_outputs()[0].name
        found = np.asarray(self.session.run([wanted], {given: images})[0], np.float32)
        if found.ndim not in (2, 4):
            return {"wrong": list(found.shape)[:16]}, None
        found = found[: facts["rows"]]
        return {"peak": peak()}, found if found.ndim == 2 else found.mean(axis=(2, 3))


def main() -> None:
    """Answer requests until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process decides
    with contextlib.suppress(Exception):  # end with the parent process, however it ends
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # keep what libraries print out of the answers
    handler = RequestHandler()
    importlib.import_module(sys.argv[1])  # before anything is measured
    send(answers, {"peak": peak()})
    while (question := receive(questions)) is not None:
        facts, array = question
        try:
            answer = {"load": handler.load, "run": handler.run, "parquet": handler.parquet}[facts["do"]](facts, array)
        except Exception as error:  # these libraries have an exception class for each status
            answer = {"error": str(error).strip()[:400] or type(error).__name__}, None
        send(answers, *answer)


if __name__ == "__main__":
    main()
