"""Trains the byte-level language model of this directory on the project's own documents and comments.

    python3 -m venv /tmp/llama && /tmp/llama/bin/pip install jax==0.10.2 gguf==0.19.0
    /tmp/llama/bin/python crates/llama/models/train.py

A llama of 1.1 million parameters (5 layers of 128, 4 heads of which pairs share keys and values), whose tokens are
bytes. Writes it as f16, Q8_0 and Q4_0. The weights are rounded to f16 before anything is written, so that the f16 file
is the exact model and the others its quantisations. docs/reliability.md is held out: tests measure perplexity on
models/held-out.txt, its beginning as it was when the model was trained.
"""
import argparse
import pathlib
import re
import subprocess
import time

import gguf
import jax
import jax.numpy as jnp
import numpy as np

LAYERS, DIM, HEADS, KV_HEADS, HEAD_DIM, HIDDEN = 5, 128, 4, 2, 32, 384
END, VOCABULARY, CONTEXT = 256, 257, 256
ROPE_BASE, EPS = 10000.0, 1e-5
HELD_OUT = "docs/reliability.md"
ROOT = pathlib.Path(__file__).resolve().parents[3]


def corpus():
    """Documents, and the comments of each source file, each ended by END."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    texts = []
    for name in sorted(names):
        if name.endswith(".md") and name != HELD_OUT:
            texts.append((ROOT / name).read_text())
        elif name.endswith((".rs", ".wgsl")):
            comments = re.findall(r"^\s*//[/!]? ?(.*)$", (ROOT / name).read_text(), re.M)
            texts.append("\n".join(comments) + "\n")
    tokens = [np.append(np.frombuffer(text.encode(), np.uint8).astype(np.int32), END) for text in texts]
    return np.concatenate(tokens), np.frombuffer((ROOT / HELD_OUT).read_bytes(), np.uint8).astype(np.int32)


def initial(rng):
    def matrix(rows, columns, scale=1.0):
        return jnp.asarray(rng.standard_normal((rows, columns)) * scale / np.sqrt(columns), jnp.float32)

    layer = lambda: {
        "attn_norm": jnp.ones(DIM), "ffn_norm": jnp.ones(DIM),
        "attn_q": matrix(HEADS * HEAD_DIM, DIM), "attn_k": matrix(KV_HEADS * HEAD_DIM, DIM),
        "attn_v": matrix(KV_HEADS * HEAD_DIM, DIM),
        "attn_output": matrix(DIM, HEADS * HEAD_DIM, 1 / np.sqrt(2 * LAYERS)),
        "ffn_gate": matrix(HIDDEN, DIM), "ffn_up": matrix(HIDDEN, DIM),
        "ffn_down": matrix(DIM, HIDDEN, 1 / np.sqrt(2 * LAYERS)),
    }
    return {"token_embd": matrix(VOCABULARY, DIM), "output": matrix(VOCABULARY, DIM, 0.5),
            "output_norm": jnp.ones(DIM), "blk": [layer() for _ in range(LAYERS)]}


def norm(x, weight):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + EPS) * weight


def rope(x):
    angle = np.arange(x.shape[1])[:, None] * ROPE_BASE ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    cos, sin = (jnp.asarray(f(angle), jnp.float32)[:, None] for f in (np.cos, np.sin))
    even, odd = x[..., 0::2], x[..., 1::2]
    return jnp.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)


def forward(weights, tokens):
    batch, length = tokens.shape
    heads = lambda x, count: x.reshape(batch, length, count, HEAD_DIM)
    mask = jnp.tril(jnp.ones((length, length), bool))
    x = weights["token_embd"][tokens]
    for w in weights["blk"]:
        h = norm(x, w["attn_norm"])
        q = rope(heads(h @ w["attn_q"].T, HEADS)).reshape(batch, length, KV_HEADS, HEADS // KV_HEADS, HEAD_DIM)
        k, v = rope(heads(h @ w["attn_k"].T, KV_HEADS)), heads(h @ w["attn_v"].T, KV_HEADS)
        scores = jnp.einsum("bqkgd,bskd->bkgqs", q, k) / np.sqrt(HEAD_DIM)
        scores = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), -1)
        o = jnp.einsum("bkgqs,bskd->bqkgd", scores, v).reshape(batch, length, -1)
        x = x + o @ w["attn_output"].T
        h = norm(x, w["ffn_norm"])
        x = x + (jax.nn.silu(h @ w["ffn_gate"].T) * (h @ w["ffn_up"].T)) @ w["ffn_down"].T
    return norm(x, weights["output_norm"]) @ weights["output"].T


def loss(weights, tokens):
    log_p = jax.nn.log_softmax(forward(weights, tokens[:, :-1]))
    return -jnp.mean(jnp.take_along_axis(log_p, tokens[:, 1:, None], -1))


@jax.jit
def update(weights, first, second, step, rate, tokens):
    """One step of AdamW, with gradients clipped to a norm of 1."""
    value, gradient = jax.value_and_grad(loss)(weights, tokens)
    size = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradient)))
    gradient = jax.tree.map(lambda g: g / jnp.maximum(size, 1.0), gradient)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
    second = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, second, gradient)

    def moved(w, m, v):
        direction = m / (1 - 0.9 ** step) / (jnp.sqrt(v / (1 - 0.95 ** step)) + 1e-8)
        return w - rate * (direction + (0.1 * w if w.ndim == 2 else 0.0))

    return jax.tree.map(moved, weights, first, second), first, second, value


def byte_names():
    """GPT-2's printable stand-ins for the 256 bytes, which GGUF vocabularies of kind gpt2 spell bytes with."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [b for b in range(256) if b not in printable]
    return [chr(b) if b in printable else chr(256 + other.index(b)) for b in range(256)]


def write(path, weights, kind, file_type, context):
    w = gguf.GGUFWriter(path, "llama")
    w.add_name("webgpu-compute bytes 1M")
    w.add_license("MIT OR Apache-2.0")
    w.add_file_type(file_type)
    w.add_context_length(context)
    w.add_embedding_length(DIM)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(HIDDEN)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_layer_norm_rms_eps(EPS)
    w.add_rope_dimension_count(HEAD_DIM)
    w.add_rope_freq_base(ROPE_BASE)
    w.add_vocab_size(VOCABULARY)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list([*byte_names(), "<|endoftext|>"])
    w.add_token_types([gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL])
    # One merge that never applies: other readers require the key, and gguf writes no empty arrays.
    w.add_token_merges(["\u0100 \u0100"])
    w.add_bos_token_id(END)
    w.add_eos_token_id(END)
    w.add_add_bos_token(True)
    # It has learnt to go on with a text, not to answer: a chat is one long text.
    w.add_chat_template("{% for message in messages %}{{ message.content }}{% endfor %}")

    def add(name, x):
        x = np.asarray(x, np.float32)
        if x.ndim == 1:
            w.add_tensor(name + ".weight", x)
            return
        # As llama.cpp has it: the embedding and the output keep eight bits beside matrices of four.
        fine = kind == gguf.GGMLQuantizationType.Q4_0 and name in ("token_embd", "output")
        q = gguf.GGMLQuantizationType.Q8_0 if fine else kind
        w.add_tensor(name + ".weight", gguf.quants.quantize(x, q), raw_dtype=q)

    for name in ("token_embd", "output_norm", "output"):
        add(name, weights[name])
    for i, layer in enumerate(weights["blk"]):
        for name, x in layer.items():
            add(f"blk.{i}.{name}", x)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=CONTEXT, help="tokens of a window, and the context of the files")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    args = parser.parse_args()

    text, held_out = corpus()
    rng = np.random.default_rng(0)
    weights = initial(rng)
    first = second = jax.tree.map(jnp.zeros_like, weights)
    print(sum(w.size for w in jax.tree.leaves(weights)), "parameters,", len(text), "bytes of text")
    windows = lambda text, count, length: text[: count * length].reshape(count, length)
    window = args.length + 1
    unseen = windows(held_out, len(held_out) // window, window)
    start = time.time()
    for step in range(1, args.steps + 1):
        at = rng.integers(0, len(text) - args.length - 1, args.batch)
        tokens = np.stack([text[i : i + args.length + 1] for i in at])
        rate = 3e-3 * min(step / 60, 0.5 * (1 + np.cos(np.pi * step / args.steps)) + 0.01)
        weights, first, second, value = update(weights, first, second, step, rate, tokens)
        if step % 50 == 0 or step == args.steps:
            print(f"{step:5} {time.time() - start:6.0f} s  loss {value:.3f}  held out {loss(weights, unseen):.3f}",
                  flush=True)

    halves = jax.tree.map(lambda w: w.astype(jnp.float16).astype(jnp.float32) if w.ndim == 2 else w, weights)
    print(f"perplexity of a byte, held out: {np.exp(loss(halves, unseen)):.3f}")
    kinds = gguf.GGMLQuantizationType
    for name, kind, file_type in [("f16", kinds.F16, 1), ("q8_0", kinds.Q8_0, 7), ("q4_0", kinds.Q4_0, 2)]:
        write(args.out / f"bytes-1m-{name}.gguf", halves, kind, file_type, args.length)


if __name__ == "__main__":
    main()
