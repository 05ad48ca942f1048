"""PyTorch's times of the shapes of a sweep, and how far either is ahead.

    cargo bench --bench sweep > ours.tsv
    python3 benches/sweep_torch.py ours.tsv > both.tsv       # adds PyTorch's device time as a column; needs CUDA
    python3 benches/sweep_torch.py --summary both.tsv        # a table of Markdown, without PyTorch

PyTorch runs in CUDA graphs, with TF32 off. A family's speed is PyTorch's device time by ours: the geometric mean, the
tenth percentile, and the three slowest shapes.
"""

import math
import sys
import time


def shapes(path):
    for line in open(path):
        if line.strip() and not line.startswith("#"):
            yield line.rstrip("\n").split("\t")


def measure(torch, call):
    """Median device time of one call in µs."""
    call()
    torch.cuda.synchronize()
    first, last = torch.cuda.Event(True), torch.cuda.Event(True)
    first.record()
    call()
    last.record()
    torch.cuda.synchronize()
    calls = max(1, min(200, int(2 / max(first.elapsed_time(last), 1e-3))))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    start = time.perf_counter()
    while time.perf_counter() - start < 0.008:
        graph.replay()
        torch.cuda.synchronize()
    samples = []
    for _ in range(5):
        first.record()
        graph.replay()
        last.record()
        torch.cuda.synchronize()
        samples.append(first.elapsed_time(last) / calls * 1e3)
    return sorted(samples)[2]


def call_of(torch, family, dtype, variant, sizes):
    """What PyTorch calls for a shape, on operands of numbers in [-1, 1)."""
    functional = torch.nn.functional
    dtype = torch.float16 if dtype == "f16" else torch.float32

    def operand(*shape):
        return torch.empty(shape, device="cuda", dtype=dtype).uniform_(-1, 1)

    if family in ("gemm", "few_rows", "batched"):
        batch = sizes[:1] if family == "batched" else []
        m, n, k = sizes[-3:]
        a = operand(*batch, k, m).transpose(-1, -2) if variant[0] == "t" else operand(*batch, m, k)
        b = operand(*batch, n, k).transpose(-1, -2) if variant[1] == "t" else operand(*batch, k, n)
        output = operand(*batch, m, n)
        return lambda: torch.matmul(a, b, out=output)
    if family == "conv":
        n, c, h, w, filters, window, stride, padding, groups = sizes
        layout = torch.channels_last if variant == "nhwc" else torch.contiguous_format
        x = operand(n, c, h, w).contiguous(memory_format=layout)
        filter = operand(filters, c // groups, window, window).contiguous(memory_format=layout)
        return lambda: functional.conv2d(x, filter, stride=stride, padding=padding, groups=groups)
    if family in ("attention", "decode"):
        batch, heads, kv_heads, queries, keys, head = sizes
        q, k, v = operand(batch, heads, queries, head), operand(batch, kv_heads, keys, head), operand(batch, kv_heads, keys, head)
        is_causal, is_grouped = variant == "causal", heads != kv_heads
        return lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=is_grouped)
    rows, columns = sizes
    x = operand(rows, columns)
    if family == "rows":
        weight, bias = operand(columns), operand(columns)
        return {
            "softmax": lambda: torch.softmax(x, 1),
            "log_softmax": lambda: torch.log_softmax(x, 1),
            "layer_norm": lambda: functional.layer_norm(x, (columns,), weight, bias),
            "rms_norm": lambda: functional.rms_norm(x, (columns,), weight),
        }[variant]
    if family == "reduce":
        return {
            "sum_rows": lambda: x.sum(1),
            "sum_columns": lambda: x.sum(0),
            "max_rows": lambda: x.amax(1),
        }[variant]
    y, row, output = operand(rows, columns), operand(columns), torch.empty_like(x)
    turned = torch.empty(columns, rows, device="cuda", dtype=dtype)
    other = torch.empty(rows, columns, device="cuda", dtype=torch.float32 if dtype == torch.float16 else torch.float16)
    return {
        "add": lambda: torch.add(x, y, out=output),
        "gelu": lambda: functional.gelu(x),
        "silu": lambda: functional.silu(x),
        "copy": lambda: output.copy_(x),
        "cast": lambda: other.copy_(x),
        "permute": lambda: turned.copy_(x.t()),
        "add_row": lambda: torch.add(x, row, out=output),
    }[variant]


def add_torch(path):
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    busy, start = torch.zeros(8192, 8192, device="cuda"), time.perf_counter()
    while time.perf_counter() - start < 0.5:  # an idle GPU runs at a lower clock
        (busy @ busy).sum().item()
    print(f"# PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    for columns in shapes(path):
        family, dtype, variant, sizes = columns[:4]
        try:
            call = call_of(torch, family, dtype, variant, [int(size) for size in sizes.split("x")])
            took = f"{measure(torch, call):.2f}"
        except Exception as error:  # a shape that PyTorch refuses doesn't end the sweep
            print(f"{columns[:4]}: {error}", file=sys.stderr)
            took = "-"
        print("\t".join([*columns, took]), flush=True)


def summary(path):
    families = {}
    for family, dtype, variant, sizes, ours, _wall, theirs in shapes(path):
        if "-" not in (ours, theirs):
            line = (float(theirs) / float(ours), f"{variant} {sizes} ({float(ours):.1f} µs, {float(theirs):.1f})")
            families.setdefault((family, dtype), []).append(line)
    print("| family | type | shapes | geometric mean | tenth percentile | slowest: ours, PyTorch |")
    print("| --- | --- | --- | --- | --- | --- |")
    for (family, dtype), lines in families.items():
        lines.sort()
        mean = math.exp(sum(math.log(speed) for speed, _ in lines) / len(lines))
        tenth = lines[len(lines) // 10][0]
        worst = "; ".join(text for _, text in lines[:3])
        print(f"| {family} | {dtype} | {len(lines)} | {mean:.2f} | {tenth:.2f} | {worst} |")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--summary":
        summary(sys.argv[2])
    elif len(sys.argv) == 2:
        add_torch(sys.argv[1])
    else:
        sys.exit(__doc__)
