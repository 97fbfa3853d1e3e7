"""Long loops of small torch operations, without the cost of launching each of them on a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch

RECORDED = 20  # steps in a CUDA graph: enough to hide the launch of a graph, few enough to record quickly
WARM = 3  # steps before recording, which libraries need to set themselves up
_REFUSED: list[str] = []  # why recording failed in this process; it is then not tried again


class Repeated:
    """A step that changes tensors in place, to be taken many times; on a GPU it is recorded once as a CUDA graph.

    The tensors that the step reads and changes must stay where they are: fill them anew, do not replace them.
    """

    def __init__(self, step: Callable[[], None], device: torch.device, recorded: int = RECORDED) -> None:
        self.step, self.device, self.recorded = step, device, recorded
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, times: int) -> None:
        """Take the step a number of times."""
        left = times
        if self.device.type == "cuda" and times >= self.recorded and not _REFUSED:
            left -= self._record()
            if self.graph is not None:
                for _ in range(left // self.recorded):
                    self.graph.replay()
                left %= self.recorded
        for _ in range(left):
            self.step()

    def _record(self) -> int:
        """Record the graph if it is not there yet; return the number of steps that were taken on the way."""
        if self.graph is not None:
            return 0
        before = torch.cuda.current_stream(self.device)
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(before)
        with torch.cuda.stream(stream):
            for _ in range(WARM):
                self.step()
        before.wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):  # records, and takes no step
                for _ in range(self.recorded):
                    self.step()
        except RuntimeError as error:
            torch.cuda.set_stream(before)  # a recording that fails may leave its own stream behind
            _REFUSED.append(str(error))
            reason = str(error).split("\n")[0]
            message = f"CUDA could not record a graph ({reason}); long loops run step by step, which is slower."
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        else:
            self.graph = graph
        return WARM
