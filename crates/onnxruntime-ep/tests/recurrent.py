"""Recurrent layers beside ONNX Runtime's CPU provider: python recurrent.py LIBRARY [TEXT]

Stacks of LSTM, GRU and RNN layers with random weights, as exporters write them: sequences of several lengths on one
session, of which repeated ones are replays. Prints a line for each case whose name has TEXT in it, and ends with 1 if an
output differs by more than 1e-4 of the largest number, or 2e-2 in f16, or if a node isn't the provider's.
"""

import pathlib
import sys

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from models import Graph, end, ints, is_whole, ours, reference, told

RANDOM = np.random.default_rng(11)
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FEATURES, BATCH = 6, 3


def weights(g, scale, *shape):
    return g.weight(RANDOM.uniform(-scale, scale, shape).astype("f"))


def stack(operator, layers=1, hidden=8, direction="forward", bias=True, lengths=False, states=False, peepholes=False, **attributes):
    """Layers whose directions are merged before the next one. Outputs the sequence and the last layer's states."""
    g = Graph()
    rows, count = GATES[operator] * hidden, 2 if direction == "bidirectional" else 1
    x, features, made = "x", FEATURES, []
    for layer in range(layers):
        inputs = [x, weights(g, 0.8, count, rows, features), weights(g, 0.8, count, rows, hidden)]
        inputs += [weights(g, 0.8, count, 2 * rows) if bias else "", "lengths" if lengths else ""]
        if states or peepholes:
            inputs += ["h0", "c0"] if operator == "LSTM" else ["h0"]
        if peepholes:
            inputs.append(weights(g, 0.8, count, 3 * hidden))
        made = [f"{name}_of_{layer}" for name in ("y", "h", "c")[: 3 if operator == "LSTM" else 2]]
        name = f"{operator}_{layer}"
        g.nodes.append(helper.make_node(operator, inputs, made, name, hidden_size=hidden, direction=direction, **attributes))
        x = g.add("Reshape", g.add("Transpose", made[0], perm=[0, 2, 1, 3]), ints(0, 0, -1))
        features = count * hidden
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["steps", "batch", FEATURES])]
    if lengths:
        given.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, ["batch"]))
    if states or peepholes:
        names = ["h0", "c0"] if operator == "LSTM" else ["h0"]
        given += [helper.make_tensor_value_info(name, TensorProto.FLOAT, [count, "batch", hidden]) for name in names]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in (x, *made[1:])]
    graph = helper.make_graph(g.nodes, "g", given, outputs, g.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return model.SerializeToString(), count, hidden


def feed(session, steps, count, hidden):
    """Random inputs; of the sequences, the first is whole and the others may end before."""
    made = {}
    for entry in session.get_inputs():
        if entry.name == "lengths":
            made["lengths"] = np.concatenate([[steps], RANDOM.integers(1, steps + 1, BATCH - 1)]).astype("i4")
        else:
            shape = (steps, BATCH, FEATURES) if entry.name == "x" else (count, BATCH, hidden)
            made[entry.name] = RANDOM.standard_normal(shape).astype("f")
    return made


def both(operator, **more):
    return {
        f"{operator}": (operator, more),
        f"{operator} backwards, without bias": (operator, {**more, "direction": "reverse", "bias": False}),
        f"{operator} of three layers in both directions": (operator, {**more, "layers": 3, "direction": "bidirectional"}),
        f"{operator} with states": (operator, {**more, "direction": "bidirectional", "states": True}),
        f"{operator} with lengths": (operator, {**more, "lengths": True}),
        f"{operator} with lengths, both directions, states": (
            operator,
            {**more, "layers": 2, "direction": "bidirectional", "lengths": True, "states": True},
        ),
    }


CASES = {
    **both("LSTM"),
    **both("GRU"),
    **both("RNN"),
    "LSTM with peepholes": ("LSTM", {"peepholes": True, "direction": "bidirectional"}),
    "LSTM of other functions": ("LSTM", {"activations": ["HardSigmoid", "Softsign", "Relu"], "activation_alpha": [0.3]}),
    "GRU that resets late": ("GRU", {"linear_before_reset": 1, "layers": 2, "direction": "bidirectional"}),
    "GRU that resets late, without bias": ("GRU", {"linear_before_reset": 1, "bias": False}),
    "RNN of rectified numbers": ("RNN", {"activations": ["Relu"]}),
}


def errors(session, expected, steps, count, hidden):
    """How far outputs are apart, for each of several runs of some lengths."""
    for length in steps:
        given = feed(session, length, count, hidden)
        pairs = list(zip(session.run(None, given), expected.run(None, given)))
        if any(a.shape != b.shape for a, b in pairs):
            yield np.inf
        else:
            yield np.max([np.abs(a - b).max() / np.abs(b).max() for a, b in pairs])


def main(library, text):
    ort.set_default_logger_severity(4)
    ort.register_execution_provider_library("webgpu_compute", library)
    failed = []
    for name, (operator, more) in CASES.items():
        if text not in name:
            continue
        model, count, hidden = stack(operator, **more)
        expected = reference(model)
        for label, options, bound in ((name, {}, 1e-4), (f"{name}, in f16", {"precision": "f16"}, 2e-2)):
            session = ours(model, options)
            error = np.max(list(errors(session, expected, (7, 3, 7, 7, 7, 1), count, hidden)))
            is_ours = is_whole(session)
            holds = error < bound and is_ours
            failed += told(holds, label, f"off by {error:.1e}{'' if is_ours else ', left to ONNX Runtime'}")
    end(failed)


if __name__ == "__main__":
    main(str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2] if len(sys.argv) > 2 else "")
