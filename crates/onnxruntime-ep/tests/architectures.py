"""Models of well-known architectures on the provider beside ONNX Runtime's CPU provider: python architectures.py LIBRARY

Small widths and random weights, but the operators and the structure that PyTorch's exporters write. Each model runs
with several inputs of one shape, so that the later runs are replays. Prints a line for each model, and ends with 1 if
an output differs by more than 1e-3 of the largest or less than 98 % of the nodes are the provider's.
"""

import pathlib
import sys

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from models import NAME, Graph, end, ints, normal, number, ours, reference, told

RANDOM = np.random.default_rng(11)
FLOAT, INT64, INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32


class Model(Graph):
    """Inputs, outputs and operator sets beside nodes and weights."""

    def __init__(self, opset=20):
        super().__init__()
        self.opset, self.inputs, self.outputs = opset, [], []

    def input(self, name, shape, kind=FLOAT):
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def several(self, count, operator, *inputs, **attributes):
        """The outputs of a node that has more than one."""
        first = self.add(operator, *inputs, **attributes)
        names = [first] + [f"{first}_{i}" for i in range(1, count)]
        self.nodes[-1].output[:] = names
        return names

    def build(self, *outputs):
        values = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "g", self.inputs, values, self.weights)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()

    # Layers

    def conv(self, x, inner, outer, size=1, stride=1, group=1, norm=True):
        """A convolution and, unless it has a bias, a batch normalisation."""
        pads = [size // 2] * 4
        weights = normal(outer, inner // group, size, size) * (outer / (inner // group) / size / size) ** 0.5
        common = dict(kernel_shape=[size, size], strides=[stride, stride], pads=pads, group=group)
        if not norm:
            return self.add("Conv", x, weights, normal(outer), **common)
        x = self.add("Conv", x, weights, **common)
        statistics = (1 + 0.1 * normal(outer), 0.1 * normal(outer), 0.1 * normal(outer), 1 + 0.1 * np.abs(normal(outer)))
        return self.add("BatchNormalization", x, *statistics, epsilon=1e-5)

    def silu(self, x):
        return self.add("Mul", x, self.add("Sigmoid", x))

    def linear(self, x, inner, outer, bias=True):
        x = self.add("MatMul", x, normal(inner, outer))
        return self.add("Add", x, 0.1 * normal(outer)) if bias else x

    def norm(self, x, width):
        return self.add("LayerNormalization", x, 1 + 0.1 * normal(width), 0.1 * normal(width), axis=-1, epsilon=1e-5)

    def split_heads(self, x, batch, heads, width, perm=(0, 2, 1, 3)):
        return self.add("Transpose", self.add("Reshape", x, ints(batch, -1, heads, width)), perm=list(perm))

    def scaled_attention(self, q, k, v, width, mask=None):
        """Scaled on either side, as the exporter has scaled_dot_product_attention."""
        root = number(width**-0.25)
        k = self.add("Mul", self.add("Transpose", k, perm=[0, 1, 3, 2]), root)
        scores = self.add("MatMul", self.add("Mul", q, root), k)
        if mask is None:
            return self.add("MatMul", self.add("Softmax", scores, axis=-1), v)
        weights = self.add("Softmax", self.add("Add", scores, mask), axis=-1)
        return self.add("MatMul", self.add("Where", self.add("IsNaN", weights), number(0), weights), v)

    def attention(self, x, y, width, heads, mask=None, batch=1):
        """Queries of x, keys and values of y."""
        q, k, v = (self.split_heads(self.linear(z, width, width), batch, heads, width // heads) for z in (x, y, y))
        out = self.scaled_attention(q, k, v, width // heads, mask)
        out = self.add("Reshape", self.add("Transpose", out, perm=[0, 2, 1, 3]), ints(batch, -1, width))
        return self.linear(out, width, width)

    def up(self, x):
        """Twice the height and width."""
        scales = np.array([1, 1, 2, 2], np.float32)
        return self.add("Resize", x, "", scales, coordinate_transformation_mode="asymmetric", mode="nearest", nearest_mode="floor")


def resnet(width=8):
    """ResNet-50's bottlenecks: two in each of two stages."""
    m = Model()
    x = m.add("Relu", m.conv(m.input("x", [2, 3, 64, 64]), 3, width, 7, 2))
    x = m.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inner = width
    for stage, mid in enumerate((width, 2 * width)):
        for block in range(2):
            stride = 2 if stage and not block else 1
            y = m.add("Relu", m.conv(x, inner, mid))
            y = m.add("Relu", m.conv(y, mid, mid, 3, stride))
            y = m.conv(y, mid, 4 * mid)
            short = x if block else m.conv(x, inner, 4 * mid, 1, stride)
            x, inner = m.add("Relu", m.add("Add", y, short)), 4 * mid
    x = m.add("ReduceMean", x, ints(-1, -2), keepdims=1)
    x = m.add("Reshape", x, ints(2, inner), allowzero=1)
    return m.build(m.add("Gemm", x, normal(10, inner), normal(10), transB=1))


def mobilenet(width=8):
    """MobileNetV3's inverted residuals with squeeze and excitation."""
    m = Model()

    def hard_swish(x):
        return m.add("Mul", x, m.add("HardSigmoid", x, alpha=1 / 6, beta=0.5))

    x = hard_swish(m.conv(m.input("x", [1, 3, 48, 48]), 3, width, 3, 2))
    for size, stride, swish in ((3, 2, False), (5, 1, True), (5, 2, True)):
        activation = hard_swish if swish else lambda x: m.add("Relu", x)
        wide = 4 * width
        y = activation(m.conv(x, width, wide))
        y = activation(m.conv(y, wide, wide, size, stride, wide))
        gate = m.add("GlobalAveragePool", y)
        gate = m.conv(m.add("Relu", m.conv(gate, wide, width, norm=False)), width, wide, norm=False)
        y = m.add("Mul", m.add("HardSigmoid", gate, alpha=1 / 6, beta=0.5), y)
        y = m.conv(y, wide, width)
        x = m.add("Add", y, x) if stride == 1 else y
    x = m.add("Flatten", m.add("GlobalAveragePool", x), axis=1)
    return m.build(m.linear(hard_swish(m.linear(x, width, 16)), 16, 10))


def detector(width=8):
    """A YOLO's parts: cross-stage blocks, pyramid pooling, two scales, and boxes from distributions."""
    m = Model()

    def block(x, inner, outer, size=1, stride=1):
        return m.silu(m.conv(x, inner, outer, size, stride))

    def stage(x, inner, outer):
        a, b = m.several(2, "Split", block(x, inner, outer), ints(outer // 2, outer // 2), axis=1)
        c = m.add("Add", b, block(block(b, outer // 2, outer // 2, 3), outer // 2, outer // 2, 3))
        return block(m.add("Concat", a, b, c, axis=1), 3 * outer // 2, outer)

    x = block(m.input("x", [1, 3, 64, 64]), 3, width, 3, 2)
    fine = stage(block(x, width, 2 * width, 3, 2), 2 * width, 2 * width)
    x = block(stage(block(fine, 2 * width, 4 * width, 3, 2), 4 * width, 4 * width), 4 * width, 2 * width)
    pooled = [x]
    for _ in range(3):
        pooled.append(m.add("MaxPool", pooled[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2, 2, 2, 2]))
    coarse = block(m.add("Concat", *pooled, axis=1), 8 * width, 2 * width)
    fine = stage(m.add("Concat", m.up(coarse), fine, axis=1), 4 * width, 2 * width)
    coarse = stage(m.add("Concat", block(fine, 2 * width, 2 * width, 3, 2), coarse, axis=1), 4 * width, 2 * width)
    heads = []
    for scale in (fine, coarse):
        boxes = m.conv(block(scale, 2 * width, width, 3), width, 32, norm=False)
        classes = m.conv(block(scale, 2 * width, width, 3), width, 6, norm=False)
        heads.append(m.add("Reshape", m.add("Concat", boxes, classes, axis=1), ints(1, 38, -1)))
    boxes, classes = m.several(2, "Split", m.add("Concat", *heads, axis=2), ints(32, 6), axis=1)
    boxes = m.add("Transpose", m.add("Reshape", boxes, ints(1, 4, 8, 320)), perm=[0, 2, 1, 3])
    boxes = m.add("Softmax", boxes, axis=1)
    boxes = m.add("Conv", boxes, np.arange(8, dtype="f").reshape(1, 8, 1, 1), kernel_shape=[1, 1])
    boxes = m.add("Reshape", boxes, ints(1, 4, 320))
    near = m.add("Slice", boxes, ints(0), ints(2), ints(1), ints(1))
    far = m.add("Slice", boxes, ints(2), ints(4), ints(1), ints(1))
    anchors = RANDOM.random((1, 2, 320)).astype("f")
    near, far = m.add("Sub", anchors, near), m.add("Add", far, anchors)
    centre = m.add("Div", m.add("Add", near, far), number(2))
    boxes = m.add("Mul", m.add("Concat", centre, m.add("Sub", far, near), axis=1), np.full((1, 320), 8, "f"))
    return m.build(m.add("Concat", boxes, m.add("Sigmoid", classes), axis=1))


def vision_transformer(width=32, heads=4, batch=2, layers=2):
    """ViT as torchvision has it: tokens first within attention, projections packed, reshapes around products."""
    m = Model()
    x = m.add("Conv", m.input("x", [batch, 3, 32, 32]), normal(width, 3, 8, 8) / 4, normal(width), kernel_shape=[8, 8], strides=[8, 8])
    x = m.add("Transpose", m.add("Reshape", x, ints(batch, width, 16), allowzero=1), perm=[0, 2, 1])
    x = m.add("Concat", normal(batch, 1, width), x, axis=1)
    x = m.add("Add", x, normal(1, 17, width))

    def product(x, inner, outer, shape, transposed=0):
        weights = normal(outer, inner) if transposed else normal(inner, outer)
        x = m.add("Gemm", m.add("Reshape", x, ints(17 * batch, inner)), weights, 0.1 * normal(outer), transB=transposed)
        return m.add("Reshape", x, ints(*shape, outer))

    for _ in range(layers):
        y = m.add("Transpose", m.norm(x, width), perm=[1, 0, 2])
        y = m.add("Reshape", product(y, width, 3 * width, (17, batch)), ints(17, batch, 3, width), allowzero=1)
        y = m.add("Transpose", m.add("Unsqueeze", y, ints(0)), perm=[3, 1, 2, 0, 4])
        y = m.add("Squeeze", y, ints(-2))
        parts = (m.add("Gather", y, np.array(i, np.int64), axis=0) for i in range(3))
        parts = (m.add("Reshape", p, ints(17, batch * heads, width // heads), allowzero=1) for p in parts)
        parts = (m.add("Reshape", p, ints(17, batch, heads, width // heads), allowzero=1) for p in parts)
        q, k, v = (m.add("Transpose", p, perm=[1, 2, 0, 3]) for p in parts)
        y = m.scaled_attention(q, k, v, width // heads)
        y = m.add("Reshape", m.add("Transpose", y, perm=[2, 0, 1, 3]), ints(17 * batch, width), allowzero=1)
        y = m.add("Reshape", m.add("Gemm", y, normal(width, width), normal(width), transB=1), ints(17, batch, width))
        x = m.add("Add", m.add("Transpose", y, perm=[1, 0, 2]), x)
        y = m.add("Gelu", product(m.norm(x, width), width, 2 * width, (batch, 17)), approximate="none")
        x = m.add("Add", x, product(y, 2 * width, width, (batch, 17), 1))
    x = m.add("Gather", m.norm(x, width), np.array(0, np.int64), axis=1)
    return m.build(m.add("Gemm", x, normal(width, 10), normal(10)))


def unet(width=16, words=5):
    """Stable Diffusion's: residual blocks with a time embedding, and transformers that look at a text."""
    m = Model(17)
    text = m.input("text", [1, words, width])

    def group_norm(x, channels, size):
        """As an exporter without GroupNormalization writes it."""
        y = m.add("Reshape", x, ints(0, 4, -1))
        y = m.add("InstanceNormalization", y, np.ones(4, "f"), np.zeros(4, "f"), epsilon=1e-5)
        y = m.add("Reshape", y, ints(1, channels, size, size))
        return m.add("Add", m.add("Mul", y, 1 + normal(channels, 1, 1)), 0.1 * normal(channels, 1, 1))

    def residual(x, inner, outer, size):
        y = m.conv(m.silu(group_norm(x, inner, size)), inner, outer, 3, norm=False)
        shift = m.add("Gemm", m.silu(time), normal(outer, 2 * width), normal(outer), transB=1)
        y = m.add("Add", y, m.add("Unsqueeze", m.add("Unsqueeze", shift, ints(2)), ints(3)))
        y = m.conv(m.silu(group_norm(y, outer, size)), outer, outer, 3, norm=False)
        return m.add("Add", x if inner == outer else m.conv(x, inner, outer, norm=False), y)

    def transformer(x, channels, size):
        y = m.conv(group_norm(x, channels, size), channels, channels, norm=False)
        y = m.add("Reshape", m.add("Transpose", y, perm=[0, 2, 3, 1]), ints(1, size * size, channels))
        z = m.norm(y, channels)
        y = m.add("Add", m.attention(z, z, channels, 2), y)
        y = m.add("Add", m.attention(m.norm(y, channels), text, channels, 2), y)
        a, b = m.several(2, "Split", m.linear(m.norm(y, channels), channels, 4 * channels), ints(2 * channels, 2 * channels), axis=-1)
        gate = m.add("Add", m.add("Erf", m.add("Div", b, number(2**0.5))), number(1))
        gate = m.add("Mul", m.add("Mul", b, gate), number(0.5))
        y = m.add("Add", m.linear(m.add("Mul", a, gate), 2 * channels, channels), y)
        y = m.add("Transpose", m.add("Reshape", y, ints(1, size, size, channels)), perm=[0, 3, 1, 2])
        return m.add("Add", m.conv(y, channels, channels, norm=False), x)

    angles = m.add("Mul", m.add("Unsqueeze", m.input("step", [1]), ints(1)), np.exp(-np.arange(width // 2, dtype="f")).reshape(1, -1))
    time = m.add("Concat", m.add("Cos", angles), m.add("Sin", angles), axis=-1)
    time = m.add("Gemm", time, normal(width, 2 * width), normal(2 * width))
    time = m.add("Gemm", m.silu(time), normal(2 * width, 2 * width), normal(2 * width))
    x = m.conv(m.input("x", [1, 4, 16, 16]), 4, width, 3, norm=False)
    first = transformer(residual(x, width, width, 16), width, 16)
    x = residual(transformer(residual(m.conv(first, width, width, 3, 2, norm=False), width, width, 8), width, 8), width, width, 8)
    x = m.conv(m.up(x), width, width, 3, norm=False)
    x = transformer(residual(m.add("Concat", x, first, axis=1), 2 * width, width, 16), width, 16)
    return m.build(m.conv(m.silu(group_norm(x, width, 16)), width, 4, 3, norm=False))


def whisper_encoder(width=32, heads=2, length=40):
    m = Model()
    x = m.add("Conv", m.input("x", [1, 20, length]), normal(width, 20, 3), normal(width), kernel_shape=[3], pads=[1, 1])
    x = m.add("Conv", m.add("Gelu", x), normal(width, width, 3) / 2, normal(width), kernel_shape=[3], pads=[1, 1], strides=[2])
    x = m.add("Add", m.add("Transpose", m.add("Gelu", x), perm=[0, 2, 1]), normal(length // 2, width))
    for _ in range(2):
        y = m.norm(x, width)
        q = m.add("Mul", m.linear(y, width, width), number((width // heads) ** -0.5))
        q, k, v = (m.split_heads(z, 1, heads, width // heads) for z in (q, m.linear(y, width, width, False), m.linear(y, width, width)))
        k = m.add("Transpose", m.add("Reshape", k, ints(1, heads, length // 2, width // heads)), perm=[0, 1, 3, 2])
        y = m.add("MatMul", m.add("Softmax", m.add("MatMul", q, k), axis=-1), v)
        y = m.add("Reshape", m.add("Transpose", y, perm=[0, 2, 1, 3]), ints(1, length // 2, width))
        x = m.add("Add", x, m.linear(y, width, width))
        x = m.add("Add", x, m.linear(m.add("Gelu", m.linear(m.norm(x, width), width, 4 * width)), 4 * width, width))
    return m.build(m.norm(x, width))


def whisper_decoder(width=32, heads=2, past=7, length=20):
    """A step with the keys and values of the tokens before it, whose sizes change from run to run."""
    m = Model()
    head = width // heads
    m.input("ids", [1, 1], INT64)
    caches = [m.input(f"past_{i}", [1, heads, "past", head]) for i in range(4)]
    crosses = [m.input(f"cross_{i}", [1, heads, length, head]) for i in range(4)]
    place = m.add("Shape", caches[0], start=2, end=3)
    words = normal(50, width) * 5
    x = m.add("Add", m.add("Gather", words, "ids"), m.add("Gather", normal(60, width), m.add("Unsqueeze", place, ints(0))))
    presents = []
    for layer in range(2):
        y = m.norm(x, width)
        q, k, v = (m.split_heads(m.linear(y, width, width), 1, heads, head) for _ in range(3))
        k, v = (m.add("Concat", before, now, axis=2) for before, now in zip(caches[2 * layer :], (k, v)))
        presents += [k, v]
        for keys, values in ((k, v), crosses[2 * layer : 2 * layer + 2]):
            y = m.scaled_attention(q, keys, values, head)
            y = m.add("Reshape", m.add("Transpose", y, perm=[0, 2, 1, 3]), ints(1, 1, width))
            x = m.add("Add", x, m.linear(y, width, width))
            q = m.split_heads(m.linear(m.norm(x, width), width, width), 1, heads, head)
        x = m.add("Add", x, m.linear(m.add("Gelu", m.linear(m.norm(x, width), width, 4 * width)), 4 * width, width))
    return m.build(m.add("MatMul", m.norm(x, width), words.T.copy()), *presents)


def llama(heads=4, groups=2, head=16, words=50):
    """A decoder as ONNX Runtime's model builder writes it: grouped attention with its own rotary embedding and cache."""
    m = Model()
    width = heads * head
    m.input("ids", ["batch", "tokens"], INT64)
    m.input("lengths", ["batch"], INT32)
    m.input("total", [], INT32)
    caches = [m.input(f"past_{i}", ["batch", groups, "past", head]) for i in range(4)]
    x = m.add("Gather", normal(words, width) * 5, "ids")
    angle = np.arange(64)[:, None] / 10000 ** (np.arange(head // 2) / (head // 2))
    cos, sin = m.weight(np.cos(angle).astype("f")), m.weight(np.sin(angle).astype("f"))
    y = m.add("SimplifiedLayerNormalization", x, 1 + normal(width), axis=-1, epsilon=1e-5)
    presents = []
    for layer in range(2):
        q, k, v = (m.linear(y, width, n * head, False) for n in (heads, groups, groups))
        out = m.several(
            3, "GroupQueryAttention", q, k, v, *caches[2 * layer : 2 * layer + 2], "lengths", "total", cos, sin,
            domain="com.microsoft", num_heads=heads, kv_num_heads=groups, do_rotary=1, scale=head**-0.5,
        )
        presents += out[1:]
        names = m.several(4, "SkipSimplifiedLayerNormalization", x, m.linear(out[0], width, width, False), 1 + normal(width), domain="com.microsoft", epsilon=1e-5)
        m.nodes[-1].output[1:3] = ["", ""]
        y, x = names[0], names[3]
        gate = m.linear(y, width, 2 * width, False)
        y = m.add("Mul", m.silu(gate), m.linear(y, width, 2 * width, False))
        names = m.several(4, "SkipSimplifiedLayerNormalization", x, m.linear(y, 2 * width, width, False), 1 + normal(width), domain="com.microsoft", epsilon=1e-5)
        m.nodes[-1].output[1:3] = ["", ""]
        y, x = names[0], names[3]
    return m.build(m.linear(y, width, words, False), *presents)


def llama_of_exporter(heads=4, groups=2, head=16, tokens=8, words=50):
    """The same decoder as PyTorch's exporter writes it, with everything taken apart."""
    m = Model()
    width = heads * head
    x = m.add("Gather", normal(words, width) * 5, m.input("ids", [1, tokens], INT64))
    angle = np.concatenate([np.arange(tokens)[:, None] / 10000 ** (np.arange(head // 2) / (head // 2))] * 2, axis=-1)
    cos, sin = m.weight(np.cos(angle).astype("f")[None, None]), m.weight(np.sin(angle).astype("f")[None, None])
    mask = m.weight(np.triu(np.full((1, 1, tokens, tokens), -np.inf, "f"), 1))

    def norm(x):
        mean = m.add("ReduceMean", m.add("Pow", x, number(2)), ints(-1), keepdims=1)
        inverse = m.add("Reciprocal", m.add("Sqrt", m.add("Add", mean, number(1e-5))))
        return m.add("Mul", 1 + normal(width), m.add("Mul", x, inverse))

    def rotary(x):
        halves = [m.add("Slice", x, ints(a), ints(b), ints(3), ints(1)) for a, b in ((head // 2, 2**63 - 1), (0, head // 2))]
        turned = m.add("Concat", m.add("Neg", halves[0]), halves[1], axis=-1)
        return m.add("Add", m.add("Mul", x, cos), m.add("Mul", turned, sin))

    def repeat(x):
        x = m.add("Expand", m.add("Unsqueeze", x, ints(2)), ints(1, groups, heads // groups, tokens, head))
        return m.add("Reshape", x, ints(1, heads, tokens, head))

    for _ in range(2):
        y = norm(x)
        q, k, v = (m.split_heads(m.linear(y, width, n * head, False), 1, n, head) for n in (heads, groups, groups))
        y = m.scaled_attention(rotary(q), repeat(rotary(k)), repeat(v), head, mask)
        y = m.add("Reshape", m.add("Transpose", y, perm=[0, 2, 1, 3]), ints(1, tokens, width))
        x = m.add("Add", x, m.linear(y, width, width, False))
        y = norm(x)
        y = m.add("Mul", m.silu(m.linear(y, width, 2 * width, False)), m.linear(y, width, 2 * width, False))
        x = m.add("Add", x, m.linear(y, 2 * width, width, False))
    return m.build(m.linear(norm(x), width, words, False))


def quantised(width=48, group=16):
    """Linear layers of 4-bit weights: with and without zero points and bias, scales of any f32, a last group that is short."""
    m = Model()
    x = m.input("x", [3, 5, width])
    for outer, inner, rounded, zeros, bias in ((40, 48, True, True, False), (24, 40, True, False, True), (16, 24, False, True, False)):
        groups = -(-inner // group)
        scales = np.abs(normal(outer, groups)) + 0.01
        scales = scales.astype(np.float16).astype("f") if rounded else scales
        inputs = [x, RANDOM.integers(0, 256, (outer, groups, group // 2), np.uint8), scales.reshape(-1)]
        inputs += [RANDOM.integers(0, 256, outer * -(-groups // 2), np.uint8)] if zeros else []
        inputs += ["", "", normal(outer)][0 if not zeros else 1 :] if bias else []
        x = m.add("MatMulNBits", *inputs, domain="com.microsoft", K=inner, N=outer, bits=4, block_size=group)
    return m.build(x)


def sums(width=32, heads=4, tokens=6):
    """Attention and a linear layer as Einstein sums."""
    m = Model()
    x = m.input("x", [2, tokens, width])
    q, k, v = (m.split_heads(m.add("Einsum", x, normal(width, width), equation="bld,de->ble"), 2, heads, width // heads) for _ in range(3))
    scores = m.add("Mul", m.add("Einsum", q, k, equation="bhqd,bhkd->bhqk"), number((width / heads) ** -0.5))
    y = m.add("Einsum", m.add("Softmax", scores, axis=-1), v, equation="bhqk,bhkd->bhqd")
    y = m.add("Reshape", m.add("Transpose", y, perm=[0, 2, 1, 3]), ints(2, tokens, width))
    return m.build(m.add("Einsum", y, normal(width, width), equation="...i,ij->...j"))


def in_bytes(width=8, words=6):
    """Layers of 8 bits as ONNX Runtime's quantiser writes them: with ranges that are known, and with those of each run."""
    m = Model()

    def rounded(weights, axis):
        """Bytes for weights, and a step for each index of an axis. They take 7 bits, as the quantiser's `reduce_range` makes them: on
        processors without VNNI, ONNX Runtime adds pairs of products in 16 bits, where larger ones saturate."""
        steps = np.abs(weights).max(axis=tuple(k for k in range(weights.ndim) if k != axis)) / 63
        spread = steps.reshape([-1 if k == axis else 1 for k in range(weights.ndim)])
        return np.rint(weights / spread).astype(np.int8), steps.astype("f")

    def through_bytes(x, step, zero):
        scale = number(step), np.array(zero, np.uint8)
        return m.add("DequantizeLinear", m.add("QuantizeLinear", x, *scale), *scale)

    weights, steps = rounded(normal(width, 3, 3, 3), 0)
    weights = m.add("DequantizeLinear", weights, steps, np.zeros(width, np.int8), axis=0)
    bias = m.add("DequantizeLinear", RANDOM.integers(-50, 50, width).astype("i4"), 0.03 * steps, axis=0)
    x = through_bytes(m.input("x", [2, 3, 12, 12]), 0.03, 120)
    x = m.add("Relu", m.add("Conv", x, weights, bias, kernel_shape=[3, 3]))
    x = m.add("Flatten", m.add("MaxPool", through_bytes(x, 0.02, 0), kernel_shape=[5, 5], strides=[5, 5]))
    quants, step, zero = m.several(3, "DynamicQuantizeLinear", x)
    weights, steps = rounded(normal(4 * width, words), 1)
    sums = m.add("Cast", m.add("MatMulInteger", quants, weights, zero, np.zeros(words, np.int8)), to=FLOAT)
    return m.build(m.add("Add", m.add("Mul", sums, m.add("Mul", step, steps)), normal(words)))


def bert(width=32, heads=4, batch=2, tokens=6):
    """An encoder of which transformers exports a mask that hides nothing."""
    m = Model()
    x = m.add("Gather", normal(50, width) * 5, m.input("ids", [batch, tokens], INT64))
    x = m.norm(m.add("Add", x, normal(1, tokens, width)), width)
    seen = m.add("Expand", m.add("GreaterOrEqual", np.arange(tokens).reshape(1, 1, tokens, 1), np.array(0)), ints(batch, 1, tokens, tokens))
    mask = m.add("Where", seen, number(0), number(np.finfo("f").min))
    for _ in range(2):
        q, k, v = (m.split_heads(m.linear(x, width, width), batch, heads, width // heads) for _ in range(3))
        scores = m.add("Mul", m.add("MatMul", q, m.add("Transpose", k, perm=[0, 1, 3, 2])), number((width / heads) ** -0.5))
        y = m.add("MatMul", m.add("Softmax", m.add("Add", scores, mask), axis=-1), v)
        y = m.add("Reshape", m.add("Transpose", y, perm=[0, 2, 1, 3]), ints(batch, tokens, width))
        x = m.norm(m.add("Add", m.linear(y, width, width), x), width)
        y = m.linear(m.add("Gelu", m.linear(x, width, 4 * width)), 4 * width, width)
        x = m.norm(m.add("Add", y, x), width)
    return m.build(x)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype("f")


def whisper_inputs(past):
    feed = {"ids": RANDOM.integers(0, 50, (1, 1))}
    for i in range(4):
        feed[f"past_{i}"], feed[f"cross_{i}"] = floats(1, 2, past, 16), floats(1, 2, 20, 16)
    return feed


def llama_inputs(batch, tokens, past):
    feed = {"ids": RANDOM.integers(0, 50, (batch, tokens)), "total": np.array(past + tokens, np.int32)}
    feed["lengths"] = np.full(batch, past + tokens - 1, np.int32)
    return feed | {f"past_{i}": floats(batch, 2, past, 16) for i in range(4)}


CASES = {
    "ResNet-50": (resnet, lambda: [{"x": floats(2, 3, 64, 64)}] * 3),
    "MobileNetV3": (mobilenet, lambda: [{"x": floats(1, 3, 48, 48)} for _ in range(3)]),
    "YOLO": (detector, lambda: [{"x": floats(1, 3, 64, 64)} for _ in range(3)]),
    "ViT": (vision_transformer, lambda: [{"x": floats(2, 3, 32, 32)} for _ in range(3)]),
    "U-Net": (unet, lambda: [{"x": floats(1, 4, 16, 16), "text": floats(1, 5, 16), "step": floats(1)} for _ in range(3)]),
    "Whisper encoder": (whisper_encoder, lambda: [{"x": floats(1, 20, 40)} for _ in range(3)]),
    "Whisper decoder": (whisper_decoder, lambda: [whisper_inputs(past) for past in (3, 4, 4, 4)]),
    "Llama": (llama, lambda: [llama_inputs(*sizes) for sizes in ((2, 5, 0), (2, 1, 5), (2, 1, 6), (1, 1, 6), (1, 1, 6), (1, 1, 6))]),
    "quantised layers": (quantised, lambda: [{"x": floats(3, 5, 48)} for _ in range(3)]),
    "layers of bytes": (in_bytes, lambda: [{"x": floats(2, 3, 12, 12)} for _ in range(3)]),
    "Einstein sums": (sums, lambda: [{"x": floats(2, 6, 32)} for _ in range(3)]),
    "Llama of the exporter": (llama_of_exporter, lambda: [{"ids": RANDOM.integers(0, 50, (1, 8))} for _ in range(3)]),
    "BERT": (bert, lambda: [{"ids": RANDOM.integers(0, 50, (2, 6))} for _ in range(3)]),
}


def main(library):
    ort.set_default_logger_severity(4)
    ort.register_execution_provider_library("webgpu_compute", library)
    failed = []
    for name, (make, feeds) in CASES.items():
        model = make()
        session, expected, error = ours(model), reference(model), 0.0
        for feed in feeds():
            for a, b in zip(session.run(None, feed), expected.run(None, feed)):
                same = a.shape == b.shape and np.isfinite(a).all() and np.isfinite(b).all()
                error = max(error, np.abs(a - b).max() / np.abs(b).max() if same and b.size else 0.0 if same else np.inf)
        share = 1.0
        if hasattr(session, "get_provider_graph_assignment_info"):
            counts = {part.ep_name: len(part.get_nodes()) for part in session.get_provider_graph_assignment_info()}
            share = counts.get(NAME, 0) / sum(counts.values())
        holds = error < 1e-3 and share >= 0.98
        failed += told(holds, name, f"off by {error:.1e}, {share:.1%} of the nodes")
    end(failed)


if __name__ == "__main__":
    main(str(pathlib.Path(sys.argv[1]).resolve()))
