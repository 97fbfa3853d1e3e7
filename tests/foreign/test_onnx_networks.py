"""ONNX files from others: a network that needs too much memory or time is stopped."""

import time

import numpy as np
import psutil
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from sinkshot.encoders import load  # noqa: E402
from sinkshot.errors import InputError  # noqa: E402
from sinkshot.foreign import limits  # noqa: E402
from sinkshot.foreign import onnx_network as networks  # noqa: E402


def write(path, nodes, initial=(), inputs=(("images", ["n", 3, 16, 16]),), output="features"):
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs]
    out = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in dict(initial).items()]
    graph = helper.make_graph(nodes, "g", infos, out, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs, outputs, **attributes)


def pooled(name="images"):
    return [node("GlobalAveragePool", [name], ["pooled"]), node("Flatten", ["pooled"], ["features"])]


def endless():
    """A loop whose condition never becomes false."""
    true = numpy_helper.from_array(np.array(True), "true")
    body = helper.make_graph(
        [node("Identity", ["go"], ["again"]), node("Add", ["x", "x"], ["y"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("again", TensorProto.BOOL, []),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
        ],
    )
    loop = node("Loop", ["", "true", "flat"], ["features"], body=body)
    return [*pooled()[:1], node("Flatten", ["pooled"], ["flat"]), loop], true


BEFORE = set()  # processes that other tests left, such as the one that multiprocessing keeps


@pytest.fixture(autouse=True)
def _left_by_others():
    BEFORE.clear()
    BEFORE.update(children())


def children():
    found = psutil.Process().children(recursive=True)
    return [child for child in found if child.status() != psutil.STATUS_ZOMBIE and child not in BEFORE]


def refused(path, message, **options):
    began = time.monotonic()
    with pytest.raises(InputError, match=message) as error:
        load(path, "image", **options)
    assert str(error.value).isprintable()
    assert time.monotonic() - began < 60
    assert not children(), "a process is left"


@pytest.mark.slow
def test_a_network_that_asks_for_20_gigabytes_is_ended(tmp_path):
    shape = np.array([5_000, 1_000_000], np.int64)
    size = helper.make_tensor("value", TensorProto.FLOAT, [1], [1.0])
    nodes = [
        node("ConstantOfShape", ["shape"], ["large"], value=size),
        node("ReduceSum", ["large"], ["sum"], keepdims=0),
    ]
    nodes += [node("GlobalAveragePool", ["images"], ["pooled"]), node("Flatten", ["pooled"], ["flat"])]
    nodes += [node("Add", ["flat", "sum"], ["features"])]
    refused(
        write(tmp_path / "x.onnx", nodes, {"shape": shape}), r"x\.onnx.*(more than .* of memory, and was ended|alloc)"
    )


@pytest.mark.slow
def test_a_network_that_never_answers_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(networks, "NETWORK_SECONDS", limits.Limit(3, "seconds", ""))
    nodes, true = endless()
    path = write(tmp_path / "x.onnx", nodes, {"true": numpy_helper.to_array(true)})
    refused(path, r"x\.onnx fails on an image of 16 pixels \(it did not answer within 3 seconds")


@pytest.mark.slow
def test_networks_that_are_none_are_refused_in_a_sentence(tmp_path):
    constant = [
        node("Constant", [], ["features"], value=helper.make_tensor("v", TensorProto.FLOAT, [1, 2], [1.0, 2.0]))
    ]
    refused(write(tmp_path / "a.onnx", constant, inputs=()), "has no inputs")
    refused(write(tmp_path / "b.onnx", pooled(), inputs=[("images", [10**9, 3, 16, 16])]), "1,000,000,000 images of 16")
    refused(write(tmp_path / "c.onnx", pooled(), inputs=[("images", ["n", 3, 10**6, 10**6])]), "1,000,000 pixels")
    refused(write(tmp_path / "d.onnx", pooled(), inputs=[("images", [])]), "takes inputs of shape")
    wrong = [node("ReduceMean", ["images"], ["features"], keepdims=0)]
    refused(write(tmp_path / "f.onnx", wrong), r"its output has shape \(\)")
    refused(write(tmp_path / "g.onnx", pooled("\x1b[31mx\n")), r"g\.onnx")


def test_an_honest_network_runs_and_its_process_ends_with_it(tmp_path):
    found = load(write(tmp_path / "x.onnx", pooled()), "image")
    pixels = np.random.default_rng(0).integers(0, 256, (300, 16, 16, 3), np.uint8)
    means = found.images.normalised(pixels).mean(axis=(2, 3))
    np.testing.assert_allclose(found.encode(pixels), means, atol=1e-5)
    assert len(children()) == 1
    del found
    assert not children()
