#!/usr/bin/env python3
"""Writes the cases of ONNX's operator tests that tests/onnx runs: cases.json and tensors.bin beside this file.

    python3 -m venv /tmp/onnx && /tmp/onnx/bin/pip install onnx==1.23.2 && /tmp/onnx/bin/python tests/onnx/export.py

Taken are the cases of one node of the operators below, as onnx's own loader makes them, whose tensors are all of f32,
i32, u32, i64 or bool, and casts between f32 and f16. Other cases with f32 in them are named with their types. Those that
spell an operator out in others ("expanded") are left out: what they compute is the same.
"""

import json
import pathlib
import re
import warnings

import numpy
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

OPERATORS = """
MatMul Gemm Conv ConvTranspose Attention
MaxPool AveragePool LpPool GlobalMaxPool GlobalAveragePool
Softmax LogSoftmax LayerNormalization RMSNormalization
BatchNormalization GroupNormalization InstanceNormalization
ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare
ArgMax ArgMin CumSum
Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Clip Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish IsInf IsNaN
LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh
ThresholdedRelu
Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min
Mod Mul Or PRelu Pow Sub Sum SwiGLU Xor
Where Cast Transpose Concat Slice Pad Expand Tile Split
Gather GatherElements GatherND Scatter ScatterElements ScatterND
""".split()

TYPES = {"float32": "f32", "float16": "f16", "int32": "i32", "uint32": "u32", "int64": "i64", "bool": "bool"}


class Tensors:
    """All tensors one after the other, each of a kind once."""

    def __init__(self):
        self.content = bytearray()
        self.known = {}

    def place(self, array):
        array = numpy.asarray(array)
        content = array.astype(array.dtype.newbyteorder("<")).tobytes()
        if content not in self.known:
            self.known[content] = len(self.content)
            self.content += content
        shape = [int(extent) for extent in array.shape]
        return {"dtype": TYPES[array.dtype.name], "shape": shape, "at": self.known[content]}


def arrays(model, data_set):
    """The tensors of a data set by the names that the graph gives them."""
    found = {}
    for values, infos in zip(data_set, (model.graph.input, model.graph.output)):
        for info, value in zip(infos, values):
            if isinstance(value, onnx.TensorProto):
                value = numpy_helper.to_array(value)
            found[info.name] = numpy.asarray(value)
    return found


def is_exported(case, model):
    return (
        len(model.graph.node) == 1
        and model.graph.node[0].op_type in OPERATORS
        and model.graph.node[0].domain == ""
        and not re.search("_expanded", case.name)
    )


def load(case):
    """The model and its first data set."""
    if case.model is not None:
        return case.model, case.data_sets[0]
    folder = pathlib.Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    sets = []
    for kind in ("input", "output"):
        count = len(list((folder / "test_data_set_0").glob(f"{kind}_*.pb")))
        files = [folder / "test_data_set_0" / f"{kind}_{i}.pb" for i in range(count)]
        sets.append([onnx.load_tensor(file) for file in files])
    return model, sets


def attribute(value):
    value = onnx.helper.get_attribute_value(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (int, float, str)):
        return value
    return [item.decode() if isinstance(item, bytes) else item for item in value]


def main():
    warnings.simplefilter("ignore")
    here = pathlib.Path(__file__).parent
    tensors, cases, others = Tensors(), [], []
    for case in sorted(load_model_tests(kind="node"), key=lambda case: case.name):
        model = case.model or onnx.load(pathlib.Path(case.model_dir) / "model.onnx")
        if not is_exported(case, model):
            continue
        model, data_set = load(case)
        node, values = model.graph.node[0], arrays(model, data_set)
        types = {values[name].dtype.name for name in (*node.input, *node.output) if name}
        halves = {"float16"} if node.op_type != "Cast" else set()
        if types - (TYPES.keys() - halves):
            if "float32" in types:
                others.append({"name": case.name, "operator": node.op_type, "types": sorted(types)})
            continue
        place = lambda names: [tensors.place(values[name]) if name else None for name in names]
        cases.append({
            "name": case.name,
            "operator": node.op_type,
            "attributes": {item.name: attribute(item) for item in node.attribute},
            "inputs": place(node.input),
            "outputs": place(node.output),
        })
    parts = {"cases": cases, "others": others}
    parts = [f'"{part}": [\n' + ",\n".join(map(json.dumps, items)) + "\n]" for part, items in parts.items()]
    source = json.dumps(f"onnx {onnx.__version__}")
    (here / "cases.json").write_text(f'{{"source": {source},\n' + ",\n".join(parts) + "}\n")
    (here / "tensors.bin").write_bytes(tensors.content)
    print(f"onnx {onnx.__version__}: {len(cases)} cases, {len(tensors.content)} bytes; {len(others)} others")


if __name__ == "__main__":
    main()
