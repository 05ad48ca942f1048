"""Checksums of what the package `gguf` makes of pseudo-random blocks and weights.

Prints the table of `tests/quant_formats.rs`, which makes the same blocks and weights:
`pip install gguf==0.19.0 && python tests/quant/reference.py`.
"""

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

BLOCKS = 10_000

# Bytes of a block, and where its f16 scales are.
FORMATS = {
    "Q8_0": (34, [0]),
    "Q4_0": (18, [0]),
    "Q4_1": (20, [0, 2]),
    "Q5_0": (22, [0]),
    "Q5_1": (24, [0, 2]),
    "IQ4_NL": (18, [0]),
    "IQ4_XS": (136, [0]),
    "MXFP4": (17, []),
    "Q2_K": (84, [80, 82]),
    "Q3_K": (110, [108]),
    "Q4_K": (144, [0, 2]),
    "Q5_K": (176, [0, 2]),
    "Q6_K": (210, [208]),
}


def noise(count):
    """The first numbers of SplitMix64 from the seed 0."""
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def checksum(numbers):
    """The sum of each number times an odd number that tells its place, modulo 2**64."""
    numbers = numbers.astype(np.uint64)
    return int((numbers * (2 * np.arange(numbers.size, dtype=np.uint64) + np.uint64(1))).sum(dtype=np.uint64))


def blocks(size, scales):
    """Random blocks whose scales are finite: the highest bit of their exponents is 0."""
    data = noise((BLOCKS * size + 7) // 8).astype("<u8").view(np.uint8)[: BLOCKS * size].reshape(BLOCKS, size).copy()
    for at in scales:
        data[:, at + 1] &= 0xBF
    return data


for name, (size, scales) in FORMATS.items():
    weights = dequantize(blocks(size, scales), GGMLQuantizationType[name]).astype("<f4")
    print(f"{name} dequantised: {checksum(weights.reshape(-1).view('<u4')):#018x}")

weights = (((noise(BLOCKS * 32) >> np.uint64(40)).astype(np.int64) - (1 << 23)).astype(np.float32)) / np.float32(1 << 20)
for name in ["Q8_0", "Q4_0", "MXFP4"]:
    quantised = quantize(weights.reshape(BLOCKS, 32), GGMLQuantizationType[name])
    print(f"{name} quantised: {checksum(quantised.reshape(-1)):#018x}")
