"""Values that share elements with others beside ONNX Runtime's CPU provider: python sharing.py LIBRARY [TEXT]

Tensors on the host that a step may give back as they are, views that are undone or given to a fused operator, and numbers
that choose a replay's operations. Each case runs several times on one session, so that later runs are replays. Prints a
line for each case whose name has TEXT in it, and ends with 1 if an output has another shape or differs by more than 1e-4
of the largest number (1e-2 with precision=f16).
"""

import pathlib
import sys

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from models import Graph, end, ints, normal, number, ours, told

KINDS = {"f": TensorProto.FLOAT, "i": TensorProto.INT32, "l": TensorProto.INT64}
BATCH, TOKENS, HEADS, HEAD = 1, 3, 2, 8
WIDTH = HEADS * HEAD


class Model(Graph):
    """A graph whose inputs and outputs are named with their element types."""

    def of_microsoft(self, operator, *inputs, **attributes):
        return self.add(operator, *inputs, domain="com.microsoft", **attributes)

    def bytes(self, inputs, outputs):
        values = [helper.make_tensor_value_info(name, KINDS[kind], shape) for name, kind, shape in inputs]
        made = [helper.make_tensor_value_info(name, KINDS[kind], None) for name, kind in outputs]
        graph = helper.make_graph(self.nodes, "g", values, made, self.weights)
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def one_index_for_two_tables():
    """Indices below zero are counted from the end of each table: other numbers for each, which were the same before."""
    g = Model()
    a = g.add("Gather", np.arange(50, dtype="f").reshape(50, 1), "ids")
    b = g.add("Gather", np.arange(60, dtype="f").reshape(60, 1), "ids")
    y = g.add("MatMul", g.add("Concat", a, b, axis=-1), np.eye(2, dtype="f"))
    feeds = [{"ids": ints(*numbers)} for numbers in ((1, 2, 3), (4, 5, 6), (7, 8, -9), (-1, -2, -3))]
    return g.bytes([("ids", "l", [3])], [(y, "f")]), feeds, {}


def indices_that_are_numbers_too():
    """The device computes with indices as they are, and looks up as they are counted."""
    g = Model()
    ids = g.add("Sub", "x", "k")
    sums = g.add("CumSum", "y", np.array(0))
    found, rest = g.add("Gather", sums, ids), g.add("Sub", ids, sums)
    x, y = np.array([0, 1, 2], "i4"), np.array([10, 20, 30], "i4")
    feeds = [{"x": x, "y": y, "k": np.array(k, "i4")} for k in (0, 0, 0, 1, 2)]
    return g.bytes([("x", "i", [3]), ("k", "i", []), ("y", "i", [3])], [(found, "i"), (rest, "i")]), feeds, {"claim": "all"}


def a_view_that_is_undone():
    g = Model()
    turned = g.add("Transpose", "x", perm=[1, 0, 2])
    # Keeps ONNX Runtime from leaving out both transposes.
    kept = g.add("Expand", turned, g.add("Shape", turned))
    undone = g.add("Transpose", kept, perm=[1, 0, 2])
    total = g.add("ReduceSum", g.add("Cast", undone, to=TensorProto.INT64), keepdims=0)
    feeds = [{"x": np.full((10, 10, 4), value, "i4")} for value in (1, 2, 3, 4)]
    return g.bytes([("x", "i", ["a", "b", "c"])], [(undone, "i"), (total, "l")]), feeds, {"claim": "all"}


def multi_head_attention_with_a_slice_as_bias():
    g = Model()
    bias = g.add("Gather", "bias", np.array(1))
    y = g.of_microsoft("MultiHeadAttention", "q", "k", "v", bias, num_heads=HEADS)
    given = [(name, "f", [BATCH, TOKENS, WIDTH]) for name in "qkv"] + [("bias", "f", [2, 3 * WIDTH])]
    feeds = [{name: normal(*shape) for name, _, shape in given} for _ in range(3)]
    return g.bytes(given, [(y, "f")]), feeds, {}


def attention_with_a_slice_as_bias():
    g = Model()
    y = g.of_microsoft("Attention", "x", "w", g.add("Gather", "bias", np.array(1)), num_heads=HEADS)
    given = [("x", "f", [BATCH, TOKENS, WIDTH]), ("w", "f", [WIDTH, 3 * WIDTH]), ("bias", "f", [2, 3 * WIDTH])]
    feeds = [{name: normal(*shape) for name, _, shape in given} for _ in range(3)]
    return g.bytes(given, [(y, "f")]), feeds, {}


def means_of_norms_in_f16():
    """A norm's mean is of f32 also where its result is of f16."""
    g = Model()
    x = g.add("MatMul", "x", np.eye(8, dtype="f"))
    factors = [g.weight(np.ones(8, "f")), g.weight(np.zeros(8, "f"))]
    g.nodes.append(helper.make_node("LayerNormalization", [x, *factors], ["y", "mean", "inverse"], "norm"))
    rest = g.add("Mul", g.add("Sub", x, "mean"), "inverse")
    return g.bytes([("x", "f", ["a", 8])], [("y", "f"), (rest, "f")]), [{"x": normal(3, 8)} for _ in range(3)], {"precision": "f16"}


def a_zero_of_another_sign():
    g = Model()
    y = g.add("Div", g.add("MatMul", "x", np.eye(5, dtype="f")), "s")
    feeds = [{"x": np.ones((5, 5), "f"), "s": number(s)} for s in (0.0, 0.0, 0.0, -0.0)]
    return g.bytes([("x", "f", [5, 5]), ("s", "f", [])], [(y, "f")]), feeds, {}


def gelu_of_a_number():
    """A factor of one dimension gives a number a dimension."""
    g = Model()
    x = g.add("ReduceMean", g.add("MatMul", "x", normal(8, 4)), keepdims=0)
    gate = g.add("Add", g.add("Erf", g.add("Div", x, number(2**0.5))), number(1.0))
    y = g.add("Mul", g.add("Mul", x, gate), np.array([0.5], "f"))
    return g.bytes([("x", "f", ["a", 8])], [(y, "f")]), [{"x": normal(3, 8)} for _ in range(3)], {}


CASES = [
    one_index_for_two_tables,
    indices_that_are_numbers_too,
    a_view_that_is_undone,
    multi_head_attention_with_a_slice_as_bias,
    attention_with_a_slice_as_bias,
    means_of_norms_in_f16,
    a_zero_of_another_sign,
    gelu_of_a_number,
]


def difference(a, b):
    """How far an output is off, of the largest number that there should be; infinity is only as itself."""
    if a.shape != b.shape:
        return np.inf
    a, b = a.astype("f8"), b.astype("f8")
    if not np.isfinite(b).all():
        return 0.0 if (a == b).all() else np.inf
    return np.abs(a - b).max() / max(np.abs(b).max(), 1e-6)


def unchanged():
    """Settings with which ONNX Runtime leaves the model as it is: its own fusions come before the provider's."""
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return settings


def main(library, text):
    ort.set_default_logger_severity(4)
    ort.register_execution_provider_library("webgpu_compute", library)
    failed = []
    for case in CASES:
        name = case.__name__.replace("_", " ")
        if text not in name:
            continue
        model, feeds, options = case()
        session, expected = ours(model, options, unchanged()), ort.InferenceSession(model, unchanged(), ["CPUExecutionProvider"])
        try:
            pairs = [pair for feed in feeds for pair in zip(session.run(None, feed), expected.run(None, feed))]
        except Exception as error:
            failed += told(False, name, error)
            continue
        error = max(difference(a, b) for a, b in pairs)
        failed += told(error < (1e-2 if "precision" in options else 1e-4), name, f"off by {error:.1e}")
    end(failed)


if __name__ == "__main__":
    main(str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2] if len(sys.argv) > 2 else "")
