"""Small models on the provider beside ONNX Runtime's CPU provider: python models.py LIBRARY

A transformer encoder with a mask and a convolutional network, made here with random weights, of several batch sizes
and lengths; what sessions do beside runs: IO binding, threads, sessions next to each other, wrong inputs, options, and
registering again. Prints a line for each check, and ends with 1 if one fails.
"""

import os
import pathlib
import sys
import threading

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

NAME = "WebGpuComputeExecutionProvider"
VENDOR = 0x5747
RANDOM = np.random.default_rng(7)


class Graph:
    """Nodes and weights of a model."""

    def __init__(self):
        self.nodes, self.weights, self.count = [], [], 0

    def add(self, operator, *inputs, **attributes):
        self.count += 1
        names = [self.weight(x) if isinstance(x, np.ndarray) else x for x in inputs]
        self.nodes.append(helper.make_node(operator, names, [f"v{self.count}"], f"{operator}_{self.count}", **attributes))
        return f"v{self.count}"

    def weight(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def model(self, inputs, output, shape):
        values = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs]
        outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self.nodes, "g", values, outputs, self.weights)
        opset = [helper.make_opsetid("", 18)]
        return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


def normal(*shape):
    return (RANDOM.standard_normal(shape) / np.sqrt(shape[0])).astype("f")


def number(value):
    return np.array(value, dtype=np.float32)


def ints(*numbers):
    return np.array(numbers, dtype=np.int64)


def encoder(layers=2, heads=4, width=32):
    """A BERT-like encoder, its attention and GELU taken apart as exporters do."""
    g = Graph()
    hidden = g.add("Gather", normal(50, width) * 5, "ids")
    shape = g.add("Shape", hidden)
    batch, tokens = (g.add("Gather", shape, ints(i), axis=0) for i in range(2))
    split = g.add("Concat", batch, tokens, ints(heads), ints(width // heads), axis=0)
    mask = g.add("Unsqueeze", g.add("Cast", "mask", to=TensorProto.FLOAT), ints(1, 2))
    mask = g.add("Mul", g.add("Sub", number(1), mask), number(-1e9))

    def linear(x, rows, columns):
        return g.add("Add", g.add("MatMul", x, normal(rows, columns)), normal(columns))

    def norm(x):
        return g.add("LayerNormalization", x, 1 + normal(width), normal(width), axis=-1, epsilon=1e-12)

    for _ in range(layers):
        q, k, v = (g.add("Transpose", g.add("Reshape", linear(hidden, width, width), split), perm=[0, 2, 1, 3]) for _ in range(3))
        scores = g.add("MatMul", q, g.add("Transpose", k, perm=[0, 1, 3, 2]))
        scores = g.add("Add", g.add("Div", scores, number((width // heads) ** 0.5)), mask)
        context = g.add("Transpose", g.add("MatMul", g.add("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        context = g.add("Reshape", context, ints(0, 0, width))
        hidden = norm(g.add("Add", linear(context, width, width), hidden))
        up = linear(hidden, width, 4 * width)
        gate = g.add("Add", g.add("Erf", g.add("Div", up, number(2**0.5))), number(1))
        up = g.add("Mul", g.add("Mul", up, gate), number(0.5))
        hidden = norm(g.add("Add", linear(up, 4 * width, width), hidden))
    ids = [("ids", TensorProto.INT64, ["b", "s"]), ("mask", TensorProto.INT64, ["b", "s"])]
    return g.model(ids, hidden, ["b", "s", width])


def network(width=8):
    """Convolutions with a batch normalisation, a depthwise one, a shortcut, pooling and a classifier."""
    g = Graph()
    x = g.add("Conv", "x", normal(width, 3, 3, 3), normal(width), pads=[1, 1, 1, 1], strides=[2, 2])
    x = g.add("BatchNormalization", x, 1 + normal(width), normal(width), normal(width), 1 + normal(width) ** 2)
    x = g.add("Relu", x)
    x = g.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = g.add("HardSwish", g.add("Conv", x, normal(width, 1, 3, 3), pads=[1, 1, 1, 1], group=width))
    y = g.add("Conv", y, normal(width, width, 1, 1), normal(width))
    y = g.add("Mul", y, g.add("Sigmoid", y))
    x = g.add("Relu", g.add("Add", x, y))
    x = g.add("Flatten", g.add("GlobalAveragePool", x))
    x = g.add("Gemm", x, normal(10, width), normal(10), transB=1)
    return g.model([("x", TensorProto.FLOAT, ["b", 3, "h", "w"])], x, ["b", 10])


def device():
    return [device for device in ort.get_ep_devices() if device.ep_name == NAME][0]


def ours(model, options=None):
    settings = ort.SessionOptions()
    settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    settings.add_provider_for_devices([device()], options or {})
    session = ort.InferenceSession(model, sess_options=settings)
    session.disable_fallback()
    return session


def reference(model):
    return ort.InferenceSession(model, providers=["CPUExecutionProvider"])


def tokens(batch, length):
    mask = np.ones((batch, length), np.int64)
    mask[0, length // 2 + 1 :] = 0
    return {"ids": RANDOM.integers(0, 50, (batch, length)), "mask": mask}


def images(batch, height, width):
    return {"x": RANDOM.standard_normal((batch, 3, height, width)).astype("f")}


def check(name, holds, detail=""):
    print("ok  " if holds else "FAIL", name, detail, flush=True)
    FAILED.extend([] if holds else [name])


def compare(name, session, expected, feed):
    a, b = session.run(None, feed)[0], expected.run(None, feed)[0]
    error = np.abs(a - b).max() / np.abs(b).max() if b.size else 0.0
    check(name, a.shape == b.shape and error < 1e-4, f"{a.shape} {error:.1e}")


def counts(session):
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return {NAME: 1}
    return {part.ep_name: len(part.get_nodes()) for part in session.get_provider_graph_assignment_info()}


def fails(call):
    try:
        call()
    except Exception as error:
        return str(error)
    return ""


FAILED = []


def main(library):
    ort.set_default_logger_severity(4)
    ort.register_execution_provider_library("webgpu_compute", library)
    print(f"onnxruntime {ort.__version__}, {dict(device().ep_metadata)}")
    for name, model, feeds in [
        ("encoder", encoder(), [tokens(2, 5), tokens(1, 16), tokens(3, 7), tokens(2, 5)]),
        ("network", network(), [images(1, 32, 32), images(2, 40, 24), images(1, 32, 32)]),
    ]:
        session, expected = ours(model), reference(model)
        check(f"{name}: every node is the provider's", set(counts(session)) == {NAME}, counts(session))
        for feed in feeds:
            compare(name, session, expected, feed)

    model = network()
    session, expected, feed = ours(model), reference(model), images(2, 32, 32)
    want = expected.run(None, feed)[0]
    wrong = []

    def work():
        for _ in range(5):
            if np.abs(session.run(None, feed)[0] - want).max() > 1e-4:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    check("four threads on one session", not wrong)
    other = ours(encoder())
    compare("a second session beside it", session, expected, feed)
    del other
    compare("after the second session has gone", session, expected, feed)

    value = ort.OrtValue.ortvalue_from_numpy(feed["x"], "gpu", 0, vendor_id=VENDOR)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    place = ort.OrtDevice.make("gpu", 0, vendor_id=VENDOR)
    binding._iobinding.bind_output(session.get_outputs()[0].name, getattr(place, "_ort_device", None) or place._get_c_device())
    for _ in range(3):
        session.run_with_iobinding(binding)
    got = binding.copy_outputs_to_cpu()[0]
    check("inputs and outputs bound to device memory", np.abs(got - want).max() < 1e-4)
    check("a bound input is as it was", np.array_equal(value.numpy(), feed["x"]))

    check("an image smaller than the filter is an error", "Conv" in (why := fails(lambda: session.run(None, images(1, 0, 0)))) or why, why[:90])
    compare("after an error", session, expected, feed)
    check("an unknown option is an error", "selectr" in fails(lambda: ours(model, {"selectr": "cpu"})))
    compare("another device by an option", ours(model, {"selector": "cpu"}), expected, feed)
    del session, binding, value
    ort.unregister_execution_provider_library("webgpu_compute")
    ort.register_execution_provider_library("webgpu_compute", library)
    compare("registered again", ours(model), expected, feed)
    print("failed:", FAILED)
    sys.stdout.flush()
    # Drivers' threads are not waited for.
    os._exit(1 if FAILED else 0)


if __name__ == "__main__":
    main(str(pathlib.Path(sys.argv[1]).resolve()))
