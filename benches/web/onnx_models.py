"""Writes the ONNX models of the browser comparison: matmul.onnx, and minilm.onnx from a safetensors checkpoint.

The graph of the second is what exporters write of BERT: one node for each layer, weights transposed beforehand,
Gelu and LayerNormalization as ONNX has them. Needs the packages onnx, numpy and safetensors.

    python onnx_models.py .cache/minilm/model.safetensors target/web/compare
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

HEADS, HEAD_DIM, LAYERS, EPSILON = 12, 32, 6, 1e-12
HIDDEN = HEADS * HEAD_DIM


def save(nodes, weights, inputs, output, path):
    tensors = [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "graph", inputs, [output], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def value(name, shape, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def matmul(path):
    node = helper.make_node("MatMul", ["a", "b"], ["c"])
    save([node], {}, [value("a", ["m", "k"]), value("b", ["k", "n"])], value("c", ["m", "n"]), path)


class Bert:
    """One sentence without padding: ids [1, seq] to the mean of its token vectors [1, hidden]."""

    def __init__(self, tensors):
        self.tensors, self.nodes, self.weights = tensors, [], {}

    def node(self, kind, inputs, **attributes):
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def weight(self, name, array=None):
        self.weights[name] = self.tensors[name] if array is None else array
        return name

    def linear(self, x, name):
        weight = self.weight(f"{name}.weight.t", self.tensors[f"{name}.weight"].T)
        return self.node("Add", [self.node("MatMul", [x, weight]), self.weight(f"{name}.bias")])

    def norm(self, x, name):
        inputs = [x, self.weight(f"{name}.weight"), self.weight(f"{name}.bias")]
        return self.node("LayerNormalization", inputs, axis=-1, epsilon=EPSILON)

    def heads(self, x, order):
        shape = self.weight("heads", np.array([1, -1, HEADS, HEAD_DIM], np.int64))
        return self.node("Transpose", [self.node("Reshape", [x, shape])], perm=order)

    def layer(self, x, name):
        q, k, v = (self.linear(x, f"{name}.attention.self.{part}") for part in ["query", "key", "value"])
        scale = self.weight("scale", np.array(HEAD_DIM**-0.5, np.float32))
        scores = self.node("MatMul", [self.heads(q, [0, 2, 1, 3]), self.heads(k, [0, 2, 3, 1])])
        shares = self.node("Softmax", [self.node("Mul", [scores, scale])], axis=-1)
        mixed = self.node("MatMul", [shares, self.heads(v, [0, 2, 1, 3])])
        flat = self.weight("flat", np.array([1, -1, HIDDEN], np.int64))
        mixed = self.node("Reshape", [self.node("Transpose", [mixed], perm=[0, 2, 1, 3]), flat])
        mixed = self.linear(mixed, f"{name}.attention.output.dense")
        x = self.norm(self.node("Add", [mixed, x]), f"{name}.attention.output.LayerNorm")
        inner = self.node("Gelu", [self.linear(x, f"{name}.intermediate.dense")])
        outer = self.linear(inner, f"{name}.output.dense")
        return self.norm(self.node("Add", [outer, x]), f"{name}.output.LayerNorm")

    def save(self, path):
        words = self.node("Gather", [self.weight("embeddings.word_embeddings.weight"), "ids"])
        positions = self.node("Gather", [self.weight("embeddings.position_embeddings.weight"), "positions"])
        types = self.weight("type", self.tensors["embeddings.token_type_embeddings.weight"][:1])
        x = self.node("Add", [self.node("Add", [words, positions]), types])
        x = self.norm(x, "embeddings.LayerNorm")
        for index in range(LAYERS):
            x = self.layer(x, f"encoder.layer.{index}")
        axes = self.weight("axes", np.array([1], np.int64))
        self.nodes.append(helper.make_node("ReduceMean", [x, axes], ["mean"], keepdims=0))
        inputs = [value(name, [1, "seq"], TensorProto.INT64) for name in ["ids", "positions"]]
        save(self.nodes, self.weights, inputs, value("mean", [1, HIDDEN]), path)


if __name__ == "__main__":
    checkpoint, folder = sys.argv[1:]
    matmul(f"{folder}/matmul.onnx")
    Bert(load_file(checkpoint)).save(f"{folder}/minilm.onnx")
