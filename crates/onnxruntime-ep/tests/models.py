"""Small models on the provider beside ONNX Runtime's CPU provider: python models.py LIBRARY [MINILM]

A transformer encoder with a mask and a convolutional network, made here with random weights, of several batch sizes
and lengths; with the folder of all-MiniLM-L6-v2, that model too. And what sessions do beside runs: IO binding, threads, sessions next to each other, wrong inputs, options, and
registering again. Prints a line for each check, and ends with 1 if one fails.
"""

import json
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


def safetensors(path):
    """The tensors of a file, all of f32."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    entries = {name: entry for name, entry in json.loads(data[8 : 8 + length]).items() if name != "__metadata__"}
    body = memoryview(data)[8 + length :]
    return {
        name: np.frombuffer(body[slice(*entry["data_offsets"])], "f4").reshape(entry["shape"])
        for name, entry in entries.items()
        if entry["dtype"] == "F32"
    }


def random_bert(layers, width, words=50, positions=64):
    """Weights under the names of a BERT checkpoint."""
    weights = {"embeddings.word_embeddings.weight": normal(words, width) * 5}
    weights["embeddings.position_embeddings.weight"] = normal(positions, width)
    weights["embeddings.token_type_embeddings.weight"] = normal(2, width)

    def linear(name, rows, columns):
        weights[f"{name}.weight"], weights[f"{name}.bias"] = normal(rows, columns).T.copy(), normal(columns)

    def norm(name):
        weights[f"{name}.weight"], weights[f"{name}.bias"] = 1 + normal(width), normal(width)

    norm("embeddings.LayerNorm")
    for layer in (f"encoder.layer.{i}" for i in range(layers)):
        for part in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{part}", width, width)
        linear(f"{layer}.attention.output.dense", width, width)
        linear(f"{layer}.intermediate.dense", width, 4 * width)
        linear(f"{layer}.output.dense", 4 * width, width)
        norm(f"{layer}.attention.output.LayerNorm")
        norm(f"{layer}.output.LayerNorm")
    return weights


def encoder(weights, layers, heads):
    """A BERT encoder, its attention and GELU taken apart as exporters do."""
    g = Graph()
    embeddings = "embeddings.{}_embeddings.weight".format
    width = weights[embeddings("word")].shape[1]
    hidden = g.add("Gather", weights[embeddings("word")], "ids")
    shape = g.add("Shape", hidden)
    batch, length = (g.add("Gather", shape, ints(i), axis=0) for i in range(2))
    place = g.add("Range", ints(0).reshape(()), g.add("Squeeze", length, ints(0)), ints(1).reshape(()))
    place = g.add("Add", g.add("Gather", weights[embeddings("position")], place), weights[embeddings("token_type")][0])
    hidden = g.add("Add", hidden, place)
    split = g.add("Concat", batch, length, ints(heads), ints(width // heads), axis=0)
    mask = g.add("Unsqueeze", g.add("Cast", "mask", to=TensorProto.FLOAT), ints(1, 2))
    mask = g.add("Mul", g.add("Sub", number(1), mask), number(-1e9))

    def linear(x, name):
        return g.add("Add", g.add("MatMul", x, weights[f"{name}.weight"].T.copy()), weights[f"{name}.bias"])

    def norm(x, name):
        return g.add("LayerNormalization", x, weights[f"{name}.weight"], weights[f"{name}.bias"], axis=-1, epsilon=1e-12)

    hidden = norm(hidden, "embeddings.LayerNorm")
    for layer in (f"encoder.layer.{i}" for i in range(layers)):
        projections = (linear(hidden, f"{layer}.attention.self.{part}") for part in ("query", "key", "value"))
        q, k, v = (g.add("Transpose", g.add("Reshape", x, split), perm=[0, 2, 1, 3]) for x in projections)
        scores = g.add("MatMul", q, g.add("Transpose", k, perm=[0, 1, 3, 2]))
        scores = g.add("Add", g.add("Div", scores, number((width // heads) ** 0.5)), mask)
        context = g.add("Transpose", g.add("MatMul", g.add("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        context = linear(g.add("Reshape", context, ints(0, 0, width)), f"{layer}.attention.output.dense")
        hidden = norm(g.add("Add", context, hidden), f"{layer}.attention.output.LayerNorm")
        up = linear(hidden, f"{layer}.intermediate.dense")
        gate = g.add("Add", g.add("Erf", g.add("Div", up, number(2**0.5))), number(1))
        up = g.add("Mul", g.add("Mul", up, gate), number(0.5))
        hidden = norm(g.add("Add", linear(up, f"{layer}.output.dense"), hidden), f"{layer}.output.LayerNorm")
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


def branches():
    """An If between two nodes of the provider, whose branches read what the first has made."""
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2])
    branch = lambda name, operator: helper.make_graph([helper.make_node(operator, ["a"], [name])], name, [], [value(name)])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("If", ["condition"], ["i"], then_branch=branch("t", "Neg"), else_branch=branch("e", "Exp")),
        helper.make_node("Add", ["a", "i"], ["y"]),
    ]
    condition = helper.make_tensor_value_info("condition", TensorProto.BOOL, [])
    weight = numpy_helper.from_array(normal(2, 2), "w")
    graph = helper.make_graph(nodes, "g", [value("x"), condition], [value("y")], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


def device():
    return [device for device in ort.get_ep_devices() if device.ep_name == NAME][0]


def ours(model, options=None, settings=None):
    settings = settings or ort.SessionOptions()
    settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    settings.add_provider_for_devices([device()], options or {})
    session = ort.InferenceSession(model, sess_options=settings)
    session.disable_fallback()
    return session


def reference(model):
    return ort.InferenceSession(model, providers=["CPUExecutionProvider"])


def is_whole(session):
    """Whether all nodes are the provider's, as far as this version tells."""
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return True
    return {part.ep_name for part in session.get_provider_graph_assignment_info()} == {NAME}


def told(holds, name, what):
    """Prints a case's line; its name in a list if it fails."""
    print("ok  " if holds else "FAIL", f"{name}: {what}", flush=True)
    return [] if holds else [name]


def end(failed):
    """Ends the process without a wait for drivers' threads."""
    print("failed:", failed)
    sys.stdout.flush()
    os._exit(1 if failed else 0)


def tokens(batch, length, words=50):
    mask = np.ones((batch, length), np.int64)
    mask[0, length // 2 + 1 :] = 0
    return {"ids": RANDOM.integers(0, words, (batch, length)), "mask": mask}


def images(batch, height, width):
    return {"x": RANDOM.standard_normal((batch, 3, height, width)).astype("f")}


def check(name, holds, detail=""):
    print("ok  " if holds else "FAIL", name, detail, flush=True)
    FAILED.extend([] if holds else [name])


def compare(name, session, expected, feed):
    a, b = session.run(None, feed)[0], expected.run(None, feed)[0]
    error = np.abs(a - b).max() / np.abs(b).max() if b.size else 0.0
    check(name, a.shape == b.shape and error < 1e-4, f"{a.shape} {error:.1e}")


def check_assignment(name, session):
    """Whether every node is the provider's, where ONNX Runtime tells."""
    if not hasattr(session, "get_provider_graph_assignment_info"):
        print("--  ", f"{name}: this version doesn't tell whose the nodes are")
        return
    counts = {part.ep_name: len(part.get_nodes()) for part in session.get_provider_graph_assignment_info()}
    check(f"{name}: every node is the provider's", set(counts) == {NAME}, counts)


def in_threads(threads, times, holds):
    """What went wrong in threads that each ask so many times whether something holds."""
    wrong = []

    def work():
        try:
            for _ in range(times):
                if not holds():
                    wrong.append("another result")
        except Exception as error:
            wrong.append(str(error).replace("\n", " "))

    running = [threading.Thread(target=work) for _ in range(threads)]
    [thread.start() for thread in running]
    [thread.join() for thread in running]
    return wrong


def fails(call):
    try:
        call()
    except Exception as error:
        return str(error)
    return ""


def refuses(make, word):
    """Whether no session with the provider is made. Older versions of ONNX Runtime then make one without it."""
    try:
        return NAME not in make().get_providers()
    except Exception as error:
        return word in str(error)


FAILED = []


def minilm(folder):
    """all-MiniLM-L6-v2 with its own weights."""
    model = encoder(safetensors(folder / "model.safetensors"), 6, 12)
    session, expected = ours(model), reference(model)
    check_assignment("MiniLM", session)
    for feed in (tokens(2, 16, 30000), tokens(1, 9, 30000)):
        a, b = (run.run(None, feed)[0].mean(axis=1).astype("f8") for run in (session, expected))
        cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
        check("MiniLM: cosine of the embeddings", cosine.min() >= 0.9999, f"{cosine.min():.7f}")


def resident():
    """Bytes of memory that the process has, where the system tells."""
    status = pathlib.Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)


def growth(session, feed, runs=int(os.environ.get("RUNS", 300))):
    """Whether memory stays as it is from run to run, of shapes that repeat and of ones that change."""
    other = {"x": feed["x"][:, :, ::2].copy()}

    def work(count):
        for i in range(count):
            session.run(None, other if i % 7 == 0 else feed)

    work(max(50, runs // 10))
    before = resident()
    work(runs)
    grown = (resident() - before) / 2**20
    check(f"{runs} runs without growth", grown < 8, f"{grown:.1f} MiB")


def main(library, folder):
    ort.set_default_logger_severity(4)
    ort.register_execution_provider_library("webgpu_compute", library)
    print(f"onnxruntime {ort.__version__}, {dict(device().ep_metadata)}")
    for name, model, feeds in [
        ("encoder", encoder(random_bert(2, 32), 2, 4), [tokens(2, 5), tokens(1, 16), tokens(3, 7), tokens(2, 5)]),
        ("network", network(), [images(1, 32, 32), images(2, 40, 24), images(1, 32, 32)]),
    ]:
        session, expected = ours(model), reference(model)
        check_assignment(name, session)
        for feed in feeds:
            compare(name, session, expected, feed)

    if ort.__version__.startswith("1.23."):
        # It names two parts of a graph with branches alike, and refuses the session.
        print("--   branches that read a value of the provider's: not with this version")
    else:
        model = branches()
        session, expected = ours(model, {"claim": "all"}), reference(model)
        if hasattr(session, "get_provider_graph_assignment_info"):
            parts = [part for part in session.get_provider_graph_assignment_info() if part.ep_name == NAME]
            check("a subgraph on either side of an If", len(parts) == 2, len(parts))
        feed = {"x": RANDOM.standard_normal((2, 2)).astype("f"), "condition": np.array(False)}
        compare("branches that read a value of the provider's", session, expected, feed)
    if folder is not None:
        minilm(folder)
    model = network()
    session, expected, feed = ours(model), reference(model), images(2, 32, 32)
    want = expected.run(None, feed)[0]
    wrong = in_threads(8, 5, lambda: np.abs(session.run(None, feed)[0] - want).max() <= 1e-4)
    check("eight threads on one session", not wrong, wrong)
    broken = images(1, 0, 0)
    wrong = in_threads(2, 1, lambda: session.run(None, broken) is not None)
    check("an error in a thread is noticed", len(wrong) == 2 and all("Conv" in why for why in wrong), wrong[:1])
    growth(session, feed)
    other = ours(encoder(random_bert(1, 32), 1, 4))
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
    for name, model_of, feed_of in (("encoder", encoder(random_bert(2, 32), 2, 4), tokens(2, 5)), ("network", model, feed)):
        half, exact = ours(model_of, {"precision": "f16"}), reference(model_of).run(None, feed_of)[0]
        errors = [np.abs(half.run(None, feed_of)[0] - exact).max() / np.abs(exact).max() for _ in range(3)]
        check(f"{name} in f16", np.max(errors) < 2e-2, f"{np.max(errors):.1e}")
        emulated = ours(model_of, {"precision": "emulated_f32"}).run(None, feed_of)[0]
        error = np.abs(emulated - exact).max() / np.abs(exact).max()
        check(f"{name} in emulated f32", error < 1e-4, f"{error:.1e}")
    check("an unknown option is refused", refuses(lambda: ours(model, {"selectr": "cpu"}), "selectr"))
    compare("another device by an option", ours(model, {"selector": "cpu"}), expected, feed)
    del session, binding, value
    ort.unregister_execution_provider_library("webgpu_compute")
    ort.register_execution_provider_library("webgpu_compute", library)
    compare("registered again", ours(model), expected, feed)
    end(FAILED)


if __name__ == "__main__":
    main(str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None)
